"""Weights of the original architecture.

`random_state` makes the weights that the golden outputs were made with, by
their names in the official PyTorch checkpoints; `assign` puts them into a Keras
model, by hand and not by the converter.
"""

import math
import zlib

import numpy as np


def random_tensor(name: str, shape: tuple) -> np.ndarray:
    """Normal numbers of trained scale, 0.05, the same for a name everywhere.

    The generator is `np.random.default_rng(crc32(name))`. Norm weights and the factors
    of branches are 1 plus such numbers.
    """
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    values = 0.05 * rng.standard_normal(shape)
    is_norm = ("norm" in name or "ln_" in name) and name.endswith(".weight")
    if is_norm or name.endswith((".lambda1", ".gamma")):
        values += 1.0
    return np.asarray(values, "float32")


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


def random_vit_state(
    *,
    tokens,
    num_classes=10,
    channels=3,
    num_layers,
    embedding_dim,
    mlp_ratio,
    patch_size,
    distilled=False,
    distillation_head=True,
) -> dict[str, np.ndarray]:
    """A state dict of a ViT or DeiT by timm's names."""
    dim, hidden = embedding_dim, int(embedding_dim * mlp_ratio)
    layers = {
        "patch_embed.proj": (dim, channels, patch_size, patch_size),
        "norm": (dim,),
        "head": (num_classes, dim),
    }
    shapes = {"cls_token": (1, 1, dim), "pos_embed": (1, tokens + 1 + distilled, dim)}
    if distilled:
        shapes["dist_token"] = (1, 1, dim)
        if distillation_head:
            layers["head_dist"] = (num_classes, dim)
    for j in range(num_layers):
        layers |= {
            f"blocks.{j}.norm1": (dim,),
            f"blocks.{j}.attn.qkv": (3 * dim, dim),
            f"blocks.{j}.attn.proj": (dim, dim),
            f"blocks.{j}.norm2": (dim,),
            f"blocks.{j}.mlp.fc1": (hidden, dim),
            f"blocks.{j}.mlp.fc2": (dim, hidden),
        }
    for name, shape in layers.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return {name: random_tensor(name, shape) for name, shape in shapes.items()}


def hugging_face_names(state: dict, old: bool = False) -> dict:
    """The names of `transformers`, of version 5 or as files on the hub have them."""
    family = "deit" if "dist_token" in state else "vit"
    heads = {"head": "cls_classifier" if "head_dist.weight" in state else "classifier"}
    heads["head_dist"] = "distillation_classifier"
    layer = "encoder.layer" if old else "layers"
    parts = ("query", "key", "value") if old else ("q_proj", "k_proj", "v_proj")
    inside = {
        "norm1": "layernorm_before",
        "norm2": "layernorm_after",
        "attn.proj": "attention.output.dense" if old else "attention.o_proj",
        "mlp.fc1": "intermediate.dense" if old else "mlp.fc1",
        "mlp.fc2": "output.dense" if old else "mlp.fc2",
    }
    whole = {
        "cls_token": "embeddings.cls_token",
        "dist_token": "embeddings.distillation_token",
        "pos_embed": "embeddings.position_embeddings",
    }
    renamed = {}
    for name, array in state.items():
        stem, _, leaf = name.rpartition(".")
        if name in whole:
            renamed[f"{family}.{whole[name]}"] = array
        elif stem in heads:
            renamed[f"{heads[stem]}.{leaf}"] = array
        elif stem == "patch_embed.proj":
            place = "embeddings.patch_embeddings.projection"
            renamed[f"{family}.{place}.{leaf}"] = array
        elif stem == "norm":
            renamed[f"{family}.layernorm.{leaf}"] = array
        else:
            _, number, kind = stem.split(".", 2)
            block = f"{family}.{layer}.{number}"
            if kind == "attn.qkv":
                middle = "attention.attention" if old else "attention"
                for part, value in zip(parts, np.split(array, 3), strict=True):
                    renamed[f"{block}.{middle}.{part}.{leaf}"] = value
            else:
                renamed[f"{block}.{inside[kind]}.{leaf}"] = array
    return renamed


def sinusoid(length: int, dim: int) -> np.ndarray:
    table = np.zeros((1, length, dim), "float32")
    for position in range(length):
        for channel in range(dim):
            angle = np.float32(position / 10000 ** (2 * (channel // 2) / dim))
            function = math.cos if channel % 2 else math.sin
            table[0, position, channel] = function(angle)
    return table


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


# One block on 8x8 images: a checkpoint of a few kilobytes.
TINY = {
    "tokens": 16,
    "num_classes": 3,
    "num_layers": 1,
    "embedding_dim": 8,
    "mlp_ratio": 1,
    "kernel_size": 3,
}


def mirror_names(state: dict) -> dict:
    """The names of the Hugging Face mirror."""
    renamed = {}
    for name, array in state.items():
        if name.startswith("tokenizer.conv_layers."):
            stage = int(name.split(".")[2])
            name = f"cct.embedder.embedding_layers.{3 * stage}.weight"
        elif name.startswith("classifier.fc."):
            name = name.replace("classifier.fc.", "classifier.")
        else:
            name = name.replace("classifier.", "cct.encoder.", 1)
        renamed[name] = array
    return renamed
