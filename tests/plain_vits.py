"""Golden cases of plain ViTs: what `transformers` and the authors' classes compute."""

import json
import pathlib
import re

import numpy as np
import reference

GOLDEN = pathlib.Path(__file__).parent / "golden"
HUGGING_FACE = json.loads((GOLDEN / "plain_vits.json").read_text())
ORIGINAL = json.loads((GOLDEN / "plain_vits_original.json").read_text())


def state_of(case):
    state = {
        name: reference.random_tensor(name, tuple(shape))
        for name, shape in case["shapes"].items()
    }
    if case["name"] == "timm_clip":
        # timm adds it to the projection of CLIP, which has none.
        state["head.bias"] = np.zeros_like(state["head.bias"])
    return state


LONG_NAMES = {"q": "query", "k": "key", "v": "value"}


def as_version_4(state):
    """The names as files on the hub have them."""
    renamed = {}
    for name, array in state.items():
        if name.startswith("layers."):
            name = name.replace("layers.", "encoder.layer.")
            name = name.replace("mlp.fc1", "intermediate.dense")
            name = name.replace("mlp.fc2", "output.dense")
        name = re.sub(
            r"attention\.([qkv])_proj",
            lambda match: f"attention.attention.{LONG_NAMES[match[1]]}",
            name,
        )
        name = name.replace("attention.o_proj", "attention.output.dense")
        name = name.replace("mlp.down_proj", "mlp.weights_out")
        renamed[name] = array
    for name in [x for x in renamed if "gate_proj" in x]:
        parts = [renamed.pop(name), renamed.pop(name.replace("gate", "up"))]
        renamed[name.replace("gate_proj", "weights_in")] = np.concatenate(parts)
    positions = renamed.get("embeddings.position_embedding.weight")
    if positions is not None:
        # Towers by themselves were wrapped, and counted their positions.
        renamed["embeddings.position_ids"] = np.arange(len(positions))[None]
        renamed = {f"vision_model.{name}": array for name, array in renamed.items()}
    return renamed
