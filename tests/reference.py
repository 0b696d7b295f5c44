"""The original architecture in NumPy, from its description: an independent truth.

`random_state` makes the weights that the golden outputs were made with, by
their names in the official PyTorch checkpoints; `forward` computes the logits
in float64; `assign` puts the weights into a Keras model.
"""

import math
import zlib

import numpy as np
from scipy.special import erf
from scipy.special import softmax


def random_tensor(name: str, shape: tuple) -> np.ndarray:
    """Normal numbers of trained scale, 0.05, the same for a name everywhere.

    The generator is `np.random.default_rng(crc32(name))`. Norm weights are 1
    plus such numbers.
    """
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    values = 0.05 * rng.standard_normal(shape)
    if "norm" in name and name.endswith(".weight"):
        values += 1.0
    return values.astype("float32")


def random_images(name: str, shape: tuple) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return rng.standard_normal(shape).astype("float32")


def random_state(
    *,
    family="CCT",
    tokens,
    num_classes=10,
    channels=3,
    num_layers,
    embedding_dim,
    mlp_ratio,
    kernel_size,
    num_conv_layers=1,
    positional_embedding="learnable",
) -> dict[str, np.ndarray]:
    """A state dict with the names and shapes of the original classes."""
    dim, hidden = embedding_dim, int(embedding_dim * mlp_ratio)
    widths = [channels, *[64] * (num_conv_layers - 1), dim]
    shapes = {}
    for i in range(num_conv_layers):
        conv = f"tokenizer.conv_layers.{i}.0"
        shapes[f"{conv}.weight"] = (widths[i + 1], widths[i], kernel_size, kernel_size)
        if family != "CCT":
            shapes[f"{conv}.bias"] = (dim,)
    if family == "ViTLite":
        tokens += 1
        shapes["classifier.class_emb"] = (1, 1, dim)
    else:
        shapes["classifier.attention_pool.weight"] = (1, dim)
        shapes["classifier.attention_pool.bias"] = (1,)
    if positional_embedding is not None:
        shapes["classifier.positional_emb"] = (1, tokens, dim)
    for j in range(num_layers):
        block = f"classifier.blocks.{j}"
        shapes |= {
            f"{block}.pre_norm.weight": (dim,),
            f"{block}.pre_norm.bias": (dim,),
            f"{block}.self_attn.qkv.weight": (3 * dim, dim),
            f"{block}.self_attn.proj.weight": (dim, dim),
            f"{block}.self_attn.proj.bias": (dim,),
            f"{block}.linear1.weight": (hidden, dim),
            f"{block}.linear1.bias": (hidden,),
            f"{block}.norm1.weight": (dim,),
            f"{block}.norm1.bias": (dim,),
            f"{block}.linear2.weight": (dim, hidden),
            f"{block}.linear2.bias": (dim,),
        }
    shapes |= {
        "classifier.norm.weight": (dim,),
        "classifier.norm.bias": (dim,),
        "classifier.fc.weight": (num_classes, dim),
        "classifier.fc.bias": (num_classes,),
    }
    state = {name: random_tensor(name, shape) for name, shape in shapes.items()}
    if positional_embedding == "sine":
        state["classifier.positional_emb"] = sinusoid(tokens, dim)
    return state


def sinusoid(length: int, dim: int) -> np.ndarray:
    table = np.zeros((1, length, dim), "float32")
    for position in range(length):
        for channel in range(dim):
            angle = np.float32(position / 10000 ** (2 * (channel // 2) / dim))
            function = math.cos if channel % 2 else math.sin
            table[0, position, channel] = function(angle)
    return table


def forward(
    state: dict,
    images: np.ndarray,
    *,
    num_heads: int,
    stride: int | None = None,
    padding: int | None = None,
    pool=(3, 2, 1),
) -> np.ndarray:
    """Logits of images `(batch, height, width, channels)`."""
    state = {name: np.asarray(value, "float64") for name, value in state.items()}
    patches = "tokenizer.conv_layers.0.0.bias" in state
    x = images.astype("float64")
    i = 0
    while f"tokenizer.conv_layers.{i}.0.weight" in state:
        kernel = state[f"tokenizer.conv_layers.{i}.0.weight"]
        k = kernel.shape[-1]
        if patches:
            x = _windows(x, k, k, 0, 0.0)
            x = np.einsum("bhwcij,ocij->bhwo", x, kernel, optimize=True)
            x = x + state["tokenizer.conv_layers.0.0.bias"]
        else:
            s = max(1, k // 2 - 1) if stride is None else stride
            p = max(1, k // 2) if padding is None else padding
            x = _windows(x, k, s, p, 0.0)
            x = np.einsum("bhwcij,ocij->bhwo", x, kernel, optimize=True)
            x = _windows(np.maximum(x, 0.0), *pool, -np.inf).max(axis=(-1, -2))
        i += 1
    x = x.reshape(len(x), -1, x.shape[-1])

    if "classifier.class_emb" in state:
        token = np.repeat(state["classifier.class_emb"], len(x), axis=0)
        x = np.concatenate([token, x], axis=1)
    x = x + state.get("classifier.positional_emb", 0.0)
    j = 0
    while f"classifier.blocks.{j}.norm1.weight" in state:
        block = f"classifier.blocks.{j}"
        y = _norm(x, state, f"{block}.pre_norm")
        x = x + _attention(y, state, f"{block}.self_attn", num_heads)
        x = _norm(x, state, f"{block}.norm1")
        y = _linear(x, state, f"{block}.linear1")
        y = 0.5 * y * (1.0 + erf(y / math.sqrt(2.0)))
        x = x + _linear(y, state, f"{block}.linear2")
        j += 1
    x = _norm(x, state, "classifier.norm")

    if "classifier.class_emb" in state:
        x = x[:, 0]
    else:
        weights = softmax(_linear(x, state, "classifier.attention_pool"), axis=1)
        x = (weights * x).sum(axis=1)
    return _linear(x, state, "classifier.fc")


def _windows(x, size, stride, padding, fill):
    width = [(0, 0), (padding, padding), (padding, padding), (0, 0)]
    x = np.pad(x, width, constant_values=fill)
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(1, 2))
    return windows[:, ::stride, ::stride]


def _linear(x, state, name):
    return x @ state[f"{name}.weight"].T + state.get(f"{name}.bias", 0.0)


def _norm(x, state, name):
    x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-5)
    return x * state[f"{name}.weight"] + state[f"{name}.bias"]


def _attention(x, state, name, heads):
    batch, tokens, dim = x.shape
    qkv = _linear(x, state, f"{name}.qkv")
    qkv = qkv.reshape(batch, tokens, 3, heads, dim // heads)
    query, key, value = qkv.transpose(2, 0, 3, 1, 4)
    scores = query @ key.transpose(0, 1, 3, 2) / math.sqrt(dim // heads)
    x = (softmax(scores, axis=-1) @ value).transpose(0, 2, 1, 3)
    return _linear(x.reshape(batch, tokens, dim), state, f"{name}.proj")


def assign(model, state: dict) -> None:
    """Fills a Keras model with a state dict, all of it."""
    rest = dict(state)

    def take(name):
        return rest.pop(name)

    def fill_linear(layer, name):
        layer.kernel.assign(take(f"{name}.weight").T)
        if layer.use_bias:
            layer.bias.assign(take(f"{name}.bias"))

    def fill_norm(layer, name):
        layer.gamma.assign(take(f"{name}.weight"))
        layer.beta.assign(take(f"{name}.bias"))

    layers = {layer.name: layer for layer in model.layers}
    for i, conv in enumerate(layers["tokenizer"].convs):
        kernel = take(f"tokenizer.conv_layers.{i}.0.weight")
        conv.kernel.assign(kernel.transpose(2, 3, 1, 0))
        if conv.use_bias:
            conv.bias.assign(take(f"tokenizer.conv_layers.{i}.0.bias"))
    if "class_token" in layers:
        layers["class_token"].token.assign(take("classifier.class_emb"))
    else:
        fill_linear(layers["pool"].attention, "classifier.attention_pool")
    if "position_embedding" in layers:
        table = take("classifier.positional_emb")
        layers["position_embedding"].embeddings.assign(table)
    j = 0
    while f"block_{j}" in layers:
        block, name = layers[f"block_{j}"], f"classifier.blocks.{j}"
        fill_norm(block.norm1, f"{name}.pre_norm")
        fill_linear(block.attention.qkv, f"{name}.self_attn.qkv")
        fill_linear(block.attention.proj, f"{name}.self_attn.proj")
        fill_norm(block.norm2, f"{name}.norm1")
        fill_linear(block.feed_forward.linear1, f"{name}.linear1")
        fill_linear(block.feed_forward.linear2, f"{name}.linear2")
        j += 1
    fill_norm(layers["norm"], "classifier.norm")
    fill_linear(layers["head"], "classifier.fc")
    assert not rest, f"not assigned: {sorted(rest)}"
