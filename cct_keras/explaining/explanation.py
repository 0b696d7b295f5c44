"""What `explain` returns: maps, and ways to look at them."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping

import numpy as np

from cct_keras.explaining import figures
from cct_keras.explaining.overlays import STRENGTH
from cct_keras.explaining.page import write_explanation
from cct_keras.explaining.pictures import Picture
from cct_keras.explaining.pictures import as_array_or_list


@dataclasses.dataclass(frozen=True, eq=False)
class Explanation:
    """Where a model looks in some pictures.

    Attributes:
        method: Name of the method.
        meaning: What a value of a map is.
        signed: Whether values may be negative.
        token_maps: `(images, rows, columns)`, one value for each token.
        probabilities: `(images, classes)`, what the model predicts.
        targets: `(images,)`, the class that each map explains. Methods that are not
            specific to a class show the same for all of them.
        class_names: Names of the classes.
        pictures: The pictures: their names, sizes, and the part the model sees.
        attention_maps: For method `"attention"`, `(images, blocks, heads, rows,
            columns)`; otherwise `None`.
        errors: Why files could not be read, by their name; they are left out.
        notes: What had to be assumed about the model.

    Example:

    >>> images = cct_keras.load_data("digits").test.images[:3]
    >>> explanation = cct_keras.explain("cct_2_3x2_32.digits", images)
    >>> explanation.maps.shape, explanation.predictions
    ((3, 16, 16), ['7', '6', '3'])
    """

    method: str
    meaning: str
    signed: bool
    token_maps: np.ndarray | list[np.ndarray]
    probabilities: np.ndarray
    targets: np.ndarray
    class_names: tuple[str, ...]
    pictures: tuple[Picture, ...]
    attention_maps: np.ndarray | list[np.ndarray] | None = None
    errors: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self):
        return len(self.pictures)

    @property
    def maps(self) -> np.ndarray | list[np.ndarray]:
        """`(images, height, width)` in the coordinates of the pictures.

        Each pixel has the value of its token; what the model does not see of a picture
        has 0. Pictures of different sizes make a list of arrays. The maps are made when
        they are asked for: those of large photographs take much memory.
        """
        pairs = zip(self.pictures, self.token_maps, strict=True)
        return as_array_or_list([picture.spread(tokens) for picture, tokens in pairs])

    @property
    def names(self) -> list[str]:
        """Files of the pictures, or `image 0` and so on."""
        return [picture.name for picture in self.pictures]

    @property
    def predictions(self) -> list[str]:
        """Name of the likeliest class of each picture."""
        return [self.class_names[i] for i in self.probabilities.argmax(-1)]

    def plot(self, *, strength: float = STRENGTH, most: int = 12):
        """Draws the pictures, each beside its map.

        Args:
            strength: How much the colors cover the picture, from 0 to 1.
            most: How many pictures to draw at most.

        Returns:
            A `matplotlib.figure.Figure`.
        """
        return figures.maps_beside_pictures(self, strength, most)

    def plot_heads(self, index: int = 0, *, strength: float = STRENGTH):
        """Draws the attention of every head of every block for one picture.

        Args:
            index: Which picture.
            strength: How much the colors cover the picture, from 0 to 1.

        Returns:
            A `matplotlib.figure.Figure`.
        """
        return figures.attention_heads(self, index, strength)

    def save(
        self, folder: str | os.PathLike, *, strength: float = STRENGTH
    ) -> pathlib.Path:
        """Writes the pictures with their maps, and a page to look at them.

        Args:
            folder: Where to write; it is made if it does not exist.
            strength: How much the colors cover the pictures, from 0 to 1. The page has
                a slider for it.

        Returns:
            The page, `index.html`. Beside it are a picture for each image, and
            `maps.npz` with the numbers.
        """
        return write_explanation(self, pathlib.Path(folder), strength)
