"""A picture of what a model sees in training, before any time goes into it."""

import pathlib

from cct_keras.training.recipe import Recipe
from cct_keras.training.trainer import load_for


def write_preview(path, data, recipe: Recipe, *, count: int = 32, **options):
    """Writes a grid of augmented images with their mixed labels.

    Args:
        path: PNG file to write.
        data: What `load_data` takes.
        recipe: The recipe that would be trained.
        count: Images to show.
        **options: `image_size`, `data_dir` and `seed` of `train`.

    Returns:
        The path.
    """
    from matplotlib.figure import Figure

    seed = options.pop("seed", 0)
    data = load_for(data, recipe, seed=seed, **options)
    batches = data.training_pipeline(recipe, epochs=1, seed=seed)
    images, targets = next(iter(batches.take(1).as_numpy_iterator()))
    images, targets = images[:count], targets[:count]

    columns = 8
    rows = -(-len(images) // columns)
    figure = Figure(figsize=(1.6 * columns, 1.95 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in axes:
        ax.axis("off")
    for ax, image, target in zip(axes, images, targets, strict=False):
        pixels = image.clip(0, 255).round().astype("uint8")
        ax.imshow(pixels, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        ax.set_title(_label(target, data.class_names), fontsize=8)
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def _label(target, class_names):
    """The one or two classes that stand out, with their shares if it is two."""
    first, second = (-target).argsort()[:2]
    # What smoothing spreads is the same for every class that is not in the picture.
    floor = target.min()
    if target[second] - floor < 1e-3:
        return _short(class_names[first])
    return "\n".join(
        f"{target[i]:.0%} {_short(class_names[i])}" for i in (first, second)
    )


def _short(name):
    return name if len(name) <= 16 else name[:15] + "…"
