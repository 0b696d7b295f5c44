"""A picture beside its map, with a legend and lines of text, as HTML."""

import io

import numpy as np

from cct_keras.drawing.html import data_address
from cct_keras.drawing.html import escape
from cct_keras.explaining.overlays import STRENGTH
from cct_keras.explaining.overlays import color_limits
from cct_keras.explaining.overlays import color_map
from cct_keras.explaining.overlays import colors

# Pictures up to this side keep their pixels on a page.
SMALL_PICTURE = 128
LARGEST_PICTURE = 400


def card_style(strength: float = STRENGTH) -> str:
    """The CSS of a page with cards.

    Args:
        strength: How much the colors cover the pictures, from 0 to 1.
    """
    return f":root {{ --strength: {strength}; }}\n{STYLE}"


STYLE = """
.cards {
  display: grid; gap: 1rem; margin-top: .75rem;
  grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr));
}
.card {
  padding: .75rem; background: var(--card); border: 1px solid var(--line);
  border-radius: .5rem;
}
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: .5rem; }
.view { position: relative; align-self: start; }
.view img { display: block; width: 100%; height: auto; }
.small img { image-rendering: pixelated; }
.view .under { filter: grayscale(1); }
.view .map {
  position: absolute; opacity: var(--strength); image-rendering: pixelated;
}
.card .name { margin: .5rem 0 0; font-size: .85rem; color: var(--soft); }
.card ol { margin: .25rem 0 0; padding: 0; list-style: none; font-size: .95rem; }
.card li span { float: right; font-variant-numeric: tabular-nums; }
.card .target { font-weight: 600; }
.legend {
  display: flex; gap: .5rem; font-size: .8rem; align-items: center;
  white-space: nowrap; overflow-wrap: normal;
}
.legend img { flex: 1; min-width: 0; height: .6rem; }
"""


def card_grid(cards: list[str]) -> str:
    """Cards side by side."""
    return '<div class="cards">\n' + "\n".join(cards) + "\n</div>"


def card(
    explanation,
    index: int,
    lines: list[str],
    *,
    pixels: np.ndarray | None = None,
    name: str | None = None,
) -> str:
    """A picture beside its map, with a legend and lines of text.

    Args:
        explanation: An `Explanation`.
        index: Which picture.
        lines: HTML of the `li` elements below the name of the picture.
        pixels: The picture as it is drawn, if it was read already.
        name: Name of the picture, if it is not the one in the explanation.
    """
    picture, tokens = explanation.pictures[index], explanation.token_maps[index]
    pixels = picture.pixels() if pixels is None else pixels
    height, width = picture.size
    top, left, bottom, right = picture.box
    place = (
        f"left:{100 * left / width:.3f}%;top:{100 * top / height:.3f}%;"
        f"width:{100 * (right - left) / width:.3f}%;"
        f"height:{100 * (bottom - top) / height:.3f}%"
    )
    low, high = color_limits(tokens, explanation.signed)
    original = data_address(*_encoded(pixels))
    colored = data_address(
        png_bytes(color_map(tokens, explanation.signed)), "image/png"
    )
    bar = data_address(png_bytes(colors(explanation.signed)[None]), "image/png")
    small = " small" if max(pixels.shape[:2]) <= SMALL_PICTURE else ""
    name = escape(picture.name if name is None else name)
    return (
        f'<div class="card">\n<div class="pair{small}">'
        f'<div class="view"><img alt="{name}" src="{original}"></div>'
        f'<div class="view"><img class="under" alt="" src="{original}">'
        f'<img class="map" alt="map of {name}" style="{place}" src="{colored}"></div>'
        "</div>\n"
        f'<p class="name">{name}</p>\n<ol>{"".join(lines)}</ol>\n'
        f'<div class="legend"><span>{low:.3g}</span><img alt="" src="{bar}">'
        f"<span>{high:.3g}</span></div>\n</div>"
    )


def _encoded(pixels):
    """A picture for the page: exact if it is small."""
    from PIL import Image

    if max(pixels.shape[:2]) <= SMALL_PICTURE:
        return png_bytes(pixels), "image/png"
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    image.thumbnail((LARGEST_PICTURE, LARGEST_PICTURE))
    return file_bytes(image, "JPEG"), "image/jpeg"


def png_bytes(pixels: np.ndarray) -> bytes:
    """Pixels `(height, width, 1 or 3)` as the content of a PNG file."""
    from PIL import Image

    array = pixels[..., 0] if pixels.shape[2] == 1 else pixels
    return file_bytes(Image.fromarray(np.ascontiguousarray(array)), "PNG")


def file_bytes(image, kind: str) -> bytes:
    """An image of Pillow as the content of a file."""
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()
