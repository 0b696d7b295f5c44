"""The folder that an inspection is written to: figures, numbers and a page."""

import dataclasses
import pathlib

import numpy as np

from cct_keras.atomic_file import atomic_file
from cct_keras.drawing.html import escape
from cct_keras.drawing.html import figure_bytes
from cct_keras.drawing.html import figure_element
from cct_keras.drawing.html import section
from cct_keras.drawing.html import write_page

# Heading, kind of file and what to know before reading it, for each figure.
PARTS = {
    "filters": ("First filters", "png", "What the first layer of the model reacts to."),
    "positions": (
        "Positions",
        "png",
        "Each small map belongs to the token at its place, and shows how similar the "
        "positions of all tokens are to the one of this token. Learned positions that "
        "know the image's plane are most similar to their neighbors, and to their own "
        "row and column.",
    ),
    "distance": (
        "Attention distance",
        "svg",
        "Low dots are heads that look at their surroundings, as a convolution does; "
        "the dashed line is a head that looks at the whole image alike.",
    ),
    "heads": (
        "Attention by head",
        "png",
        "What is read through each head of each block, at which place of the image.",
    ),
    "pool": (
        "Pooling",
        "png",
        "Where SeqPool, or attention pooling, takes the answer from on average. A "
        "large deviation means that it looks at the picture rather than at a place.",
    ),
}


def write_inspection(inspection, folder: pathlib.Path) -> pathlib.Path:
    """Writes the figures of an inspection, its numbers and a page.

    Args:
        inspection: An `Inspection`.
        folder: Where to write.

    Returns:
        The page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sections = []
    for name, figure in inspection.plot().items():
        heading, kind, text = PARTS[name]
        with atomic_file(folder / f"learned-{name}.{kind}") as temporary:
            temporary.write_bytes(figure_bytes(figure, kind))
        sections.append(
            section(
                heading, f"<p>{escape(text)}</p>", figure_element(figure, kind, heading)
            )
        )
    numbers = {
        field.name: getattr(inspection, field.name)
        for field in dataclasses.fields(inspection)
        if getattr(inspection, field.name) is not None
    }
    with atomic_file(folder / "learned.npz") as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **numbers)
    page = folder / "learned.html"
    write_page(page, f"What {inspection.name} learned", sections)
    return page
