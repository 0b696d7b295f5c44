import logging
import math

import keras
import numpy as np
from keras import ops

from cct_keras.checks import INTERPOLATIONS
from cct_keras.checks import check_choice
from cct_keras.checks import check_non_negative
from cct_keras.checks import check_positive
from cct_keras.checks import check_rank
from cct_keras.layers.settings import check_settings
from cct_keras.layers.settings import save_settings

logger = logging.getLogger(__name__)
# Numbers of a table that are compared with the sinusoid at a time.
PIECE = 2**18


@keras.saving.register_keras_serializable(package="cct_keras")
class PositionEmbedding(keras.layers.Layer):
    """Adds a position table to a sequence of tokens.

    The layer can load weights that were saved for another grid: a learnable table is
    interpolated, a sine table is computed again.

    Args:
        grid: `(rows, columns)` of the token grid.
        kind: `"learnable"`, or `"sine"` for the fixed sinusoid over the flattened
            sequence, which is not trained but saved with the weights.
        num_prefix_tokens: Number of tokens before the grid, such as a class token. They
            have their own rows at the start of the table.
        interpolation: How a learnable table is resized to another grid; see
            `resize_table`.

    Input shape:
        `(batch, num_prefix_tokens + rows * columns, dim)`

    Output shape:
        Same as the input.

    Example:

    >>> tokens = keras.random.normal((2, 48, 128))
    >>> keras.ops.shape(PositionEmbedding((6, 8))(tokens))
    (2, 48, 128)
    """

    def __init__(
        self,
        grid: tuple[int, int],
        *,
        kind: str = "learnable",
        num_prefix_tokens: int = 0,
        interpolation: str = "bilinear",
        **kwargs,
    ):
        super().__init__(**kwargs)
        if not isinstance(grid, (tuple, list)) or len(grid) != 2:
            raise ValueError(
                "PositionEmbedding: `grid` must be a pair (rows, columns). "
                f"Received: grid={grid!r}"
            )
        rows, columns = grid
        check_positive("PositionEmbedding", rows=rows, columns=columns)
        check_choice("PositionEmbedding", ("learnable", "sine"), kind=kind)
        check_non_negative("PositionEmbedding", num_prefix_tokens=num_prefix_tokens)
        self.grid = (rows, columns)
        self.kind = kind
        self.num_prefix_tokens = num_prefix_tokens
        check_choice("PositionEmbedding", INTERPOLATIONS, interpolation=interpolation)
        self.interpolation = interpolation

    def build(self, input_shape):
        check_rank("PositionEmbedding", input_shape, ("batch", "tokens", "dim"))
        _, tokens, dim = input_shape
        length = self.num_prefix_tokens + math.prod(self.grid)
        if tokens is not None and tokens != length:
            raise ValueError(
                f"PositionEmbedding: grid={self.grid} with "
                f"num_prefix_tokens={self.num_prefix_tokens} needs {length} tokens. "
                f"Received: input shape {tuple(input_shape)}"
            )
        if self.kind == "sine":
            initializer = _sine_initializer
        else:
            initializer = keras.initializers.RandomNormal(stddev=0.2)
        self.embeddings = self.add_weight(
            shape=(1, length, dim),
            initializer=initializer,
            trainable=self.kind == "learnable",
            name="embeddings",
        )

    def call(self, tokens):
        if tokens.shape[1] is not None and tokens.shape[1] != self.embeddings.shape[1]:
            raise ValueError(
                f"PositionEmbedding: expected {self.embeddings.shape[1]} tokens. "
                f"Received: input shape {tuple(tokens.shape)}"
            )
        return tokens + ops.cast(self.embeddings, tokens.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def load_table(self, table, grid: tuple[int, int] | None = None) -> None:
        """Assigns a position table, made for this grid or for another one.

        Args:
            table: Array `(1, num_prefix_tokens + rows * columns, dim)`.
            grid: `(rows, columns)` of the table. Defaults to this layer's own
                grid if the length fits, else to a square.
        """
        table = np.asarray(table)
        _, length, dim = self.embeddings.shape
        if table.ndim != 3 or table.shape[0] != 1 or table.shape[2] != dim:
            raise ValueError(
                f"PositionEmbedding: expected a table of shape (1, tokens, {dim}). "
                f"Received: shape {table.shape}"
            )
        if grid is None:
            grid = self._guess_grid(table.shape[1])
        grid = tuple(int(side) for side in grid)
        if table.shape[1] != self.num_prefix_tokens + math.prod(grid):
            raise ValueError(
                f"PositionEmbedding: a table for grid={grid} with "
                f"{self.num_prefix_tokens} prefix token(s) must have "
                f"{self.num_prefix_tokens + math.prod(grid)} rows. "
                f"Received: shape {table.shape}"
            )
        if self.kind == "sine" and kind_of_table(table) != "sine":
            raise ValueError(
                'PositionEmbedding: kind="sine" needs the sinusoid. Received: another '
                'table, which belongs to kind="learnable"'
            )
        if grid != self.grid:
            sizes = "{} x {} to {} x {}".format(*grid, *self.grid)
            if self.kind == "sine":
                logger.info("sine positions were computed again, from %s", sizes)
                table = sine_table(length, dim)
            else:
                logger.info("positions were resized from %s", sizes)
                table = resize_table(
                    table,
                    grid,
                    self.grid,
                    self.num_prefix_tokens,
                    interpolation=self.interpolation,
                )
        self.embeddings.assign(table)

    def _guess_grid(self, length):
        if length == self.embeddings.shape[1]:
            return self.grid
        grid = square_grid(length - self.num_prefix_tokens)
        if grid is None:
            raise ValueError(
                f"PositionEmbedding: a table of {length} rows is neither this "
                f"layer's grid {self.grid} nor a square; pass its `grid`."
            )
        return grid

    def save_own_variables(self, store):
        store["embeddings"] = self.embeddings.numpy()
        store["grid"] = np.array(self.grid, dtype="int32")
        prefix = {"num_prefix_tokens": int(self.num_prefix_tokens)}
        save_settings(store, {"kind": self.kind, **prefix})

    def load_own_variables(self, store):
        # `kind` may differ: a learnable table can start as a sinusoid. `load_table`
        # refuses the opposite.
        check_settings(self, store, {"num_prefix_tokens": self.num_prefix_tokens})
        self.load_table(np.array(store["embeddings"]), np.array(store["grid"]))

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "grid": self.grid,
                "kind": self.kind,
                "num_prefix_tokens": self.num_prefix_tokens,
                "interpolation": self.interpolation,
            }
        )
        return config


def sine_table(length: int, dim: int) -> np.ndarray:
    """The sinusoid `(1, length, dim)`: sine in even channels, cosine in odd ones.

    Args:
        length: Number of positions.
        dim: Number of channels.

    Example:

    >>> keras.ops.shape(sine_table(64, 128))
    (1, 64, 128)
    """
    return _sine_rows(np.arange(length), dim)[None]


def _sine_rows(positions, dim):
    period = 10000.0 ** (2 * (np.arange(dim) // 2) / dim)
    # The original rounds the angles to float32 before the sine; at 575
    # radians that moves the table by 3e-5.
    angle = np.float32(positions[:, None] / period).astype("float64")
    even = np.arange(dim) % 2 == 0
    return np.where(even, np.sin(angle), np.cos(angle)).astype("float32")


def kind_of_table(table: np.ndarray) -> str:
    """`"sine"` for the sinusoid, even in half precision, else `"learnable"`.

    Args:
        table: An array `(1, length, dim)`.

    Example:

    >>> kind_of_table(sine_table(64, 128))
    'sine'
    """
    _, length, dim = table.shape
    # In pieces, for the sinusoid takes many times the memory of a table.
    rows = max(1, PIECE // dim)
    for start in range(0, length, rows):
        piece = table[0, start : start + rows]
        sines = _sine_rows(np.arange(start, start + len(piece)), dim)
        # A file may hold numbers that are none.
        with np.errstate(all="ignore"):
            if not np.abs(piece - sines).max() < 0.01:
                return "learnable"
    return "sine"


def square_grid(length: int) -> tuple[int, int] | None:
    """The square grid with so many positions, or `None` if there is none.

    Args:
        length: Number of positions.

    Example:

    >>> square_grid(64)
    (8, 8)
    """
    side = math.isqrt(max(0, length))
    return (side, side) if side and side * side == length else None


def resize_table(
    table: np.ndarray,
    grid: tuple[int, int],
    new_grid: tuple[int, int],
    num_prefix_tokens: int = 0,
    *,
    interpolation: str = "bilinear",
) -> np.ndarray:
    """Interpolates a position table to another grid.

    Args:
        table: An array `(1, num_prefix_tokens + rows * columns, dim)`.
        grid: `(rows, columns)` of the table.
        new_grid: `(rows, columns)` of the result.
        num_prefix_tokens: Number of rows at the start that stay as they are.
        interpolation: `"bilinear"`, with half-pixel centers and without antialiasing,
            as Compact-Transformers does; `"bilinear_corners"`, which keeps the corners
            where they are, as Google's ViT does; `"bicubic"`, as DeiT, MAE and
            Hugging Face do; `"bicubic_antialias"`, as timm does; or
            `"bicubic_offset"`, as the authors of DINO and DINOv2 do.

    Example:

    >>> keras.ops.shape(resize_table(sine_table(64, 128), (8, 8), (12, 16)))
    (1, 192, 128)
    """
    weights = {
        "bilinear": _bilinear_weights,
        "bilinear_corners": _corner_weights,
        "bicubic": _bicubic_weights,
        "bicubic_antialias": _antialias_weights,
        "bicubic_offset": _offset_weights,
    }[interpolation]
    prefix, rest = table[:, :num_prefix_tokens], table[0, num_prefix_tokens:]
    rest = rest.reshape(*grid, -1)
    rest = np.tensordot(weights(grid[0], new_grid[0]), rest, axes=1)
    rest = np.tensordot(weights(grid[1], new_grid[1]), rest, axes=(1, 1))
    rest = rest.transpose(1, 0, 2).reshape(1, -1, table.shape[2])
    return np.concatenate([prefix, rest], axis=1).astype(table.dtype)


def _centers(size, new_size):
    """Where the new positions lie between the old ones, by half-pixel centers."""
    return (np.arange(new_size) + 0.5) * size / new_size - 0.5


def _bilinear_weights(size, new_size):
    """Matrix `(new_size, size)` that interpolates along one axis."""
    return _tent(np.clip(_centers(size, new_size), 0, size - 1), size)


def _corner_weights(size, new_size):
    """The same with the first and the last position staying the first and the last."""
    return _tent(np.linspace(0, size - 1, new_size), size)


def _tent(centers, size):
    return np.maximum(0.0, 1.0 - np.abs(centers[:, None] - np.arange(size)[None]))


def _bicubic_weights(size, new_size):
    """torch's: four neighbors, those beyond the border repeat it."""
    return _four_neighbors(_centers(size, new_size), size)


def _offset_weights(size, new_size):
    """The same for a grid that is said to be a tenth of a position larger.

    It began as a guard against rounding, and moves all positions a little.
    """
    centers = (np.arange(new_size) + 0.5) * size / (new_size + 0.1) - 0.5
    return _four_neighbors(centers, size)


def _four_neighbors(centers, size):
    weights = np.zeros((len(centers), size))
    rows = np.arange(len(centers))
    for step in (-1, 0, 1, 2):
        neighbors = np.floor(centers).astype(int) + step
        share = _cubic(centers - neighbors, -0.75)
        np.add.at(weights, (rows, np.clip(neighbors, 0, size - 1)), share)
    return weights


def _antialias_weights(size, new_size):
    """torch's with `antialias=True`: a wider window where the grid gets smaller, and
    nothing from beyond the border."""
    scale = max(1.0, size / new_size)
    distance = (_centers(size, new_size)[:, None] - np.arange(size)[None]) / scale
    weights = _cubic(distance, -0.5)
    return weights / weights.sum(axis=1, keepdims=True)


def _cubic(x, a):
    """The cubic convolution kernel of Keys, by the slope `a` at a distance of 1."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _sine_initializer(shape, dtype=None):
    return ops.convert_to_tensor(sine_table(shape[1], shape[2]), dtype=dtype)
