"""Writes golden outputs of the modern plain ViTs with `transformers`; see README.md."""

import json
import pathlib
import sys

import numpy as np
import torch
import transformers

FOLDER = pathlib.Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))
import reference  # noqa: E402

PATCH = 8
SIZE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": PATCH,
}
DINO = {**SIZE, "mlp_ratio": 2, "num_labels": 3}
del DINO["intermediate_size"]
TEXT = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 20,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


def config(kind, **settings):
    return getattr(transformers, f"{kind}Config")(**settings)


def towers(kind, **vision):
    return config(kind, vision_config={**SIZE, **vision}, text_config=TEXT)


def tokens(model, x, **options):
    return model(x, **options).last_hidden_state


def pooled(model, x, **options):
    return model(x, **options).pooler_output


def logits(model, x, **options):
    return model(x, **options).logits


def embedding(model, x, **options):
    return model(x, **options).image_embeds


RESIZED = {"interpolate_pos_encoding": True}
# name: class, configuration, what is read, image, options of the call
CASES = {
    "vit_resized": ("ViTModel", config("ViT", **SIZE), tokens, (48, 24), RESIZED),
    "deit_resized": ("DeiTModel", config("DeiT", **SIZE), tokens, (24, 48), RESIZED),
    "dinov2": (
        "Dinov2ForImageClassification",
        config("Dinov2", **DINO),
        logits,
        (32, 32),
        {},
    ),
    "dinov2_resized": ("Dinov2Model", config("Dinov2", **DINO), tokens, (48, 24), {}),
    "dinov2_gated": (
        "Dinov2Model",
        config("Dinov2", **DINO, use_swiglu_ffn=True),
        tokens,
        (32, 32),
        {},
    ),
    "dinov2_registers": (
        "Dinov2WithRegistersForImageClassification",
        config("Dinov2WithRegisters", **DINO),
        logits,
        (32, 32),
        {},
    ),
    "dinov2_registers_resized": (
        "Dinov2WithRegistersModel",
        config("Dinov2WithRegisters", **DINO),
        tokens,
        (24, 48),
        {},
    ),
    "clip": ("CLIPVisionModel", config("CLIPVision", **SIZE), pooled, (32, 32), {}),
    "clip_resized": (
        "CLIPVisionModel",
        config("CLIPVision", **SIZE),
        pooled,
        (40, 24),
        RESIZED,
    ),
    "clip_projection": (
        "CLIPVisionModelWithProjection",
        config("CLIPVision", **SIZE, projection_dim=12),
        embedding,
        (32, 32),
        {},
    ),
    "clip_whole": (
        "CLIPModel",
        towers("CLIP"),
        lambda model, x: model.get_image_features(x).pooler_output,
        (32, 32),
        {},
    ),
    "clip_classifier": (
        "CLIPForImageClassification",
        towers("CLIP"),
        logits,
        (32, 32),
        {},
    ),
    "siglip": (
        "SiglipVisionModel",
        config("SiglipVision", **SIZE),
        pooled,
        (32, 32),
        {},
    ),
    "siglip_resized": (
        "SiglipVisionModel",
        config("SiglipVision", **SIZE),
        pooled,
        (24, 40),
        RESIZED,
    ),
    "siglip_whole": (
        "SiglipModel",
        towers("Siglip"),
        lambda model, x: model.get_image_features(x).pooler_output,
        (32, 32),
        {},
    ),
    "siglip_classifier": (
        "SiglipForImageClassification",
        towers("Siglip"),
        logits,
        (32, 32),
        {},
    ),
}


def golden_case(name, kind, settings, run, size, options):
    model = getattr(transformers, kind)(settings).eval()
    shapes = {key: tuple(x.shape) for key, x in model.state_dict().items()}
    model.load_state_dict(
        {
            key: torch.from_numpy(reference.random_tensor(key, shape))
            for key, shape in shapes.items()
        }
    )
    images = reference.random_images(name, (1, *size, 3))
    with torch.no_grad():
        output = run(
            model, torch.from_numpy(images.transpose(0, 3, 1, 2).copy()), **options
        )
    return {
        "name": name,
        "input_shape": [*size, 3],
        "num_heads": SIZE["num_attention_heads"],
        "shapes": shapes,
        "shape": list(output.shape[1:]),
        "output": [float(f"{x:.8g}") for x in output.flatten().tolist()],
    }


def seen_in(name):
    """Attention of each block, and of the pooling, `(heads, 1, tokens)`, if any."""
    kind, settings, _, size, _ = CASES[name]
    settings = type(settings)(**settings.to_dict(), attn_implementation="eager")
    model = getattr(transformers, kind)(settings).eval()
    shapes = {key: tuple(x.shape) for key, x in model.state_dict().items()}
    model.load_state_dict(
        {
            key: torch.from_numpy(reference.random_tensor(key, shape))
            for key, shape in shapes.items()
        }
    )
    read = []
    for module in model.modules():
        if isinstance(module, torch.nn.MultiheadAttention):
            module.register_forward_pre_hook(
                lambda _, args, kwargs: read.append((*args, *kwargs.values())),
                with_kwargs=True,
            )
    images = reference.random_images(name, (1, *size, 3))
    with torch.no_grad():
        outputs = model(
            torch.from_numpy(images.transpose(0, 3, 1, 2).copy()),
            output_attentions=True,
        )
        pools = [
            module(*read[0][:3], average_attn_weights=False)[1][0]
            for module in model.modules()
            if isinstance(module, torch.nn.MultiheadAttention)
        ]
    return {
        "name": name,
        "attention": [rounded(x[0]) for x in outputs.attentions],
        "pool": rounded(pools[0]) if pools else None,
    }


def rounded(x):
    return np.round(x.double().numpy(), 8).tolist()


def write(file, rows):
    lines = ",\n".join(json.dumps(row) for row in rows)
    (FOLDER / file).write_text(f"[\n{lines}\n]\n")


def main():
    write("plain_vits.json", [golden_case(name, *case) for name, case in CASES.items()])
    seen = ("dinov2_registers", "siglip")
    write("attention_plain_vits.json", [seen_in(name) for name in seen])


if __name__ == "__main__":
    main()
