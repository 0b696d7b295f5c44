"""What a table of names is: the shared form of the checkpoint families."""

import re
from collections.abc import Sequence
from typing import NamedTuple

LEAVES = {"kernel": "weight", "gamma": "weight", "bias": "bias", "beta": "bias"}


class Architecture(NamedTuple):
    """What the tensors of a checkpoint tell of a model.

    Attributes:
        family: One of `models.factory.FAMILIES`.
        arguments: Arguments of its constructor.
        grid: `(rows, columns)` of its positions; `None` without positions.
    """

    family: str
    arguments: dict
    grid: tuple | None


class Table(NamedTuple):
    """Names of a checkpoint family beside those of this package.

    Attributes:
        names: Layer of this package, `{i}` a number, and its prefix there.
        tensors: Path of a weight of this package to its name there, for those that
            are not the weight or bias of a layer.
        positions: Name of the position table.
        first_kernel: Name of the first convolution's kernel.
        heads: Names of the heads' weights, the class token's first.
        top: Prefixes of what a model without top, or with another head, does
            without.
    """

    names: Sequence[tuple[str, str]]
    tensors: dict[str, str]
    positions: str
    first_kernel: str
    heads: tuple[str, ...]
    top: tuple[str, ...]

    def checkpoint_name(self, path: str) -> str | None:
        """The name there of a weight of this package, by its path."""
        if path in self.tensors:
            return self.tensors[path]
        layer, _, leaf = path.rpartition("/")
        for ours, theirs in self.names:
            match = re.fullmatch(ours.replace("{i}", r"(\d+)"), layer)
            if match and leaf in LEAVES:
                prefix = theirs.replace("{i}", match[1]) if match.groups() else theirs
                return f"{prefix}.{LEAVES[leaf]}"
        return None
