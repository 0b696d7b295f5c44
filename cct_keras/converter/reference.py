"""The original architectures in NumPy, from their description.

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
    epsilon: float = 1e-5,
    activation: str = "gelu",
    top_pooling: str = "token",
) -> np.ndarray:
    """Logits of the original architecture, or tokens if it has no head.

    Args:
        state: Weights by their names in the official checkpoints, or by timm's.
        images: Array `(batch, height, width, channels)`.
        num_heads: Attention heads.
        stride: Stride of the convolutions, if not the default of the kernel.
        padding: Their padding, likewise.
        pool: Kernel, stride and padding of the max-pooling.
        epsilon: Epsilon of the normalizations.
        activation: Activation of the feed-forward layers.
        top_pooling: What the head of a ViT reads.

    Returns:
        Array `(batch, classes)`; of a state without a head the normalized tokens,
        `(batch, tokens, dim)`, or one vector an image if it says how to pool them.
    """
    from scipy.special import softmax

    if "patch_embed.proj.weight" in state:
        return _forward_vit(state, images, num_heads, epsilon, activation, top_pooling)
    patches = "tokenizer.conv_layers.0.0.bias" in state
    x = images.astype("float64")
    i = 0
    while f"tokenizer.conv_layers.{i}.0.weight" in state:
        kernel = np.asarray(state[f"tokenizer.conv_layers.{i}.0.weight"], "float64")
        k = kernel.shape[-1]
        if patches:
            x = _patches(x, state, "tokenizer.conv_layers.0.0")
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
        y = _norm(x, state, f"{block}.pre_norm", epsilon)
        x = x + _attention(y, state, f"{block}.self_attn", num_heads)
        x = _norm(x, state, f"{block}.norm1", epsilon)
        y = ACTIVATIONS[activation](_linear(x, state, f"{block}.linear1"))
        x = x + _linear(y, state, f"{block}.linear2")
        j += 1
    x = _norm(x, state, "classifier.norm", epsilon)
    if "classifier.fc.weight" not in state:
        return x

    if "classifier.class_emb" in state:
        x = x[:, 0]
    else:
        weights = softmax(_linear(x, state, "classifier.attention_pool"), axis=1)
        x = (weights * x).sum(axis=1)
    return _linear(x, state, "classifier.fc")


def _forward_vit(state, images, num_heads, epsilon, activation, top_pooling):
    """The textbook order, by timm's names; two heads are averaged."""
    x = _patches(images.astype("float64"), state, "patch_embed.proj")
    x = x.reshape(len(x), -1, x.shape[-1])
    positions = state.get("pos_embed", np.zeros((1, 0, 1)))

    def before(x, names):
        tokens = [np.repeat(state[n], len(x), axis=0) for n in names if n in state]
        return np.concatenate([*tokens, x], axis=1)

    if positions.shape[1] == x.shape[1]:
        x = before(x + positions, ("cls_token", "reg_token"))
    else:
        prefix = before(x[:, :0], ("cls_token", "dist_token"))
        x = np.concatenate([prefix, x], axis=1)
        x = x + positions if positions.shape[1] else x
        n = prefix.shape[1]
        x = np.concatenate([x[:, :n], before(x[:, n:], ("reg_token",))], axis=1)
    prefix = x.shape[1] - _count_patches(state, images)
    if "norm_pre.weight" in state:
        x = _norm(x, state, "norm_pre", epsilon)
    j = 0
    while f"blocks.{j}.norm1.weight" in state:
        block = f"blocks.{j}"
        y = _norm(x, state, f"{block}.norm1", epsilon)
        y = _attention(y, state, f"{block}.attn", num_heads)
        x = x + y * state.get(f"{block}.ls1.gamma", 1.0)
        y = _norm(x, state, f"{block}.norm2", epsilon)
        y = _mlp(y, state, f"{block}.mlp", activation)
        x = x + y * state.get(f"{block}.ls2.gamma", 1.0)
        j += 1
    if "norm.weight" in state:
        x = _norm(x, state, "norm", epsilon)
    headless = "head.weight" not in state
    if headless and "projection.weight" not in state and top_pooling != "map":
        return x
    image_tokens = x[:, prefix:]
    if top_pooling == "map":
        read = _attention_pool(image_tokens, state, num_heads, epsilon, activation)
    else:
        read = {
            "token": x[:, 0],
            "avg": image_tokens.mean(axis=1),
            "token_avg": np.concatenate([x[:, 0], image_tokens.mean(axis=1)], axis=1),
        }[top_pooling]
    if "fc_norm.weight" in state:
        read = _norm(read, state, "fc_norm", epsilon)
    if headless:
        if "projection.weight" in state:
            read = _linear(read, state, "projection")
        return read
    if "pre_logits.fc.weight" in state:
        read = np.tanh(_linear(read, state, "pre_logits.fc"))
    logits = _linear(read, state, "head")
    if "head_dist.weight" in state:
        logits = (logits + _linear(x[:, 1], state, "head_dist")) / 2
    return logits


def _count_patches(state, images):
    side = state["patch_embed.proj.weight"].shape[-1]
    return (images.shape[1] // side) * (images.shape[2] // side)


def _mlp(x, state, name, activation):
    return _linear(
        ACTIVATIONS[activation](_linear(x, state, f"{name}.fc1")), state, f"{name}.fc2"
    )


def _attention_pool(x, state, heads, epsilon, activation):
    from scipy.special import softmax

    batch, tokens, dim = x.shape
    query = _linear(state["attn_pool.latent"], state, "attn_pool.q")
    query = query.reshape(1, 1, heads, dim // heads).transpose(0, 2, 1, 3)
    kv = _linear(x, state, "attn_pool.kv").reshape(batch, tokens, 2, heads, -1)
    key, value = kv.transpose(2, 0, 3, 1, 4)
    scores = query @ key.transpose(0, 1, 3, 2) / math.sqrt(dim // heads)
    x = (softmax(scores, axis=-1) @ value).transpose(0, 2, 1, 3).reshape(batch, dim)
    x = _linear(x, state, "attn_pool.proj")
    y = _norm(x, state, "attn_pool.norm", epsilon)
    return x + _mlp(y, state, "attn_pool.mlp", activation)


def _patches(x, state, name):
    kernel = np.asarray(state[f"{name}.weight"], "float64")
    x = _windows(x, kernel.shape[-1], kernel.shape[-1], 0, 0.0)
    x = np.einsum("bhwcij,ocij->bhwo", x, kernel, optimize=True)
    return x + state.get(f"{name}.bias", 0.0)


def _gelu(x):
    from scipy.special import erf

    return 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))


def _gelu_tanh(x):
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _relu(x):
    return np.maximum(x, 0.0)


def _quick_gelu(x):
    return x / (1.0 + np.exp(-1.702 * x))


def _swiglu(x):
    gate, values = np.split(x, 2, axis=-1)
    return gate / (1.0 + np.exp(-gate)) * values


ACTIVATIONS = {
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "relu": _relu,
    "quick_gelu": _quick_gelu,
    "swiglu": _swiglu,
}


def _windows(x, size, stride, padding, fill):
    width = [(0, 0), (padding, padding), (padding, padding), (0, 0)]
    x = np.pad(x, width, constant_values=fill)
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(1, 2))
    return windows[:, ::stride, ::stride]


def _linear(x, state, name):
    weight = np.asarray(state[f"{name}.weight"], "float64")
    return x @ weight.T + state.get(f"{name}.bias", 0.0)


def _norm(x, state, name, epsilon):
    x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + epsilon)
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
