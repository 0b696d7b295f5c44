"""Tables of names: the weights of this package beside those of a checkpoint."""

import re
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

LEAVES = {
    "kernel": "weight",
    "gamma": "weight",
    "bias": "bias",
    "beta": "bias",
    "scale": "gamma",
}


class NameTable(NamedTuple):
    """Names of a kind of checkpoint beside those of this package.

    Attributes:
        layers: Layer of this package, `{i}` a number, and its prefix in the checkpoint.
        tensors: Path of a weight of this package to its name in the checkpoint, for
            those that are not the weight or bias of a layer.
        block_order: Order of normalization and residual sums in its blocks; see
            `models.families.Family`.
        description: What an error calls its models.
        tokenizer: The tokenizer of its models; `None` where a bias of the first
            convolution tells whether it is one of patches.
        has_bodies: Whether there are classes with these names that have no head.
    """

    layers: Sequence[tuple[str, str]]
    tensors: Mapping[str, str]
    block_order: str
    description: str
    tokenizer: str | None = None
    has_bodies: bool = False

    def name_of(self, path: str) -> str | None:
        """The name in the checkpoint of a weight of this package, by its path."""
        if path in self.tensors:
            return self.tensors[path]
        layer, _, leaf = path.rpartition("/")
        for ours, theirs in self.layers:
            match = re.fullmatch(ours.replace("{i}", r"(\d+)"), layer)
            if match and leaf in LEAVES:
                prefix = theirs.replace("{i}", match[1]) if match.groups() else theirs
                return f"{prefix}.{LEAVES[leaf]}"
        return None
