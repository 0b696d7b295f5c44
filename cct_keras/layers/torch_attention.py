"""Attention on torch without all of its weights in memory at once.

Without dropout torch has a kernel for that. With dropout, on a CPU, a few images are
done at a time: their weights stay in the cache of the processor, and the backward pass
computes them again.
"""

import functools

from cct_keras.layers.keep_mask import keep_mask

# Of the weights at work; about the second level of caches.
CHUNK_BYTES = 2**20


def torch_attention(query, key, value, rate: float = 0.0, seed_generator=None):
    """Attention of tensors `(batch, heads, tokens, dim)` of torch.

    Args:
        query: The queries.
        key: The keys.
        value: The values.
        rate: Share of the weights that is dropped.
        seed_generator: A `keras.random.SeedGenerator` that decides which.

    Returns:
        A tensor like `query`, or `None` if there is no such way on the device.
    """
    import torch

    if not rate:
        return torch.nn.functional.scaled_dot_product_attention(query, key, value)
    if query.device.type != "cpu":
        return None
    flat = [x.reshape(-1, *x.shape[-2:]) for x in (query, key, value)]
    length = query.shape[-2]
    keep = keep_mask((len(flat[0]), length, length), rate, seed_generator)
    return _function().apply(*flat, keep, rate).reshape(query.shape)


@functools.cache
def _function():
    import torch

    class ChunkedAttention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, query, key, value, keep, rate):
            ctx.share = 1 - rate
            output = torch.empty_like(query)
            for part, weights, kept in _weights(query, key, keep):
                _product(weights.mul_(kept), value[part], 1 / ctx.share, output[part])
            ctx.save_for_backward(query, key, value, keep, output)
            return output

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, gradient):
            query, key, value, keep, output = ctx.saved_tensors
            to_query, to_key, to_value = map(torch.empty_like, (query, key, value))
            # What the softmax takes off every row, without its weights.
            means = (gradient * output).sum(-1, keepdim=True)
            scale = query.shape[-1] ** -0.5
            for part, weights, kept in _weights(query, key, keep):
                scores = _product(gradient[part], value[part].mT, 1 / ctx.share)
                scores.mul_(kept).sub_(means[part]).mul_(weights)
                weights = weights.mul_(kept).mT
                _product(weights, gradient[part], 1 / ctx.share, to_value[part])
                _product(scores, key[part], scale, to_query[part])
                _product(scores.mT, query[part], scale, to_key[part])
            return to_query, to_key, to_value, None, None

    return ChunkedAttention


def _weights(query, key, keep):
    """`(part, weights, what is kept of them)` for a few images at a time."""
    import torch

    count, tokens, dim = query.shape
    size = max(1, CHUNK_BYTES // (tokens**2 * query.element_size()))
    for start in range(0, count, size):
        part = slice(start, start + size)
        scores = _product(query[part], key[part].mT, dim**-0.5)
        # Integers are converted six times as fast as booleans.
        kept = keep[part].view(torch.uint8).to(query.dtype)
        yield part, torch.softmax(scores, -1), kept


def _product(a, b, factor, out=None):
    """`factor * a @ b`, the factor without a pass of its own."""
    import torch

    if out is None:
        out = a.new_empty((*a.shape[:-1], b.shape[-1]))
    return torch.baddbmm(out, a, b, beta=0, alpha=factor, out=out)
