"""Google's ViT releases (`.npz` files of `vision_transformer`), in timm's names.

Those of the paper, and those of "How to train your ViT?". Kernels are stored as flax
has them: `(inputs, outputs)`, and for attention `(dim, heads, head dim)`.
"""

import numpy as np

from cct_keras.converter.timm import check_has
from cct_keras.errors import CheckpointError

BLOCK = "Transformer/encoderblock_"
ATTENTION = "MultiHeadDotProductAttention_1"
PLAIN = {
    "cls": "cls_token",
    "Transformer/posembed_input/pos_embedding": "pos_embed",
    "embedding/bias": "patch_embed.proj.bias",
    "Transformer/encoder_norm/scale": "norm.weight",
    "Transformer/encoder_norm/bias": "norm.bias",
    "head/bias": "head.bias",
    "pre_logits/bias": "pre_logits.fc.bias",
}
KERNELS = {
    "head/kernel": "head.weight",
    "pre_logits/kernel": "pre_logits.fc.weight",
}
# Below a block; kernels are transposed.
IN_BLOCK = {
    "LayerNorm_0/scale": "norm1.weight",
    "LayerNorm_0/bias": "norm1.bias",
    "LayerNorm_2/scale": "norm2.weight",
    "LayerNorm_2/bias": "norm2.bias",
    "MlpBlock_3/Dense_0/kernel": "mlp.fc1.weight",
    "MlpBlock_3/Dense_0/bias": "mlp.fc1.bias",
    "MlpBlock_3/Dense_1/kernel": "mlp.fc2.weight",
    "MlpBlock_3/Dense_1/bias": "mlp.fc2.bias",
}
QKV = ("query", "key", "value")


def is_google(state: dict[str, np.ndarray]) -> bool:
    """Whether the names are those of Google's releases."""
    return "Transformer/encoder_norm/scale" in state and "embedding/kernel" in state


def timm_names(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same tensors by timm's names, in torch's layout."""
    if any(name.startswith("conv_root") for name in state):
        raise CheckpointError(
            "a hybrid of ResNet and ViT (R50+ViT), whose convolutions this package "
            "does not have"
        )
    state, renamed = dict(state), {}
    for ours, theirs in PLAIN.items():
        if ours in state:
            renamed[theirs] = state.pop(ours)
    for ours, theirs in KERNELS.items():
        if ours in state:
            renamed[theirs] = _rank(state.pop(ours), 2, ours).T
    kernel = _rank(state.pop("embedding/kernel"), 4, "embedding/kernel")
    renamed["patch_embed.proj.weight"] = kernel.transpose(3, 2, 0, 1)
    index = 0
    while f"{BLOCK}{index}/LayerNorm_0/scale" in state:
        renamed |= _block(state, f"{BLOCK}{index}/", f"blocks.{index}.")
        index += 1
    check_has(renamed, "pos_embed", "cls_token")
    return renamed | state


def arguments(state: dict[str, np.ndarray]) -> dict[str, object]:
    """Constructor arguments that the shapes or the origin tell."""
    found = {"position_interpolation": "bilinear_corners"}
    name = f"{BLOCK}0/{ATTENTION}/query/kernel"
    if name in state:
        found["num_heads"] = _rank(state[name], 3, name).shape[1]
    return found


def _block(state, ours, theirs):
    renamed = {}
    for name, new in IN_BLOCK.items():
        if ours + name in state:
            array = state.pop(ours + name)
            kernel = name.endswith("kernel")
            renamed[theirs + new] = _rank(array, 2, ours + name).T if kernel else array
    attention = f"{ours}{ATTENTION}/"
    kernels, biases = [], []
    for part in QKV:
        kernel = _take(state, f"{attention}{part}/kernel", 3)
        kernels.append(kernel.reshape(len(kernel), -1).T)
        biases.append(_take(state, f"{attention}{part}/bias", 2).reshape(-1))
    if len({kernel.shape[1] for kernel in kernels}) > 1:
        raise CheckpointError(f"{attention} has kernels of different widths")
    out = _take(state, f"{attention}out/kernel", 3)
    renamed |= {
        f"{theirs}attn.qkv.weight": np.concatenate(kernels),
        f"{theirs}attn.qkv.bias": np.concatenate(biases),
        f"{theirs}attn.proj.weight": out.reshape(-1, out.shape[-1]).T,
        f"{theirs}attn.proj.bias": _take(state, f"{attention}out/bias", 1),
    }
    return renamed


def _take(state, name, rank):
    if name not in state:
        raise CheckpointError(f"missing: {name}")
    return _rank(state.pop(name), rank, name)


def _rank(array, rank, name):
    if array.ndim != rank or 0 in array.shape:
        raise CheckpointError(f"{name} has the impossible shape {array.shape}")
    return array
