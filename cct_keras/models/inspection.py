"""The architecture of a model, or of the layers that a file describes."""

from collections.abc import Mapping

from cct_keras.models.architecture import Architecture
from cct_keras.models.architecture import recognize_family
from cct_keras.models.families import FAMILIES
from cct_keras.models.families import known_heads


def architecture_of(model) -> Architecture:
    """The architecture of a model of this package, or of one built on it.

    Args:
        model: A functional `keras.Model` with a `ConvTokenizer` among its layers.

    Returns:
        An `Architecture`. Without a head its `num_classes` is 0.

    Example:

    >>> model = cct_keras.create_model("cct_2_3x2_32", num_classes=5)
    >>> architecture_of(model).variant is None, architecture_of(model).num_classes
    (True, 5)
    """
    tokenizer = find_tokenizer(model)
    layers = {
        layer.name: (_class_name(layer), layer.get_config()) for layer in model.layers
    }
    shape = tuple(tokenizer.input.shape[1:])
    if tokenizer.data_format == "channels_first":
        shape = (shape[1], shape[2], shape[0])
    return architecture_from_layers(layers, shape)


def architecture_from_layers(
    layers: Mapping[str, tuple[str, Mapping]], image_shape: tuple
) -> Architecture:
    """The architecture of layers, each given by its class and its settings.

    Args:
        layers: `{layer name: (class name, arguments of its constructor)}` in the order
            of the model.
        image_shape: `(height, width, channels)` of what the tokenizer takes.

    Returns:
        An `Architecture`.
    """

    def settings(class_name):
        return {
            name: config
            for name, (kind, config) in layers.items()
            if kind.endswith(class_name)
        }

    tokenizers = list(settings("ConvTokenizer").values())
    if len(tokenizers) != 1:
        raise ValueError(
            f"one ConvTokenizer is expected among the layers, found {len(tokenizers)}"
        )
    tokenizer = tokenizers[0]
    blocks = list(settings("EncoderBlock").values())
    if not blocks:
        raise ValueError("there are no encoder blocks")
    # The last token layer puts its token before those of the others.
    prefix = tuple(reversed(settings("ClassToken")))
    patches = (
        tokenizer["pooling_kernel_size"] is None
        and not tokenizer["padding"]
        and tokenizer["stride"] == tokenizer["kernel_size"]
    )
    pre_norm = bool(blocks[0]["pre_norm"])
    family, arguments = recognize_family(
        tokenizer="patches" if patches else "convolutions",
        block_order="pre_norm" if pre_norm else "replacing",
        prefix_tokens=prefix,
    )
    row = FAMILIES[family]
    dim, hidden = tokenizer["embedding_dim"], blocks[0]["hidden_dim"]
    positions = next(iter(settings("PositionEmbedding").values()), None)
    head = layers.get("head", (None, {}))[1]
    arguments |= {
        "num_classes": head.get("units", 0),
        "input_shape": tuple(image_shape),
        "num_layers": len(blocks),
        "num_heads": blocks[0]["num_heads"],
        "mlp_ratio": find_mlp_ratio(hidden, dim),
        "embedding_dim": dim,
        "positional_embedding": None if positions is None else positions["kind"],
    }
    if patches:
        arguments["patch_size"] = tokenizer["kernel_size"]
    else:
        names = ("kernel_size", "num_conv_layers", "stride", "padding")
        pooling = ("pooling_kernel_size", "pooling_stride", "pooling_padding")
        arguments |= {name: tokenizer[name] for name in (*names, *pooling)}
    if pre_norm:
        arguments["epsilon"] = blocks[0]["epsilon"]
    if "distillation_token" in prefix:
        arguments["distillation_head"] = "head_dist" in layers or not head
    registers = next(iter(settings("RegisterTokens").values()), {})
    # What is not told stays at the default, as in files from before there was a choice.
    found = {
        "activation": blocks[0].get("activation"),
        "layer_scale": _scale(blocks[0].get("layer_scale")),
        "patch_bias": tokenizer.get("use_bias"),
        "num_registers": registers.get("num_tokens"),
        "norm_before_blocks": "norm_pre" in layers,
        "representation_size": _units(layers, "pre_logits"),
        "projection_dim": _units(layers, "projection"),
    }
    if positions is not None:
        found["position_interpolation"] = positions.get("interpolation")
        own = positions.get("num_prefix_tokens", len(prefix))
        found["class_token_position"] = own == len(prefix)
    if "norm" not in layers:
        arguments["final_norm"] = "pooled" if "fc_norm" in layers else None
    arguments |= {
        name: value
        for name, value in found.items()
        if name in row.defaults and value not in (None, row.defaults[name])
    }
    if "top_pooling" in row.defaults:
        top = _top_pooling(layers, prefix, arguments.get("final_norm", "tokens"))
        if top != row.defaults["top_pooling"]:
            arguments["top_pooling"] = top
        arguments = row.arguments_for_tokens(prefix, arguments)
    grid = None if positions is None else tuple(positions["grid"])
    return Architecture(family, arguments, grid)


def _scale(value):
    """A file of weights tells that there are factors, not how they began."""
    return 1e-5 if value is True else value or None


def _units(layers, name):
    return layers[name][1]["units"] if name in layers else None


def _top_pooling(layers, prefix, final_norm):
    """What the head reads, or a head would."""
    by_class = {
        "AttentionPool": "map",
        "GlobalAveragePooling1D": "avg",
        "Concatenate": "token_avg",
        "TokenPool": "token",
    }
    pool = layers.get("pool", (None, {}))[0]
    if pool in by_class:
        return by_class[pool]
    # A file of weights holds no layers without any.
    if not prefix:
        return "avg"
    return "token" if final_norm == "tokens" else "avg"


def find_mlp_ratio(hidden: int, dim: int) -> float:
    """The ratio from which a constructor makes this hidden width."""
    if hidden % dim == 0:
        return hidden // dim
    ratio = hidden / dim
    while int(dim * ratio) < hidden:
        # The constructor rounds the product down, which may fall one short.
        ratio *= 1 + 1e-15
    return ratio


def find_tokenizer(model):
    """The tokenizer of a model; `ValueError` if it has none."""
    for layer in model.layers:
        if _class_name(layer) == "ConvTokenizer":
            return layer
    raise ValueError(
        f"{model.name!r} has no ConvTokenizer among its layers: it is not a model of "
        "this package, nor one built on it"
    )


def encoder_blocks(model) -> list:
    """The blocks of a model, first to last."""
    return [x for x in model.layers if _class_name(x) == "EncoderBlock"]


def layer_depths(model) -> dict[str, int]:
    """`{name: depth}` of the layers with weights; see `Family.layer_depth`."""
    architecture = architecture_of(model)
    count = architecture.arguments["num_layers"]
    names = [layer.name for layer in model.layers]
    # What somebody has put before the tokenizer is as deep as the tokenizer.
    before = names[: names.index(find_tokenizer(model).name)]
    return {
        layer.name: 0
        if layer.name in before
        else architecture.row.layer_depth(layer.name, count)
        for layer in model.layers
        if layer.weights
    }


def undecayed_weights(model) -> list:
    """The trainable tables of positions and prefix tokens."""
    names = architecture_of(model).row.undecayed_layers
    return [
        variable
        for layer in model.layers
        if layer.name in names
        for variable in layer.trainable_variables
    ]


def matrix_weights(model) -> dict[str, int]:
    """The weights that an optimizer of matrices can update.

    These are the kernels of the tokenizer, the blocks and the heads. Tables of tokens
    and what pools them are none.

    Args:
        model: A model of this package.

    Returns:
        For the path of each weight, how many matrices stand in it side by side: 3 for
        the kernel that computes query, key and value, and else 1.

    Example:

    >>> model = cct_keras.create_model("cct_2_3x2_32")
    >>> matrices = matrix_weights(model)
    >>> len(matrices), matrices["block_0/attention/qkv/kernel"]
    (11, 3)
    """
    heads = [layer for layer in model.layers if layer.name in known_heads()]
    layers = [find_tokenizer(model), *encoder_blocks(model), *heads]
    return {
        variable.path: 3 if variable.path.endswith("/qkv/kernel") else 1
        for layer in layers
        for variable in layer.trainable_variables
        if len(variable.shape) > 1
    }


def _class_name(layer):
    """Name of a layer's class in this package, also for a subclass of it."""
    known = ("ConvTokenizer", "EncoderBlock", "ClassToken", "PositionEmbedding")
    known += ("RegisterTokens", "AttentionPool", "TokenPool")
    for kind in type(layer).__mro__:
        if kind.__name__ in known and kind.__module__.startswith("cct_keras."):
            return kind.__name__
    return type(layer).__name__
