"""Writes the golden outputs of ViT and DeiT with `transformers`; see README.md."""

import json
import pathlib
import sys

import torch
import transformers

FOLDER = pathlib.Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))
import reference  # noqa: E402

TINY = {"num_layers": 12, "embedding_dim": 192, "mlp_ratio": 4, "patch_size": 16}
SHORT = {"num_layers": 2, "embedding_dim": 192, "mlp_ratio": 4, "patch_size": 16}
# name: size, image, distilled, with a distillation head
CASES = {
    "vit_tiny_224": (TINY, (224, 224), False, False),
    "vit_patch32_96x160": (SHORT | {"patch_size": 32}, (96, 160), False, False),
    "vit_patch14_70x42": (SHORT | {"patch_size": 14}, (70, 42), False, False),
    "vit_384": (SHORT, (384, 384), False, False),
    "deit_tiny_distilled_224": (TINY, (224, 224), True, True),
    "deit_distilled_384": (SHORT, (384, 384), True, True),
    "deit_distilled_64x112": (SHORT, (64, 112), True, True),
    "deit_one_head_64": (SHORT, (64, 64), True, False),
}


def golden_case(name, size, image, distilled, second_head):
    options = {
        "hidden_size": size["embedding_dim"],
        "num_hidden_layers": size["num_layers"],
        "num_attention_heads": 3,
        "intermediate_size": size["embedding_dim"] * size["mlp_ratio"],
        "image_size": image,
        "patch_size": size["patch_size"],
        "num_labels": 10,
    }
    if not distilled:
        model = transformers.ViTForImageClassification(
            transformers.ViTConfig(**options)
        )
    else:
        kind = transformers.DeiTForImageClassification
        if second_head:
            kind = transformers.DeiTForImageClassificationWithTeacher
        model = kind(transformers.DeiTConfig(**options))
    patch = size["patch_size"]
    state = reference.random_vit_state(
        tokens=(image[0] // patch) * (image[1] // patch),
        distilled=distilled,
        distillation_head=second_head,
        **size,
    )
    state = reference.hugging_face_names(state)
    model.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
    images = reference.random_images(name, (1, *image, 3))
    with torch.no_grad():
        logits = model.eval()(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
    return {
        "name": name,
        "input_shape": [*image, 3],
        "distilled": distilled,
        "distillation_head": second_head,
        **size,
        "logits": logits.logits[0].tolist(),
    }


def main():
    rows = [golden_case(name, *case) for name, case in CASES.items()]
    lines = ",\n".join(json.dumps(row) for row in rows)
    (FOLDER / "vit.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
