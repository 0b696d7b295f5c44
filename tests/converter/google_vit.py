"""Google's ViT in NumPy, with the arrays as their `.npz` files hold them."""

import math

import numpy as np
import reference
from scipy.special import erf
from scipy.special import softmax

BLOCK = "Transformer/encoderblock_{}/"
ATTENTION = BLOCK + "MultiHeadDotProductAttention_1/"


def random_arrays(
    *, dim=48, heads=4, layers=2, mlp=96, patch=4, tokens=16, classes=7, pre_logits=None
):
    """Arrays of a small model by Google's names, of the scale of trained ones."""
    head_dim = dim // heads
    read = pre_logits or dim
    shapes = {
        "cls": (1, 1, dim),
        "embedding/kernel": (patch, patch, 3, dim),
        "embedding/bias": (dim,),
        "Transformer/posembed_input/pos_embedding": (1, tokens + 1, dim),
        "Transformer/encoder_norm/scale": (dim,),
        "Transformer/encoder_norm/bias": (dim,),
        "head/kernel": (read, classes),
        "head/bias": (classes,),
    }
    if pre_logits:
        shapes |= {"pre_logits/kernel": (dim, read), "pre_logits/bias": (read,)}
    for i in range(layers):
        block, attention = BLOCK.format(i), ATTENTION.format(i)
        for norm in ("LayerNorm_0", "LayerNorm_2"):
            shapes[f"{block}{norm}/scale"] = shapes[f"{block}{norm}/bias"] = (dim,)
        for part in ("query", "key", "value"):
            shapes[f"{attention}{part}/kernel"] = (dim, heads, head_dim)
            shapes[f"{attention}{part}/bias"] = (heads, head_dim)
        shapes[f"{attention}out/kernel"] = (heads, head_dim, dim)
        shapes[f"{attention}out/bias"] = (dim,)
        shapes[f"{block}MlpBlock_3/Dense_0/kernel"] = (dim, mlp)
        shapes[f"{block}MlpBlock_3/Dense_0/bias"] = (mlp,)
        shapes[f"{block}MlpBlock_3/Dense_1/kernel"] = (mlp, dim)
        shapes[f"{block}MlpBlock_3/Dense_1/bias"] = (dim,)
    return {
        name: reference.random_tensor(name, shape) for name, shape in shapes.items()
    }


def logits(arrays, images):
    """The equations of the release, head by head."""
    a = {name: array.astype("float64") for name, array in arrays.items()}
    kernel = a["embedding/kernel"]
    patch = kernel.shape[0]
    batch, height, width, channels = images.shape
    x = images.reshape(batch, height // patch, patch, width // patch, patch, channels)
    x = np.einsum("bhiwjc,ijcd->bhwd", x, kernel) + a["embedding/bias"]
    x = x.reshape(batch, -1, x.shape[-1])
    x = np.concatenate([np.repeat(a["cls"], batch, axis=0), x], axis=1)
    x = x + a["Transformer/posembed_input/pos_embedding"]
    i = 0
    while BLOCK.format(i) + "LayerNorm_0/scale" in a:
        block, attention = BLOCK.format(i), ATTENTION.format(i)
        y = norm(x, a, f"{block}LayerNorm_0")
        query, key, value = (
            np.einsum("btd,dhk->bhtk", y, a[f"{attention}{part}/kernel"])
            + a[f"{attention}{part}/bias"][:, None]
            for part in ("query", "key", "value")
        )
        scores = np.einsum("bhqk,bhtk->bhqt", query, key) / math.sqrt(key.shape[-1])
        y = np.einsum("bhqt,bhtk->bqhk", softmax(scores, axis=-1), value)
        y = np.einsum("bqhk,hkd->bqd", y, a[f"{attention}out/kernel"])
        x = x + y + a[f"{attention}out/bias"]
        y = norm(x, a, f"{block}LayerNorm_2")
        y = y @ a[f"{block}MlpBlock_3/Dense_0/kernel"]
        y = y + a[f"{block}MlpBlock_3/Dense_0/bias"]
        y = 0.5 * y * (1 + erf(y / math.sqrt(2)))
        y = y @ a[f"{block}MlpBlock_3/Dense_1/kernel"]
        x = x + y + a[f"{block}MlpBlock_3/Dense_1/bias"]
        i += 1
    x = norm(x, a, "Transformer/encoder_norm")[:, 0]
    if "pre_logits/kernel" in a:
        x = np.tanh(x @ a["pre_logits/kernel"] + a["pre_logits/bias"])
    return x @ a["head/kernel"] + a["head/bias"]


def norm(x, arrays, name):
    x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6)
    return x * arrays[f"{name}/scale"] + arrays[f"{name}/bias"]
