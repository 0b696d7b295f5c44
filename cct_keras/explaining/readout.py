"""Which tokens the head of a model reads, and how much of each."""

import dataclasses

import keras
import numpy as np
from keras import ops

from cct_keras.errors import ModelError
from cct_keras.layers.attention_pool import AttentionPool
from cct_keras.layers.seq_pool import SeqPool
from cct_keras.layers.token_pool import TokenPool
from cct_keras.models.inspection import architecture_of
from cct_keras.models.inspection import find_tokenizer

# Pooling without weights.
MEANS = (keras.layers.GlobalAveragePooling1D, keras.layers.GlobalMaxPooling1D)


@dataclasses.dataclass(frozen=True)
class Readout:
    """What the head reads.

    Attributes:
        grid: Rows and columns of the image's tokens.
        prefix: How many other tokens stand before them, such as the class token and
            registers.
        kind: `"pool"` for SeqPool and attention pooling, whose weights differ from
            image to image, `"token"` for prefix tokens, `"mean"` for all tokens of the
            image alike, `"token_mean"` for both of these, side by side.
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
            pool: Weights of the pooling, as `over_tokens` takes them; `None` for kinds
                without.
            batch: Number of images.

        Returns:
            Tensor `(batch, tokens)`, whose rows sum to 1.
        """
        if self.kind == "pool":
            return self.over_tokens(pool)
        shares = np.zeros(self.length, "float32")
        # Side by side, a prefix token and the mean count alike.
        parts = ("token", "mean") if self.kind == "token_mean" else (self.kind,)
        if "token" in parts:
            shares[list(self.indices)] = 1 / len(self.indices) / len(parts)
        if "mean" in parts:
            shares[self.prefix :] = 1 / (self.length - self.prefix) / len(parts)
        return ops.broadcast_to(ops.convert_to_tensor(shares), (batch, self.length))

    def over_tokens(self, values):
        """Values of what a pooling reads, as values of the whole sequence.

        Args:
            values: `(batch, tokens)`, or `(batch, heads, 1, tokens)` of attention
                pooling, whose heads are averaged. The tokens are the last of the
                sequence.

        Returns:
            Tensor `(batch, tokens)`, 0 for tokens that are not read.
        """
        if len(values.shape) == 4:
            values = ops.mean(values, axis=(1, 2))
        return ops.pad(values, [[0, 0], [self.length - values.shape[-1], 0]])

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
    prefix = architecture_of(model).num_prefix_tokens
    if _layers(model, (SeqPool, AttentionPool)):
        return Readout(grid, prefix, "pool")
    indices = tuple(layer.index for layer in _layers(model, TokenPool))
    means = _layers(model, MEANS)
    if indices:
        return Readout(grid, prefix, "token_mean" if means else "token", indices)
    if means:
        return Readout(grid, prefix, "mean")
    raise ModelError(
        f"{model.name!r} pools its tokens in a way that is not known here; SeqPool, "
        "AttentionPool, TokenPool and global pooling are"
    )


def tokens_of_mean(model: keras.Model, readout: Readout):
    """The tokens that a head reads the mean of, and beside it a prefix token, if any.

    Args:
        model: A model.
        readout: What its head reads.

    Returns:
        A symbolic tensor of the model; `None` if the head reads no mean.
    """
    kinds = {"mean": MEANS, "token_mean": TokenPool}
    if readout.kind not in kinds:
        return None
    return _layers(model, kinds[readout.kind])[0].input


def _layers(model, kind):
    return [layer for layer in model.layers if isinstance(layer, kind)]
