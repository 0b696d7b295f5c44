"""Which tokens the head of a model reads, and how much of each."""

import dataclasses

import keras
import numpy as np
from keras import ops

from cct_keras.errors import ModelError
from cct_keras.layers.seq_pool import SeqPool
from cct_keras.layers.token_pool import TokenPool
from cct_keras.models.inspection import architecture_of
from cct_keras.models.inspection import find_tokenizer


@dataclasses.dataclass(frozen=True)
class Readout:
    """What the head reads.

    Attributes:
        grid: Rows and columns of the image's tokens.
        prefix: How many other tokens stand before them, such as the class token.
        kind: `"pool"` for SeqPool, whose weights differ from image to image,
            `"token"` for prefix tokens, `"mean"` for all tokens of the image alike.
        indices: Which prefix tokens.
    """

    grid: tuple[int, int]
    prefix: int
    kind: str
    indices: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """Length of the sequence."""
        return self.prefix + self.grid[0] * self.grid[1]

    def weights(self, pool, batch):
        """How much the head reads of each token.

        Args:
            pool: Weights of SeqPool `(batch, image tokens)`; `None` for other kinds.
            batch: Number of images.

        Returns:
            Tensor `(batch, tokens)`, whose rows sum to 1.
        """
        if self.kind == "pool":
            return ops.pad(pool, [[0, 0], [self.length - pool.shape[-1], 0]])
        shares = np.zeros(self.length, "float32")
        if self.kind == "token":
            shares[list(self.indices)] = 1 / len(self.indices)
        else:
            shares[self.prefix :] = 1 / (self.length - self.prefix)
        return ops.broadcast_to(ops.convert_to_tensor(shares), (batch, self.length))

    def image_tokens(self, values):
        """The values of the image's own tokens, the prefix tokens left out."""
        return values[..., self.prefix :]


def find_readout(model: keras.Model) -> Readout:
    """What the head of a model reads.

    Args:
        model: A classifier of this package, or one built on it.

    Raises:
        ModelError: Nothing between the blocks and the head says it.

    Example:

    >>> find_readout(cct_keras.create_model("vit_2_4_32"))
    Readout(grid=(8, 8), prefix=1, kind='token', indices=(0,))
    """
    tokenizer = find_tokenizer(model)
    grid = tokenizer.compute_grid(tokenizer.input.shape)
    prefix = len(architecture_of(model).prefix_tokens)
    pools = [layer for layer in model.layers if isinstance(layer, SeqPool)]
    if pools:
        return Readout(grid, prefix, "pool")
    tokens = [layer for layer in model.layers if isinstance(layer, TokenPool)]
    if tokens:
        indices = tuple(layer.index for layer in tokens)
        return Readout(grid, prefix, "token", indices)
    means = (keras.layers.GlobalAveragePooling1D, keras.layers.GlobalMaxPooling1D)
    if any(isinstance(layer, means) for layer in model.layers):
        return Readout(grid, prefix, "mean")
    raise ModelError(
        f"{model.name!r} pools its tokens in a way that is not known here; SeqPool, "
        "TokenPool and global pooling are"
    )
