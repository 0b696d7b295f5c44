"""Writes golden tokens of bodies with `transformers`; see README.md."""

import json
import pathlib
import sys

import torch
import transformers

FOLDER = pathlib.Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))
import reference  # noqa: E402

SIZE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": (24, 32),
    "patch_size": 8,
}
DECODER = {
    "mask_ratio": 0.0,
    "decoder_hidden_size": 16,
    "decoder_num_attention_heads": 2,
    "decoder_num_hidden_layers": 1,
    "decoder_intermediate_size": 32,
}


def tokens_of_mae(model, images):
    """Nothing is masked, and the noise keeps the patches in their order."""
    order = torch.arange(16.0)[None]
    return model.vit(images, noise=order).last_hidden_state


def tokens_of(model, images):
    return model(images).last_hidden_state


MODELS = {
    "vit_body": (
        lambda: transformers.ViTModel(transformers.ViTConfig(**SIZE)),
        tokens_of,
    ),
    "vit_body_mask_token": (
        lambda: transformers.ViTModel(
            transformers.ViTConfig(**SIZE), use_mask_token=True
        ),
        tokens_of,
    ),
    "deit_body": (
        lambda: transformers.DeiTModel(transformers.DeiTConfig(**SIZE)),
        tokens_of,
    ),
    "mae": (
        lambda: transformers.ViTMAEForPreTraining(
            transformers.ViTMAEConfig(**SIZE | {"image_size": 32}, **DECODER)
        ),
        tokens_of_mae,
    ),
}


def golden_case(name, make, run):
    model = make().eval()
    shapes = {key: tuple(x.shape) for key, x in model.state_dict().items()}
    model.load_state_dict(
        {
            key: torch.from_numpy(reference.random_tensor(key, shape))
            for key, shape in shapes.items()
        }
    )
    size = (32, 32) if name == "mae" else SIZE["image_size"]
    images = reference.random_images(name, (1, *size, 3))
    with torch.no_grad():
        tokens = run(model, torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
    return {
        "name": name,
        "input_shape": [*size, 3],
        "num_heads": SIZE["num_attention_heads"],
        "shapes": shapes,
        "tokens": [[float(f"{x:.8g}") for x in row] for row in tokens[0].tolist()],
    }


def main():
    rows = [golden_case(name, *model) for name, model in MODELS.items()]
    lines = ",\n".join(json.dumps(row) for row in rows)
    (FOLDER / "bodies.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
