"""The architectures in NumPy and float64, and their derivatives by differences.

Nothing of the package is used: the weights have the names of timm or of the authors.
"""

import numpy as np
from scipy.special import erf

STEP = 1e-5


class PlainModel:
    """From the tokens of one image to logits, with offsets on the way.

    Args:
        row: A row of the golden attention.
        state: Its weights.
    """

    def __init__(self, row, state):
        self.row = row
        self.state = {name: x.astype("float64") for name, x in state.items()}
        self.modern = "patch_size" in row

    def __call__(self, tokens, offsets=None):
        """The logits, the attention of each block, and the weights of SeqPool.

        Args:
            tokens: `(batch, image tokens, dim)`, what the tokenizer made.
            offsets: What is added to the attention of a block (by its number) or to
                the weights of SeqPool (`"pool"`), with an axis for the batch.
        """
        offsets = {} if offsets is None else offsets
        x = self._with_prefix_and_positions(tokens)
        seen = []
        for number in range(self.row["num_layers"]):
            x, weights = self._block(x, number, offsets.get(number, 0.0))
            seen.append(weights)
        pool = None
        if self.modern:
            x = self._norm(x, "norm")
            logits = self._linear(x[:, 0], "head")
            if "head_dist.weight" in self.state:
                logits = (logits + self._linear(x[:, 1], "head_dist")) / 2
            return logits, seen, pool
        x = self._norm(x, "classifier.norm")
        if "classifier.class_emb" in self.state:
            return self._linear(x[:, 0], "classifier.fc"), seen, pool
        scores = self._linear(x, "classifier.attention_pool")[..., 0]
        pool = softmax(scores) + offsets.get("pool", 0.0)
        return self._linear((pool[:, None] @ x)[:, 0], "classifier.fc"), seen, pool

    def _with_prefix_and_positions(self, tokens):
        names = {
            "prefix": ("classifier.class_emb",),
            "positions": "classifier.positional_emb",
        }
        if self.modern:
            names = {"prefix": ("cls_token", "dist_token"), "positions": "pos_embed"}
        prefix = [self.state[name] for name in names["prefix"] if name in self.state]
        prefix = [np.repeat(x, len(tokens), axis=0) for x in prefix]
        x = np.concatenate([*prefix, tokens], axis=1)
        return x + self.state.get(names["positions"], 0.0)

    def _block(self, x, number, offset):
        if self.modern:
            name = f"blocks.{number}"
            changed, weights = self._attend(
                self._norm(x, f"{name}.norm1"), f"{name}.attn", offset
            )
            x = x + changed
            hidden = self._linear(self._norm(x, f"{name}.norm2"), f"{name}.mlp.fc1")
            return x + self._linear(gelu(hidden), f"{name}.mlp.fc2"), weights
        name = f"classifier.blocks.{number}"
        changed, weights = self._attend(
            self._norm(x, f"{name}.pre_norm"), f"{name}.self_attn", offset
        )
        # The authors' code goes on with the normalized tokens.
        x = self._norm(x + changed, f"{name}.norm1")
        hidden = gelu(self._linear(x, f"{name}.linear1"))
        return x + self._linear(hidden, f"{name}.linear2"), weights

    def _attend(self, x, name, offset):
        batch, length, dim = x.shape
        heads = self.row["num_heads"]
        parts = self._linear(x, f"{name}.qkv").reshape(batch, length, 3, heads, -1)
        query, key, value = parts.transpose(2, 0, 3, 1, 4)
        scores = query @ key.swapaxes(-1, -2) / np.sqrt(dim // heads)
        weights = softmax(scores) + offset
        mixed = (weights @ value).transpose(0, 2, 1, 3).reshape(batch, length, dim)
        return self._linear(mixed, f"{name}.proj"), weights

    def _linear(self, x, name):
        return x @ self.state[f"{name}.weight"].T + self.state.get(f"{name}.bias", 0.0)

    def _norm(self, x, name):
        # Of `transformers`, and of torch where nobody says otherwise.
        epsilon = 1e-12 if self.modern else 1e-5
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + epsilon)
        return x * self.state[f"{name}.weight"] + self.state[f"{name}.bias"]

    def slope(self, tokens, target, by):
        """The derivative of a logit, by central differences, all in one batch.

        Args:
            tokens: `(image tokens, dim)`.
            target: Which logit.
            by: `"tokens"`, `"pool"` or the number of a block.
        """
        _, attention, pool = self(tokens[None])
        if by == "tokens":
            shape = tokens.shape
        else:
            shape = pool[0].shape if by == "pool" else attention[by][0].shape
        steps = STEP * np.eye(int(np.prod(shape))).reshape(-1, *shape)

        def logits(steps):
            repeated = np.repeat(tokens[None], len(steps), axis=0)
            if by == "tokens":
                return self(repeated + steps)[0][:, target]
            return self(repeated, {by: steps})[0][:, target]

        return ((logits(steps) - logits(-steps)) / (2 * STEP)).reshape(shape)


def softmax(x):
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def gelu(x):
    return x * (1 + erf(x / np.sqrt(2))) / 2
