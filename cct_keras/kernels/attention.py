"""Scaled dot-product attention."""

import keras
from keras import ops

from cct_keras.kernels.chunked_attention import chunked_attention
from cct_keras.kernels.device import tuned_for_cpu
from cct_keras.kernels.keep_mask import keep_mask
from cct_keras.kernels.observation import is_observed
from cct_keras.kernels.observation import observed


def attention(
    query,
    key,
    value,
    *,
    dropout_rate: float = 0.0,
    seed_generator: keras.random.SeedGenerator | None = None,
    return_weights: bool = False,
    shown_as: str = "attention",
):
    """`softmax(query @ key.T / sqrt(dim)) @ value`, with dropout on the softmax.

    Args:
        query: Tensor `(batch, heads, queries, dim)`.
        key: Tensor `(batch, heads, tokens, dim)`.
        value: Tensor of the same shape as `key`.
        dropout_rate: Share of the attention weights that is dropped.
        seed_generator: Decides which weights are dropped; needed for dropout only.
        return_weights: Whether to return `(output, weights)`, the weights
            `(batch, heads, queries, tokens)` as they are before dropout.
        shown_as: What the weights are called to whoever observes the model.

    Returns:
        A tensor like `query`, or two tensors with `return_weights=True`.

    Example:

    >>> query, key, value = keras.random.normal((3, 2, 4, 64, 32))
    >>> keras.ops.shape(attention(query, key, value))
    (2, 4, 64, 32)
    """
    dropout = (dropout_rate, seed_generator)
    if return_weights:
        return _attention_by_formula(query, key, value, *dropout, shown_as)
    if is_observed():
        output, _ = _attention_by_formula(query, key, value, 0.0, None, shown_as)
        return output
    on_cpu = tuned_for_cpu(query)
    on_torch = keras.config.backend() == "torch"
    if dropout_rate and on_cpu and on_torch:
        return chunked_attention(query, key, value, dropout_rate, seed_generator)
    if not dropout_rate and on_cpu and on_torch:
        import torch

        return torch.nn.functional.scaled_dot_product_attention(query, key, value)
    if not dropout_rate and not on_cpu:
        return _fused_attention(query, key, value)
    output, _ = _attention_by_formula(query, key, value, *dropout, shown_as)
    return output


def _attention_by_formula(query, key, value, dropout_rate, seed_generator, shown_as):
    scale = query.shape[-1] ** -0.5
    scores = ops.matmul(query * scale, ops.swapaxes(key, -1, -2))
    weights = observed(shown_as, ops.softmax(scores, axis=-1))
    if not dropout_rate:
        return ops.matmul(weights, value), weights
    if not tuned_for_cpu(query):
        dropped = keras.random.dropout(weights, dropout_rate, seed=seed_generator)
        return ops.matmul(dropped, value), weights
    keep = keep_mask(ops.shape(weights), dropout_rate, seed_generator)
    # To scale the product instead of the weights saves a pass over the weights.
    product = ops.matmul(ops.where(keep, weights, 0.0), value)
    return product * (1.0 / (1.0 - dropout_rate)), weights


def _fused_attention(query, key, value):
    """Keras' operation, whose tensors are `(batch, tokens, heads, dim)`."""
    query, key, value = (ops.swapaxes(x, 1, 2) for x in (query, key, value))
    return ops.swapaxes(ops.dot_product_attention(query, key, value), 1, 2)
