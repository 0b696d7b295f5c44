"""The page of confident mistakes: where the label may be wrong, not the model."""

import os
import pathlib
from collections.abc import Sequence

from cct_keras.drawing.html import escape
from cct_keras.drawing.html import write_page
from cct_keras.explaining.cards import card
from cct_keras.explaining.cards import card_grid
from cct_keras.explaining.cards import card_style
from cct_keras.explaining.explanation import Explanation
from cct_keras.inference.evaluate import Mistake

# What it is called in the folder of a run.
MISTAKES_PAGE = "mistakes.html"
SPLITS = {"train": "training", "validation": "validation", "test": "test"}


def write_mistakes(
    path: str | os.PathLike,
    mistakes: Sequence[Mistake],
    explanation: Explanation | None,
    checked: int,
) -> None:
    """Writes the page of the most confident mistakes of all splits.

    Args:
        path: The HTML file, in an existing folder.
        mistakes: The mistakes, the most confident first.
        explanation: Where the model looked in them, in the same order.
        checked: How many images were looked through.
    """
    parts = [
        f"<p>Of {checked:,} training, validation and test images, these are the ones "
        "for which the model is most certain of another class than their label says. "
        "Look at them first: labels that are wrong come up here, unless the model has "
        "learned them by heart. A training image is the strongest hint, because the "
        "model has been told its label again and again.</p>"
    ]
    if mistakes:
        parts.append(mistake_cards(mistakes, explanation))
    else:
        parts.append("<p>There is none: every image got the class of its label.</p>")
    write_page(
        pathlib.Path(path),
        "Most confident mistakes, probably mislabelled",
        parts,
        style=card_style(),
    )


def mistake_cards(mistakes: Sequence[Mistake], explanation: Explanation) -> str:
    """Mistakes as cards: the picture beside its map, truth, prediction and file."""
    cards = []
    for index, mistake in enumerate(mistakes):
        lines = [
            f"<li>label: {escape(mistake.truth)}</li>",
            f'<li class="target">model: {escape(mistake.prediction)}'
            f"<span>{100 * mistake.confidence:.0f} %</span></li>",
            f"<li>{SPLITS[mistake.split]} image</li>",
        ]
        cards.append(card(explanation, index, lines, name=mistake.name))
    return card_grid(cards)
