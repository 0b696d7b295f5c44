"""The folder that an explanation is written to: pictures, numbers and a page."""

import math
import pathlib

import numpy as np

from cct_keras.atomic_file import atomic_file
from cct_keras.drawing.html import escape
from cct_keras.drawing.html import write_page
from cct_keras.explaining.cards import card
from cct_keras.explaining.cards import card_grid
from cct_keras.explaining.cards import card_style
from cct_keras.explaining.cards import file_bytes
from cct_keras.explaining.figures import check_strength
from cct_keras.explaining.methods import METHODS
from cct_keras.explaining.overlays import color_limits
from cct_keras.explaining.overlays import colors
from cct_keras.explaining.overlays import overlay

# Pictures on the page; those after them are files only.
MOST_ON_PAGE = 300
# Classes that are named below a picture.
NAMED_CLASSES = 3
# The smaller side of a picture is drawn at least so large, in pixels, unless that makes
# the other one larger than this.
LEAST_SIDE = 192
LARGEST_SIDE = 1280
# Room for the numbers of the legend.
LEAST_HEIGHT = 32
STYLE = """
.controls {
  position: sticky; top: 0; z-index: 1; padding: .5rem 0; background: var(--page);
  display: flex; gap: 1.5rem; flex-wrap: wrap; align-items: center;
}
"""
SCRIPT = """
const slider = document.querySelector("#strength");
const value = document.querySelector("#value");
function show() {
  document.documentElement.style.setProperty("--strength", slider.value / 100);
  value.textContent = slider.value + " %";
}
slider.addEventListener("input", show);
show();
"""


def write_explanation(explanation, folder: pathlib.Path, strength: float):
    """Writes the pictures of an explanation, its numbers and a page.

    Args:
        explanation: An `Explanation`.
        folder: Where to write.
        strength: How much the colors cover the pictures, from 0 to 1.

    Returns:
        The page.
    """
    check_strength(strength)
    folder.mkdir(parents=True, exist_ok=True)
    cards = []
    files = _file_names(explanation)
    for index, name in enumerate(files):
        pixels = explanation.pictures[index].pixels()
        with atomic_file(folder / name) as temporary:
            temporary.write_bytes(_side_by_side(explanation, index, pixels, strength))
        if index < MOST_ON_PAGE:
            cards.append(
                card(
                    explanation, index, _class_lines(explanation, index), pixels=pixels
                )
            )
    with atomic_file(folder / "maps.npz") as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **_numbers(explanation))
    page = folder / "index.html"
    write_page(
        page,
        f"Where the model looks: {explanation.method}",
        [
            _controls(explanation, strength),
            card_grid(cards),
            _notes(explanation, files),
        ],
        style=card_style(strength) + STYLE,
        script=SCRIPT,
    )
    return page


# === The page ===


def _controls(explanation, strength):
    label = "strength of the colors"
    method = METHODS.get(explanation.method)
    whose = "The map is the same for all classes"
    if method is not None and method.class_specific:
        whose = "The map is that of the class in bold letters"
    return (
        f"<p>A value is the {escape(explanation.meaning)}. Every rectangle is one "
        f"token: the model sees nothing finer. {whose}. It shows what the method "
        "found, and is no proof of why the model decided.</p>\n"
        f'<div class="controls"><label>{label} <input id="strength" type="range" '
        f'min="0" max="100" value="{round(100 * strength)}"></label>'
        '<output id="value" for="strength"></output></div>'
    )


def _class_lines(explanation, index):
    probabilities, target = explanation.probabilities[index], explanation.targets[index]
    order = list(np.argsort(-probabilities, kind="stable")[:NAMED_CLASSES])
    if target not in order:
        order.append(target)
    lines = []
    for number in order:
        kind = ' class="target"' if number == target else ""
        name = escape(explanation.class_names[number])
        share = f"{100 * probabilities[number]:.1f} %"
        lines.append(f"<li{kind}>{name}<span>{share}</span></li>")
    return lines


def _notes(explanation, files):
    rows = [*explanation.notes]
    if len(files) > MOST_ON_PAGE:
        rows.append(
            f"{len(files) - MOST_ON_PAGE:,} further pictures are files of this folder."
        )
    rows += [f"{name}: {reason}" for name, reason in explanation.errors.items()]
    items = "".join(f"<li>{escape(row)}</li>" for row in rows)
    return items and f"<section><h2>Notes</h2><ul>{items}</ul></section>"


# === Files ===


def _file_names(explanation):
    """A name for each picture that no other has, also on disks without case."""
    taken, names = set(), []
    for picture in explanation.pictures:
        stem = pathlib.PurePath(picture.name).stem or "picture"
        stem = "".join(c if c.isalnum() or c in "-_. " else "_" for c in stem)[:80]
        name, number = stem, 2
        while name.lower() in taken:
            name, number = f"{stem}-{number}", number + 1
        taken.add(name.lower())
        # Never the name of a photograph that may lie in the same folder.
        names.append(f"{name}.map.png")
    return names


def _numbers(explanation):
    numbers = {
        "method": explanation.method,
        "probabilities": explanation.probabilities,
        "targets": explanation.targets,
        "class_names": np.array(explanation.class_names),
        "names": np.array(explanation.names),
    }
    for name in ("token_maps", "attention_maps"):
        maps = getattr(explanation, name)
        if isinstance(maps, np.ndarray):
            numbers[name] = maps
        elif maps is not None:
            # Maps of different sizes make no array.
            numbers |= {f"{name}_{index}": one for index, one in enumerate(maps)}
    return numbers


def _side_by_side(explanation, index, pixels, strength):
    """The picture, its map and the legend as a PNG file."""
    from PIL import Image
    from PIL import ImageDraw
    from PIL import ImageFont

    picture, tokens = explanation.pictures[index], explanation.token_maps[index]
    signed = explanation.signed
    covered = overlay(picture, pixels, tokens, signed=signed, strength=strength)
    # Small pictures are enlarged by a whole number, so that their pixels stay square.
    smaller, larger = sorted(pixels.shape[:2])
    factor = max(1, min(math.ceil(LEAST_SIDE / smaller), LARGEST_SIDE // larger))
    if factor > 1:
        pixels, covered = (
            x.repeat(factor, axis=0).repeat(factor, axis=1) for x in (pixels, covered)
        )
    color = np.broadcast_to(pixels, (*pixels.shape[:2], 3))
    height, width = color.shape[:2]
    gap, bar, margin = 8, 12, 64
    size = (2 * width + 2 * gap + bar + margin, max(height, LEAST_HEIGHT))
    canvas = Image.new("RGB", size, "white")
    canvas.paste(Image.fromarray(np.ascontiguousarray(color)), (0, 0))
    canvas.paste(Image.fromarray(covered), (width + gap, 0))
    ramp = Image.fromarray(np.ascontiguousarray(colors(signed)[::-1][:, None]))
    place = 2 * width + 2 * gap
    canvas.paste(ramp.resize((bar, size[1])), (place, 0))
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(12)
    low, high = color_limits(tokens, signed)
    for value, y, anchor in ((high, 1, "la"), (low, size[1] - 2, "ld")):
        draw.text((place + bar + 4, y), f"{value:.3g}", "black", font, anchor)
    return file_bytes(canvas, "PNG")
