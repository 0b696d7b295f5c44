"""Files that are read, and state dicts of every table of names, to mutate."""

import functools
import json
import math
import pathlib

import file_writers
import google_vit
import numpy as np
import reference

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
PLAIN_VITS = ("plain_vits.json", "plain_vits_original.json", "bodies.json")
FOLDERS = ("checkpoints", "training_files")
WRITERS = (
    file_writers.as_torch_zip,
    file_writers.as_legacy,
    file_writers.as_safetensors,
    file_writers.as_npz,
)
# What a file of our own says of its architecture.
RECORD = {
    "family": "CCT",
    "arguments": {
        "num_classes": 3,
        "num_layers": 1,
        "num_heads": 2,
        "mlp_ratio": 1,
        "embedding_dim": 8,
        "positional_embedding": "learnable",
        "kernel_size": 3,
        "num_conv_layers": 1,
        "stride": 1,
        "padding": 1,
        "pooling_kernel_size": 3,
        "pooling_stride": 2,
        "pooling_padding": 1,
        "input_shape": [8, 8, 3],
    },
    "grid": [4, 4],
}


@functools.cache
def stored_files() -> dict[str, bytes]:
    """The small files that torch wrote."""
    return {
        f"{folder}/{path.name}": path.read_bytes()
        for folder in FOLDERS
        for path in sorted((GOLDEN / folder).iterdir())
    }


@functools.cache
def shapes() -> dict[str, dict[str, tuple]]:
    """The names and shapes of a state dict of each kind and layout."""
    cases = [
        (f"{file.removesuffix('.json')}/{case['name']}", case["shapes"])
        for file in PLAIN_VITS
        for case in json.loads((GOLDEN / file).read_text())
    ]
    found = {name: {k: tuple(v) for k, v in rows.items()} for name, rows in cases}
    cct = reference.random_state(**reference.TINY)
    two_stages = {**reference.TINY, "num_conv_layers": 2, "embedding_dim": 64}
    deit = reference.random_vit_state(
        tokens=4,
        num_classes=3,
        num_layers=2,
        embedding_dim=16,
        mlp_ratio=2,
        patch_size=4,
        distilled=True,
    )
    for name, state in {
        "cct": cct,
        "cct_two_stages": reference.random_state(**two_stages),
        "cvt": reference.random_state(**{**reference.TINY, "family": "CVT"}),
        "vit_lite": reference.random_state(**{**reference.TINY, "family": "ViTLite"}),
        "deit": deit,
        "deit_hugging_face": reference.hugging_face_names(deit),
        "deit_hugging_face_old": reference.hugging_face_names(deit, old=True),
        "mirror": reference.mirror_names(cct),
        "google": google_vit.random_arrays(dim=16, heads=2, mlp=16),
        "google_21k": google_vit.random_arrays(dim=16, heads=2, mlp=16, pre_logits=8),
    }.items():
        found[name] = {key: array.shape for key, array in state.items()}
    return found


@functools.cache
def names() -> tuple[str, ...]:
    """Every name of a tensor that any table knows."""
    return tuple(dict.fromkeys(name for rows in shapes().values() for name in rows))


@functools.cache
def _noise():
    return (0.05 * np.random.default_rng(0).standard_normal(2**16)).astype("float32")


def state_of(name: str) -> dict[str, np.ndarray]:
    """A state dict, whose values are the same small numbers in every tensor."""
    return {
        key: np.resize(_noise(), math.prod(shape)).reshape(shape)
        for key, shape in shapes()[name].items()
    }
