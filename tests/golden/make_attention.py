"""Writes golden attention weights with `transformers` and `vit_pytorch`; see README.md.

A row holds the arguments of the model, the logits of one image, the attention weights
after the softmax of each block `(heads, tokens, tokens)`, and those of the sequence
pooling `(tokens)`, or none.
"""

import pathlib
import sys

import make
import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import reference

NARROW = {"num_layers": 2, "embedding_dim": 32, "num_heads": 2, "mlp_ratio": 1}
WIDE = {"num_layers": 2, "embedding_dim": 64, "num_heads": 4, "mlp_ratio": 2}
# name: size, patch, image, distilled
VITS = {
    "attention_vit_4x4": (NARROW, 8, (32, 32), False),
    "attention_vit_5x3": (WIDE, 8, (40, 24), False),
    "attention_deit_4x4": (NARROW, 8, (32, 32), True),
    "attention_deit_3x5": (NARROW, 4, (12, 20), True),
}
# name: size, kernel, stages, image, grid, positions
CCTS = {
    "attention_cct_3x2_4x4": (NARROW, 3, 2, (16, 16), (4, 4), "learnable"),
    "attention_cct_3x2_5x3": (WIDE, 3, 2, (20, 12), (5, 3), "learnable"),
    "attention_cct_7x2_4x4": (NARROW, 7, 2, (64, 64), (4, 4), "learnable"),
    "attention_cct_7x1_3x6": (NARROW, 7, 1, (12, 24), (3, 6), None),
    "attention_cct_3x2_sine_3x3": (NARROW, 3, 2, (12, 12), (3, 3), "sine"),
    "attention_cct_3x1_sine_5x3": (NARROW, 3, 1, (10, 6), (5, 3), "sine"),
}


def vit_case(name, size, patch, image, distilled):
    options = {
        "hidden_size": size["embedding_dim"],
        "num_hidden_layers": size["num_layers"],
        "num_attention_heads": size["num_heads"],
        "intermediate_size": size["embedding_dim"] * size["mlp_ratio"],
        "image_size": image,
        "patch_size": patch,
        "num_labels": make.NUM_CLASSES,
        "attn_implementation": "eager",
    }
    if distilled:
        config = transformers.DeiTConfig(**options)
        model = transformers.DeiTForImageClassificationWithTeacher(config)
    else:
        config = transformers.ViTConfig(**options)
        model = transformers.ViTForImageClassification(config)
    grid = (image[0] // patch, image[1] // patch)
    state = reference.random_vit_state(
        tokens=grid[0] * grid[1],
        num_layers=size["num_layers"],
        embedding_dim=size["embedding_dim"],
        mlp_ratio=size["mlp_ratio"],
        patch_size=patch,
        distilled=distilled,
    )
    state = reference.hugging_face_names(state)
    model.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
    with torch.no_grad():
        outputs = model.eval()(channels_first(name, image), output_attentions=True)
    return {
        "name": name,
        "family": "DeiT" if distilled else "ViT",
        "input_shape": [*image, 3],
        "grid": grid,
        "patch_size": patch,
        "distilled": distilled,
        "distillation_head": distilled,
        **size,
        "logits": rounded(outputs.logits[0].tolist()),
        "attention": [rounded(weights[0].tolist()) for weights in outputs.attentions],
        "pool": None,
    }


def cct_case(name, size, kernel, stages, image, grid, positions):
    model = make.vit_pytorch_cct().CCT(
        img_size=image,
        n_conv_layers=stages,
        kernel_size=kernel,
        stride=max(1, kernel // 2 - 1),
        padding=max(1, kernel // 2),
        num_classes=make.NUM_CLASSES,
        positional_embedding=positions or "none",
        **size,
    )
    return hooked_case(model, name, "CCT", size, kernel, stages, image, grid, positions)


def hooked_case(model, name, family, size, kernel, stages, image, grid, positions):
    """The row of a model by the original names, its weights recorded by hooks."""
    state = {
        key: torch.from_numpy(reference.random_tensor(key, tuple(value.shape)))
        for key, value in model.state_dict().items()
        if not (positions == "sine" and key.endswith("positional_emb"))
    }
    model.load_state_dict(state, strict=positions != "sine")
    attention, pool = [], []
    for block in model.classifier.blocks:
        # Out of training, what leaves this dropout is what left the softmax.
        block.self_attn.attn_drop.register_forward_hook(
            lambda _, __, weights: attention.append(rounded(weights[0].tolist()))
        )
    if family != "ViTLite":
        model.classifier.attention_pool.register_forward_hook(
            lambda _, __, scores: pool.append(
                rounded(scores[0, :, 0].softmax(dim=0).tolist())
            )
        )
    with torch.no_grad():
        logits = model.eval()(channels_first(name, image))
    return {
        "name": name,
        "family": family,
        "input_shape": [*image, 3],
        "grid": grid,
        "kernel_size": kernel,
        "num_conv_layers": stages,
        "positional_embedding": positions,
        **size,
        "logits": rounded(logits[0].tolist()),
        "attention": attention,
        "pool": pool[0] if pool else None,
    }


def channels_first(name, image):
    images = reference.random_images(name, (1, *image, 3))
    return torch.from_numpy(images.transpose(0, 3, 1, 2).copy())


def rounded(numbers):
    """Eight significant digits, all that float32 holds."""
    if isinstance(numbers, list):
        return [rounded(number) for number in numbers]
    return float(f"{numbers:.8g}")


def main():
    torch.manual_seed(0)
    rows = [vit_case(name, *case) for name, case in VITS.items()]
    rows += [cct_case(name, *case) for name, case in CCTS.items()]
    make.write("attention.json", rows)


if __name__ == "__main__":
    main()
