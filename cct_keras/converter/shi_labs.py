"""The official Compact-Transformers checkpoints, and a mirror that renames them."""

import re

import numpy as np

from cct_keras.converter.name_table import NameTable
from cct_keras.errors import CheckpointError

TABLE = NameTable(
    layers=(
        ("tokenizer/conv_{i}", "tokenizer.conv_layers.{i}.0"),
        ("block_{i}/norm1", "classifier.blocks.{i}.pre_norm"),
        ("block_{i}/attention/qkv", "classifier.blocks.{i}.self_attn.qkv"),
        ("block_{i}/attention/proj", "classifier.blocks.{i}.self_attn.proj"),
        ("block_{i}/norm2", "classifier.blocks.{i}.norm1"),
        ("block_{i}/feed_forward/linear1", "classifier.blocks.{i}.linear1"),
        ("block_{i}/feed_forward/linear2", "classifier.blocks.{i}.linear2"),
        ("norm", "classifier.norm"),
        ("pool/attention", "classifier.attention_pool"),
        ("head", "classifier.fc"),
    ),
    tensors={
        "position_embedding/embeddings": "classifier.positional_emb",
        "class_token/token": "classifier.class_emb",
    },
    block_order="replacing",
    description="a compact transformer",
)

# Names of the Hugging Face mirror; its convolutions count three modules a stage.
MIRRORED_CONVOLUTION = re.compile(r"cct\.embedder\.embedding_layers\.(\d{1,4})\.(.+)")
MIRRORED = (
    (r"^classifier\.(weight|bias)$", r"classifier.fc.\1"),
    (r"^cct\.encoder\.", "classifier."),
)


def is_mirror(state: dict[str, np.ndarray]) -> bool:
    """Whether the names are the mirror's."""
    return any(name.startswith("cct.embedder.") for name in state)


def original_names(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The mirror's tensors by the names of the original."""
    renamed = {_original_name(name): array for name, array in state.items()}
    if len(renamed) != len(state):
        raise CheckpointError("two of its names stand for the same tensor")
    return renamed


def _original_name(name):
    convolution = MIRRORED_CONVOLUTION.fullmatch(name)
    if convolution:
        stage, rest = divmod(int(convolution[1]), 3)
        if rest:
            raise CheckpointError(f"left over: {name}")
        return f"tokenizer.conv_layers.{stage}.0.{convolution[2]}"
    for pattern, replacement in MIRRORED:
        name, count = re.subn(pattern, replacement, name)
        if count:
            return name
    return name
