"""One record of "which architecture is this": a family and constructor arguments.

It is made from a variant, a model, a checkpoint or a stored file, and compared, named
and costed from here. This module imports no Keras.
"""

import dataclasses
import json
import math
from collections.abc import Mapping

from cct_keras.checks import ACTIVATIONS
from cct_keras.checks import FINAL_NORMS
from cct_keras.checks import INTERPOLATIONS
from cct_keras.checks import TOP_POOLINGS
from cct_keras.models.families import FAMILIES
from cct_keras.models.families import Family
from cct_keras.models.variants import VARIANTS
from cct_keras.models.variants import constructor_arguments
from cct_keras.models.variants import find_variant

# What can be adapted when weights are loaded, and so is no part of the body.
ADAPTABLE = ("num_classes", "input_shape", "positional_embedding")
# Width of the tokenizer's stages before the last.
HIDDEN_FILTERS = 64
# Nothing that a stored record counts is as large.
LARGEST_COUNT = 2**20


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A family and the arguments of its constructor that decide the function.

    Attributes:
        family: Name of the family, a key of `FAMILIES`.
        arguments: Constructor arguments. `input_shape` is always `(height, width,
            channels)`; what is not named has the default of `Family.defaults`.
        grid: `(rows, columns)` of the positions where these are known by themselves,
            as in a stored file, whose images may have had one of several sizes.

    Example:

    >>> record = Architecture.from_variant("cct_2_3x2_32", num_classes=5)
    >>> record.family, record.arguments["num_heads"], record.tokens
    ('CCT', 2, 64)
    """

    family: str
    arguments: Mapping[str, object]
    grid: tuple[int, int] | None = None

    @classmethod
    def from_variant(cls, variant: str, **changes) -> "Architecture":
        """The architecture of a named variant.

        Args:
            variant: One of `list_models()`.
            **changes: Constructor arguments in place of the variant's own.
        """
        row = find_variant(variant)
        arguments = {**constructor_arguments(row), **changes}
        if arguments["positional_embedding"] == "none":
            arguments["positional_embedding"] = None
        return cls(row.family, arguments)

    @classmethod
    def from_json(cls, text: str) -> "Architecture":
        """The record that `to_json` wrote, or `ValueError`."""
        try:
            content = json.loads(text)
            family, arguments = content["family"], dict(content["arguments"])
            height, width, channels = arguments["input_shape"]
            arguments["input_shape"] = (height, width, channels)
            grid = None if content["grid"] is None else tuple(content["grid"])
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"not a record of an architecture: {error}") from error
        if not isinstance(family, str) or family not in FAMILIES:
            raise ValueError(f"a record of an unknown family: {family!r}")
        _check_record(arguments, grid)
        return cls(family, arguments, grid)

    def to_json(self) -> str:
        """The record as JSON text, for files."""
        return json.dumps(
            {
                "family": self.family,
                "arguments": dict(self.arguments),
                "grid": self.grid,
            }
        )

    # === Parts ===

    @property
    def row(self) -> Family:
        """What is known of the family."""
        return FAMILIES[self.family]

    def get(self, name: str, default=None):
        """An argument, or the family's default of it."""
        return self.arguments.get(name, self.row.defaults.get(name, default))

    @property
    def kernel_size(self) -> int:
        """Side of the convolution kernels, or of the patches."""
        patches = self.row.tokenizer == "patches"
        return self.arguments["patch_size" if patches else "kernel_size"]

    @property
    def num_stages(self) -> int:
        """Number of convolutions of the tokenizer."""
        return self.arguments.get("num_conv_layers", 1)

    @property
    def stride(self) -> int:
        """Stride of the convolutions."""
        if self.row.tokenizer == "patches":
            return self.kernel_size
        stride = self.get("stride")
        return max(1, self.kernel_size // 2 - 1) if stride is None else stride

    @property
    def padding(self) -> int:
        """Padding of the convolutions."""
        if self.row.tokenizer == "patches":
            return 0
        padding = self.get("padding")
        return max(1, self.kernel_size // 2) if padding is None else padding

    @property
    def pooling(self) -> tuple[int, int, int] | None:
        """Kernel, stride and padding of the max-pooling of each stage."""
        if self.row.tokenizer == "patches":
            return None
        names = ("pooling_kernel_size", "pooling_stride", "pooling_padding")
        return tuple(self.get(name) for name in names)

    @property
    def pixels_per_token(self) -> int:
        """Pixels from one token to the next, along a side."""
        stride = self.stride * (self.pooling[1] if self.pooling else 1)
        return stride**self.num_stages

    @property
    def prefix_tokens(self) -> tuple[str, ...]:
        """Names of the token layers before the image's tokens."""
        return self.row.find_prefix_tokens({**self.row.defaults, **self.arguments})

    @property
    def num_prefix_tokens(self) -> int:
        """How many tokens stand before those of the image, registers included."""
        return len(self.prefix_tokens) + self.get("num_registers", 0)

    @property
    def positions(self) -> int:
        """Length of the table of positions."""
        own = len(self.prefix_tokens) if self.get("class_token_position", True) else 0
        return own + math.prod(self.token_grid)

    @property
    def heads(self) -> tuple[str, ...]:
        """Names of the head layers."""
        if not self.num_classes:
            return ()
        return self.row.find_heads({**self.row.defaults, **self.arguments})

    @property
    def top_pooling(self) -> str:
        """What the head reads."""
        return self.get("top_pooling") or self.row.top_pooling

    @property
    def epsilon(self) -> float:
        """Epsilon of the normalizations."""
        return self.get("epsilon") or 1e-5

    @property
    def activation(self) -> str:
        """Activation of the feed-forward layers."""
        return self.get("activation") or "gelu"

    @property
    def num_classes(self) -> int:
        """Classes of the head; 0 without one."""
        return self.arguments.get("num_classes") or 0

    @property
    def final_norm(self) -> str | None:
        """What is normalized after the blocks: `"tokens"`, `"pooled"` or nothing."""
        return self.get("final_norm", "tokens")

    @property
    def pooled_width(self) -> int:
        """Width of what the head, or a layer before it, reads."""
        dim = self.arguments["embedding_dim"]
        return 2 * dim if self.top_pooling == "token_avg" else dim

    @property
    def hidden_dim(self) -> int:
        """Width of the feed-forward layers."""
        return int(self.arguments["embedding_dim"] * self.arguments["mlp_ratio"])

    # === Tokens ===

    def stage_sizes(self, side: int) -> list[tuple[int, int]]:
        """Of each stage, the length of a side after convolution and after pooling."""
        sizes = []
        for _ in range(self.num_stages):
            side = (side + 2 * self.padding - self.kernel_size) // self.stride + 1
            convolved = side
            if self.pooling is not None:
                kernel, stride, padding = self.pooling
                side = (side + 2 * padding - kernel) // stride + 1
            sizes.append((convolved, side))
        return sizes

    @property
    def token_grid(self) -> tuple[int, int]:
        """Rows and columns of the image's tokens."""
        if self.grid is not None:
            return self.grid
        height, width, _ = self.arguments["input_shape"]
        return self.stage_sizes(height)[-1][1], self.stage_sizes(width)[-1][1]

    @property
    def size_fits_grid(self) -> bool:
        """Whether images of `input_shape` have the tokens that there are positions for.

        It is so where one of the two is not known.
        """
        sides = self.arguments["input_shape"][:2]
        if None in sides:
            return True
        patches = self.row.tokenizer == "patches"
        if patches and any(side % self.kernel_size for side in sides):
            return False
        sizes = [self.stage_sizes(side) for side in sides]
        if any(n < 1 for stages in sizes for stage in stages for n in stage):
            return False
        return self.grid in (None, tuple(stages[-1][1] for stages in sizes))

    @property
    def tokens(self) -> int:
        """Length of the sequence, prefix tokens included."""
        return self.num_prefix_tokens + math.prod(self.token_grid)

    # === Weights ===

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """`{path: shape}` of every weight of a model, as Keras names and shapes it."""
        dim, hidden = self.arguments["embedding_dim"], self.hidden_dim
        patches = self.row.tokenizer == "patches"
        kernel, channels = self.kernel_size, self.arguments["input_shape"][2]
        shapes = {}

        def linear(path, inputs, outputs, bias=True):
            shapes[f"{path}/kernel"] = (inputs, outputs)
            if bias:
                shapes[f"{path}/bias"] = (outputs,)

        def norm(path, width=dim):
            shapes[f"{path}/gamma"] = shapes[f"{path}/beta"] = (width,)

        def feed_forward(path):
            gated = self.activation == "swiglu"
            linear(f"{path}/linear1", dim, 2 * hidden if gated else hidden)
            linear(f"{path}/linear2", hidden, dim)

        for stage in range(self.num_stages):
            filters = dim if stage == self.num_stages - 1 else HIDDEN_FILTERS
            path = f"tokenizer/conv_{stage}"
            shapes[f"{path}/kernel"] = (kernel, kernel, channels, filters)
            if patches and self.get("patch_bias", True):
                shapes[f"{path}/bias"] = (filters,)
            channels = filters
        for token in self.prefix_tokens:
            shapes[f"{token}/token"] = (1, 1, dim)
        if self.arguments["positional_embedding"] is not None:
            shapes["position_embedding/embeddings"] = (1, self.positions, dim)
        if self.get("num_registers"):
            shapes["registers/tokens"] = (1, self.get("num_registers"), dim)
        if self.get("norm_before_blocks"):
            norm("norm_pre")
        for i in range(self.arguments["num_layers"]):
            norm(f"block_{i}/norm1")
            linear(f"block_{i}/attention/qkv", dim, 3 * dim, self.row.qkv_bias)
            linear(f"block_{i}/attention/proj", dim, dim)
            norm(f"block_{i}/norm2")
            feed_forward(f"block_{i}/feed_forward")
            if self.get("layer_scale") is not None:
                for scale in ("scale1", "scale2"):
                    shapes[f"block_{i}/{scale}/scale"] = (dim,)
        if self.final_norm == "tokens":
            norm("norm")
        if self.top_pooling == "map":
            # Also without classes: then the pooled vector is the output.
            shapes["pool/probe"] = (1, 1, dim)
            linear("pool/query", dim, dim)
            linear("pool/key_value", dim, 2 * dim)
            linear("pool/proj", dim, dim)
            norm("pool/norm")
            feed_forward("pool/feed_forward")
        if not self.heads:
            if self.get("projection_dim"):
                linear("projection", dim, self.get("projection_dim"), bias=False)
            return shapes
        if self.top_pooling == "seq":
            linear("pool/attention", dim, 1)
        read = self.pooled_width
        if self.final_norm == "pooled":
            norm("fc_norm", read)
        if self.get("representation_size"):
            linear("pre_logits", read, self.get("representation_size"))
            read = self.get("representation_size")
        for head in self.heads:
            linear(head, read, self.num_classes)
        return shapes

    # === Comparison and names ===

    @property
    def body(self) -> dict[str, object]:
        """What two models must share for one to take the other's weights."""
        own = ("num_layers", "num_heads", "embedding_dim")
        return {
            "tokenizer": self.row.tokenizer,
            "block_order": self.row.block_order,
            "qkv_bias": self.row.qkv_bias,
            "prefix_tokens": self.prefix_tokens,
            "kernel_size": self.kernel_size,
            "num_conv_layers": self.num_stages,
            "stride": self.stride,
            "padding": self.padding,
            "pooling": self.pooling,
            **{name: self.arguments[name] for name in own},
            "hidden_dim": self.hidden_dim,
            "epsilon": self.epsilon,
            "activation": self.activation,
            "patch_bias": self.get("patch_bias", True),
            "class_token_position": self.get("class_token_position", True),
            "num_registers": self.get("num_registers", 0),
            "norm_before_blocks": self.get("norm_before_blocks", False),
            "layer_scale": self.get("layer_scale") is not None,
            "final_norm": self.final_norm,
        }

    def same_body(self, other: "Architecture", *, ignore: tuple[str, ...] = ()) -> bool:
        """Whether the bodies are the same function of the same weights."""
        ours, theirs = self.body, other.body
        if None in (ours["num_heads"], theirs["num_heads"]):
            # Some files do not tell them.
            ignore = (*ignore, "num_heads")
        return all(ours[name] == theirs[name] for name in ours if name not in ignore)

    @property
    def variant(self) -> str | None:
        """The variant with exactly this architecture, if it has a name."""
        for name in VARIANTS:
            record = Architecture.from_variant(name)
            if (
                self.same_body(record, ignore=("epsilon",))
                and self.heads == record.heads
                and self.top_pooling == record.top_pooling
                and not self.get("representation_size")
                and all(self.get(key) == record.get(key) for key in ADAPTABLE)
            ):
                return name
        return None

    def nearest_variant(self) -> str | None:
        """The variant with this body whose positions and image size come nearest.

        Its activation may be another: that is an argument beside the variant.
        """
        kind = self.arguments.get("positional_embedding")
        shape = self.arguments.get("input_shape")
        side = shape[0] if shape and shape[0] else 32

        def distance(name):
            row = VARIANTS[name]
            other_kind = kind not in (None, row.positional_embedding)
            return other_kind, abs(row.image_size - side)

        fitting = [
            name
            for name in VARIANTS
            if self.same_body(
                Architecture.from_variant(name), ignore=("epsilon", "activation")
            )
        ]
        return min(fitting, key=distance, default=None)

    def __str__(self):
        """Such as `CCT(num_layers=2, ...)`, what is at its default left out."""
        text = ", ".join(
            f"{name}={value!r}"
            for name, value in self.arguments.items()
            if self.row.defaults.get(name, ...) != value
        )
        return f"{self.family}({text})"


# === Records in files ===


def _is_count(value):
    return type(value) is int and 0 < value <= LARGEST_COUNT


def _is_count_or_zero(value):
    return _is_count(value) or (type(value) is int and value == 0)


def _is_positive(value):
    return type(value) in (int, float) and 0 < value <= LARGEST_COUNT


def _or_none(fits):
    return lambda value: value is None or fits(value)


def _one_of(*choices):
    return lambda value: value in choices


# What a record may say of the arguments that decide shapes, or that are handed on to a
# constructor; `None` where a constructor knows better, or nobody.
RECORDED = {
    "num_layers": _is_count,
    "num_heads": _or_none(_is_count),
    "mlp_ratio": _is_positive,
    "embedding_dim": _is_count,
    "patch_size": _is_count,
    "kernel_size": _is_count,
    "num_conv_layers": _is_count,
    "stride": _or_none(_is_count),
    "padding": _or_none(_is_count_or_zero),
    "pooling_kernel_size": _is_count,
    "pooling_stride": _is_count,
    "pooling_padding": _is_count_or_zero,
    "num_classes": _or_none(_is_count_or_zero),
    "num_registers": _is_count_or_zero,
    "epsilon": _or_none(_is_positive),
    "layer_scale": _or_none(_is_positive),
    "representation_size": _or_none(_is_count),
    "projection_dim": _or_none(_is_count),
    "activation": _or_none(_one_of(*ACTIVATIONS)),
    "positional_embedding": _one_of("learnable", "sine", None),
    "position_interpolation": _or_none(_one_of(*INTERPOLATIONS)),
    "top_pooling": _one_of(*TOP_POOLINGS),
    "final_norm": _one_of(*FINAL_NORMS),
}


def _check_record(arguments, grid):
    """Refuses what no model writes, such as a side of -1 or a stride that is text."""
    height, width, channels = arguments["input_shape"]
    fits = {
        **{
            name: check(arguments[name])
            for name, check in RECORDED.items()
            if name in arguments
        },
        "input_shape": all(map(_or_none(_is_count), (height, width)))
        and _is_count(channels),
        "grid": grid is None or (len(grid) == 2 and all(map(_is_count, grid))),
    }
    for name, is_possible in fits.items():
        if not is_possible:
            raise ValueError(f"a record of an architecture with an impossible {name}")


def recognize_family(
    *, tokenizer: str, block_order: str, prefix_tokens: tuple[str, ...]
) -> tuple[str, dict]:
    """The family with these parts, and the arguments that give it these tokens.

    The first family that fits is returned: a plain DeiT has the parts of a ViT.
    """
    for name, family in FAMILIES.items():
        if (family.tokenizer, family.block_order) != (tokenizer, block_order):
            continue
        for tokens, arguments in family.prefix_tokens:
            if tokens == prefix_tokens:
                return name, dict(arguments)
    raise ValueError(
        f"no family has {tokenizer}, {block_order} blocks and the prefix tokens "
        f"{list(prefix_tokens)}. Known: {', '.join(FAMILIES)}"
    )
