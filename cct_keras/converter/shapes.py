"""What shapes tell of an architecture, for every checkpoint family."""

import math

from cct_keras.converter.torch_file import CheckpointError
from cct_keras.layers.position_embedding import square_grid
from cct_keras.models.transfer import list_problems
from cct_keras.models.variants import SIZES


def check_strictly(
    state: dict, family: str, expected: dict, positions: str, dim: int
) -> None:
    """Every tensor of the file is one of the architecture's, and the reverse.

    Args:
        state: Tensors by name.
        family: What the error calls the architecture.
        expected: Shapes by name, positions aside.
        positions: Name of the position table.
        dim: Its width.
    """
    if positions in state:
        expected = {**expected, positions: (1, state[positions].shape[1], dim)}
    problems = list_problems(
        [name for name in expected if name not in state],
        [name for name in state if name not in expected],
        [
            f"{name} {tuple(state[name].shape)} for {shape}"
            for name, shape in expected.items()
            if name in state and tuple(state[name].shape) != shape
        ],
    )
    if problems:
        raise CheckpointError(f"the tensors are not those of a {family}: {problems}")


def shape_of(state: dict, name: str, rank: int) -> tuple:
    """The shape of a tensor that has to be there."""
    if name not in state:
        raise CheckpointError(f"missing: {name}")
    shape = tuple(state[name].shape)
    if len(shape) != rank or 0 in shape:
        raise CheckpointError(f"{name} has the impossible shape {shape}")
    return shape


def count(state: dict, pattern: str) -> int:
    """How many tensors of a numbered name there are, from 0 on."""
    number = 0
    while pattern.format(number) in state:
        number += 1
    return number


def told_size(input_shape=None, data_format=None, **others) -> tuple | None:
    """Height and width, if the caller knows them."""
    if input_shape is None or len(input_shape) != 3 or None in input_shape:
        return None
    first = data_format == "channels_first"
    return tuple(input_shape[1:] if first else input_shape[:2])


def find_heads(dim: int) -> int:
    """The heads that models of this width have."""
    for size in SIZES.values():
        if size.embedding_dim == dim:
            return size.num_heads
    raise CheckpointError(
        f"the file does not tell the heads of embedding_dim={dim}: pass num_heads=... "
        "(--num-heads)"
    )


def find_mlp_ratio(hidden: int, dim: int) -> float:
    """The ratio from which a constructor makes this hidden width."""
    if hidden % dim == 0:
        return hidden // dim
    ratio = hidden / dim
    # The constructor rounds the product down, which may fall one short.
    return ratio if int(dim * ratio) == hidden else math.nextafter(ratio, math.inf)


def find_grid(length: int, grid: tuple | None) -> tuple:
    """The grid of so many positions: as told, or a square."""
    if grid is not None:
        is_pair = isinstance(grid, (tuple, list)) and len(grid) == 2
        if not is_pair or math.prod(grid) != length:
            raise CheckpointError(
                f"`grid` must be (rows, columns) of {length} positions. "
                f"Received: grid={grid!r}"
            )
        return tuple(grid)
    grid = square_grid(length)
    if grid is None:
        raise CheckpointError(
            f"the file has {length} positions, not a square: pass "
            "grid=(rows, columns) (--grid)"
        )
    return grid
