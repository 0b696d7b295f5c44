"""Writes the golden outputs with `vit_pytorch` and torch; see README.md."""

import importlib.util
import json
import pathlib
import sys

import torch

FOLDER = pathlib.Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))
import reference  # noqa: E402

SMALL = {"num_layers": 2, "num_heads": 2, "mlp_ratio": 1, "embedding_dim": 128}
MEDIUM = {"num_layers": 6, "num_heads": 4, "mlp_ratio": 2, "embedding_dim": 256}
LARGE = {"num_layers": 14, "num_heads": 6, "mlp_ratio": 3, "embedding_dim": 384}
# name: size, kernel, stages, native image, another image
ARCHITECTURES = {
    "cct_2_3x2_32": (SMALL, 3, 2, (32, 32), (39, 52)),
    "cct_4_3x2_32": (SMALL | {"num_layers": 4}, 3, 2, (32, 32), (40, 25)),
    "cct_6_3x1_32": (MEDIUM, 3, 1, (32, 32), (17, 24)),
    "cct_6_3x2_32": (MEDIUM, 3, 2, (32, 32), (64, 48)),
    "cct_7_3x1_32": (MEDIUM | {"num_layers": 7}, 3, 1, (32, 32), (28, 21)),
    "cct_7_3x2_32": (MEDIUM | {"num_layers": 7}, 3, 2, (32, 32), (33, 47)),
    "cct_7_7x2_224": (MEDIUM | {"num_layers": 7}, 7, 2, (224, 224), (131, 190)),
    "cct_14_7x2_224": (LARGE, 7, 2, (224, 224), (160, 97)),
    "cct_14_7x2_384": (LARGE, 7, 2, (384, 384), (250, 201)),
}
NUM_CLASSES = 10
INTERPOLATIONS = (
    "bilinear",
    "bilinear_corners",
    "bicubic",
    "bicubic_antialias",
    "bicubic_offset",
)


def vit_pytorch_cct():
    """The module alone: the package around it imports torchvision."""
    folder = importlib.util.find_spec("vit_pytorch").submodule_search_locations[0]
    path = pathlib.Path(folder) / "cct.py"
    spec = importlib.util.spec_from_file_location("vit_pytorch_cct", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def golden_case(name, size, kernel, stages, image, positions):
    model = (
        vit_pytorch_cct()
        .CCT(
            img_size=image,
            n_conv_layers=stages,
            kernel_size=kernel,
            stride=max(1, kernel // 2 - 1),
            padding=max(1, kernel // 2),
            num_classes=NUM_CLASSES,
            positional_embedding=positions or "none",
            **size,
        )
        .eval()
    )
    state = {
        key: torch.from_numpy(reference.random_tensor(key, tuple(value.shape)))
        for key, value in model.state_dict().items()
        if not (positions == "sine" and key.endswith("positional_emb"))
    }
    model.load_state_dict(state, strict=positions != "sine")
    images = reference.random_images(name, (1, *image, 3))
    with torch.no_grad():
        logits = model(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
    return {
        "name": name,
        "input_shape": [*image, 3],
        "positional_embedding": positions,
        "num_conv_layers": stages,
        "kernel_size": kernel,
        **size,
        "logits": logits[0].tolist(),
    }


def golden_resize(interpolation, grid, new_grid):
    name = f"resize_{grid}_{new_grid}"
    table = torch.from_numpy(reference.random_tensor(name, (1, *grid, 2)))
    options = {
        "bilinear": {"mode": "bilinear", "align_corners": False},
        "bilinear_corners": {"mode": "bilinear", "align_corners": True},
        "bicubic": {"mode": "bicubic"},
        "bicubic_antialias": {"mode": "bicubic", "antialias": True},
        "bicubic_offset": {"mode": "bicubic"},
    }[interpolation]
    if interpolation == "bicubic_offset":
        pairs = zip(grid, new_grid, strict=True)
        options["scale_factor"] = tuple((new + 0.1) / old for old, new in pairs)
    else:
        options["size"] = new_grid
    resized = torch.nn.functional.interpolate(table.permute(0, 3, 1, 2), **options)
    table = resized.permute(0, 2, 3, 1).reshape(1, -1, 2)
    return {
        "name": name,
        "interpolation": interpolation,
        "grid": grid,
        "new_grid": new_grid,
        "table": table.tolist(),
    }


def write(file_name, rows):
    lines = ",\n".join(json.dumps(row) for row in rows)
    (FOLDER / file_name).write_text(f"[\n{lines}\n]\n")


def main():
    torch.manual_seed(0)
    rows = []
    for name, (size, kernel, stages, native, other) in ARCHITECTURES.items():
        for positions in ("learnable", "sine", None):
            case = f"{name}_{positions}"
            rows.append(golden_case(case, size, kernel, stages, native, positions))
        case = f"{name}_{other[0]}x{other[1]}"
        rows.append(golden_case(case, size, kernel, stages, other, "learnable"))
    write("cct.json", rows)
    grids = [((4, 4), (6, 6)), ((8, 8), (5, 7)), ((3, 5), (3, 5)), ((2, 3), (7, 4))]
    rows = [golden_resize(name, *pair) for name in INTERPOLATIONS for pair in grids]
    # At the same size its authors do not resize.
    moved = [
        r
        for r in rows
        if r["interpolation"] != "bicubic_offset" or r["grid"] != r["new_grid"]
    ]
    write("resize.json", moved)


if __name__ == "__main__":
    main()
