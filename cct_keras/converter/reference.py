"""The original architecture in NumPy, from its description.

An independent truth: it shares no code with the layers, and works on the tensors
of a checkpoint as they stand there.
"""

import math

import numpy as np


def forward(
    state: dict,
    images: np.ndarray,
    *,
    num_heads: int,
    stride: int | None = None,
    padding: int | None = None,
    pool=(3, 2, 1),
) -> np.ndarray:
    """Logits of the original architecture.

    Args:
        state: Weights by their names in the official checkpoints.
        images: Array `(batch, height, width, channels)`.
        num_heads: Attention heads.
        stride: Stride of the convolutions, if not the default of the kernel.
        padding: Their padding, likewise.
        pool: Kernel, stride and padding of the max-pooling.

    Returns:
        Array `(batch, classes)`.
    """
    from scipy.special import erf
    from scipy.special import softmax

    patches = "tokenizer.conv_layers.0.0.bias" in state
    x = images.astype("float64")
    i = 0
    while f"tokenizer.conv_layers.{i}.0.weight" in state:
        kernel = np.asarray(state[f"tokenizer.conv_layers.{i}.0.weight"], "float64")
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
    weight = np.asarray(state[f"{name}.weight"], "float64")
    return x @ weight.T + state.get(f"{name}.bias", 0.0)


def _norm(x, state, name):
    x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-5)
    return x * state[f"{name}.weight"] + state[f"{name}.bias"]


def _attention(x, state, name, heads):
    from scipy.special import softmax

    batch, tokens, dim = x.shape
    qkv = _linear(x, state, f"{name}.qkv")
    qkv = qkv.reshape(batch, tokens, 3, heads, dim // heads)
    query, key, value = qkv.transpose(2, 0, 3, 1, 4)
    scores = query @ key.transpose(0, 1, 3, 2) / math.sqrt(dim // heads)
    x = (softmax(scores, axis=-1) @ value).transpose(0, 2, 1, 3)
    return _linear(x.reshape(batch, tokens, dim), state, f"{name}.proj")
