"""What each model family is, as one row; everything else asks the row.

Cost, converter, layer-wise rates, weight decay and trainer know no family by name. A
new family is a file with its constructor and a row here. No Keras is imported.
"""

import dataclasses
import importlib
import re
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence

TOKENIZERS = ("convolutions", "patches")
BLOCK_ORDERS = ("replacing", "pre_norm")


@dataclasses.dataclass(frozen=True)
class Family:
    """One family of models.

    Attributes:
        name: Name of the constructor.
        constructor: The constructor itself, or `"module:name"` of one that is imported
            when a model is built.
        tokenizer: `"convolutions"`, each with an activation and max-pooling, or
            `"patches"`: one convolution whose stride is its kernel.
        block_order: `"replacing"`, where the second normalization of a block replaces
            the residual stream, or the textbook's `"pre_norm"`.
        qkv_bias: Whether the projection to query, key and value has a bias.
        prefix_tokens: Names of the token layers that stand before the image's tokens,
            in the order of the sequence, each beside constructor arguments that put
            them there. The pair without arguments is the default; of several that fit
            a model's arguments the last counts.
        top_pooling: What the head reads: `"seq"` for sequence pooling, `"token"` for
            the first token. A family whose constructor has an argument `top_pooling`
            names its default.
        token_heads: Names of further heads, by the prefix token that each reads.
        name_table: The table of names in `converter/` that its checkpoints use.
        defaults: Constructor arguments that change the function and no shape, or that
            few models set, with their defaults.
    """

    name: str
    constructor: str | Callable
    tokenizer: str
    block_order: str
    qkv_bias: bool = False
    prefix_tokens: Sequence[tuple[tuple[str, ...], Mapping]] = (((), {}),)
    top_pooling: str = "seq"
    token_heads: Mapping[str, str] = dataclasses.field(default_factory=dict)
    name_table: str = "shi_labs"
    defaults: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if self.tokenizer not in TOKENIZERS or self.block_order not in BLOCK_ORDERS:
            raise ValueError(
                f"Family: `tokenizer` must be one of {TOKENIZERS}, and `block_order` "
                f"one of {BLOCK_ORDERS}. Received: tokenizer={self.tokenizer!r}, "
                f"block_order={self.block_order!r}"
            )

    def find_constructor(self) -> Callable:
        """The constructor, imported if it has not been yet."""
        if callable(self.constructor):
            return self.constructor
        module, _, name = self.constructor.partition(":")
        return getattr(importlib.import_module(module), name)

    def find_prefix_tokens(self, arguments: Mapping) -> tuple[str, ...]:
        """The prefix tokens of a model with these constructor arguments."""
        for tokens, needed in reversed(self.prefix_tokens):
            if needed and all(arguments.get(k) == v for k, v in needed.items()):
                return tokens
        return next(tokens for tokens, needed in self.prefix_tokens if not needed)

    def arguments_for_tokens(self, prefix_tokens: tuple, arguments: Mapping) -> dict:
        """Constructor arguments, with what it takes to have these prefix tokens.

        Args:
            prefix_tokens: The tokens that a model is to have.
            arguments: Its other arguments, which may imply the same tokens.
        """
        for tokens, needed in self.prefix_tokens:
            wanted = {**needed, **arguments}
            found = self.find_prefix_tokens({**self.defaults, **wanted})
            if tokens == prefix_tokens == found:
                return wanted
        return dict(arguments)

    def find_heads(self, arguments: Mapping) -> tuple[str, ...]:
        """Names of the head layers of a model with these constructor arguments."""
        if not arguments.get("distillation_head", True):
            return ("head",)
        tokens = self.find_prefix_tokens(arguments)
        return ("head", *(self.token_heads[t] for t in tokens if t in self.token_heads))

    @property
    def undecayed_layers(self) -> frozenset[str]:
        """Layers that hold tables of tokens, which recipes may exempt from decay.

        Biases and normalizations are commonly exempt, too; these are known by their
        shape.
        """
        tokens = (token for tokens, _ in self.prefix_tokens for token in tokens)
        return frozenset({"position_embedding", "registers", *tokens})

    def layer_depth(self, layer: str, num_layers: int) -> int:
        """How deep a layer stands, by its name.

        Args:
            layer: Name of a layer.
            num_layers: Number of encoder blocks.

        Returns:
            0 for everything before the blocks, 1 for the first block, and one more than
            the last block for everything after it.
        """
        before_blocks = {"tokenizer", "norm_pre", *self.undecayed_layers}
        if layer in before_blocks:
            return 0
        block = re.fullmatch(r"block_(\d+)", layer)
        return 1 + int(block[1]) if block else 1 + num_layers


FAMILIES = {
    family.name: family
    for family in (
        Family(
            "CCT",
            "cct_keras.models.cct:CCT",
            tokenizer="convolutions",
            block_order="replacing",
            defaults={
                "stride": None,
                "padding": None,
                "pooling_kernel_size": 3,
                "pooling_stride": 2,
                "pooling_padding": 1,
                "activation": "gelu",
            },
        ),
        Family(
            "CVT",
            "cct_keras.models.cvt:CVT",
            tokenizer="patches",
            block_order="replacing",
            defaults={"activation": "gelu"},
        ),
        Family(
            "ViTLite",
            "cct_keras.models.vit_lite:ViTLite",
            tokenizer="patches",
            block_order="replacing",
            prefix_tokens=((("class_token",), {}),),
            top_pooling="token",
            defaults={"activation": "gelu"},
        ),
        Family(
            "ViT",
            "cct_keras.models.vit:ViT",
            tokenizer="patches",
            block_order="pre_norm",
            qkv_bias=True,
            prefix_tokens=(
                (("class_token",), {}),
                ((), {"top_pooling": "avg"}),
                ((), {"top_pooling": "map"}),
                (("class_token",), {"class_token": True}),
                ((), {"class_token": False}),
            ),
            top_pooling="token",
            name_table="timm",
            defaults={
                "epsilon": 1e-6,
                "top_pooling": "token",
                "representation_size": None,
                "activation": "gelu",
                "patch_bias": True,
                "class_token": None,
                "class_token_position": True,
                "position_interpolation": "bilinear",
                "num_registers": 0,
                "norm_before_blocks": False,
                "layer_scale": None,
                "final_norm": "tokens",
                "projection_dim": None,
            },
        ),
        Family(
            "DeiT",
            "cct_keras.models.deit:DeiT",
            tokenizer="patches",
            block_order="pre_norm",
            qkv_bias=True,
            prefix_tokens=(
                (("class_token", "distillation_token"), {"distilled": True}),
                (("class_token",), {}),
            ),
            top_pooling="token",
            token_heads={"distillation_token": "head_dist"},
            name_table="timm",
            defaults={
                "epsilon": 1e-6,
                "distilled": False,
                "distillation_head": True,
                "activation": "gelu",
                "position_interpolation": "bilinear",
            },
        ),
    )
}


def known_prefix_tokens() -> list[str]:
    """Names of the token layers of all families."""
    combinations = (x for family in FAMILIES.values() for x in family.prefix_tokens)
    return list(dict.fromkeys(token for tokens, _ in combinations for token in tokens))


def order_prefix_tokens(present: set[str]) -> tuple[str, ...]:
    """Prefix tokens in the order of the sequence, as some family has them."""
    for family in FAMILIES.values():
        for tokens, _ in family.prefix_tokens:
            if set(tokens) == present:
                return tokens
    return tuple(sorted(present))


def known_heads() -> tuple[str, ...]:
    """Names of the head layers of all families, the first one `head`."""
    further = (x for family in FAMILIES.values() for x in family.token_heads.values())
    return ("head", *dict.fromkeys(further))
