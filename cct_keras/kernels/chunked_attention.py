"""Attention with dropout on torch and a CPU, without all of its weights in memory.

A few images are computed at a time: their attention weights stay in the cache of the
processor, and the backward pass computes them again.
"""

import functools

from cct_keras.kernels.keep_mask import keep_mask

# Size of the attention weights of one chunk: about a second-level cache.
CHUNK_BYTES = 2**20


def chunked_attention(query, key, value, dropout_rate: float, seed_generator):
    """Attention of torch tensors `(batch, heads, tokens, dim)` on a CPU.

    Args:
        query: The queries.
        key: The keys.
        value: The values.
        dropout_rate: Share of the attention weights that is dropped.
        seed_generator: A `keras.random.SeedGenerator` that decides which.

    Returns:
        A tensor like `query`.
    """
    matrices = [x.reshape(-1, *x.shape[-2:]) for x in (query, key, value)]
    length = query.shape[-2]
    keep = keep_mask((len(matrices[0]), length, length), dropout_rate, seed_generator)
    output = _differentiable_function().apply(*matrices, keep, dropout_rate)
    return output.reshape(query.shape)


@functools.cache
def _differentiable_function():
    import torch

    class ChunkedAttention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, query, key, value, keep, dropout_rate):
            ctx.factor = 1 / (1 - dropout_rate)
            output = torch.empty_like(query)
            for chunk, weights, kept in _chunks(query, key, keep):
                _product(weights.mul_(kept), value[chunk], ctx.factor, output[chunk])
            ctx.save_for_backward(query, key, value, keep, output)
            return output

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, gradient):
            query, key, value, keep, output = ctx.saved_tensors
            to_query, to_key, to_value = map(torch.empty_like, (query, key, value))
            # The softmax subtracts from every row of its gradient the mean of that
            # row, weighted by the attention. It follows from the output alone.
            means = (gradient * output).sum(-1, keepdim=True)
            scale = query.shape[-1] ** -0.5
            for chunk, weights, kept in _chunks(query, key, keep):
                scores = _product(gradient[chunk], value[chunk].mT, ctx.factor)
                scores.mul_(kept).sub_(means[chunk]).mul_(weights)
                weights = weights.mul_(kept).mT
                _product(weights, gradient[chunk], ctx.factor, to_value[chunk])
                _product(scores, key[chunk], scale, to_query[chunk])
                _product(scores.mT, query[chunk], scale, to_key[chunk])
            return to_query, to_key, to_value, None, None

    return ChunkedAttention


def _chunks(query, key, keep):
    """Yields `(chunk, weights, kept)`; `kept` is 1 where a weight is kept, else 0."""
    import torch

    count, tokens, dim = query.shape
    size = max(1, CHUNK_BYTES // (tokens**2 * query.element_size()))
    for start in range(0, count, size):
        chunk = slice(start, start + size)
        scores = _product(query[chunk], key[chunk].mT, dim**-0.5)
        # torch converts integers six times as fast as booleans.
        kept = keep[chunk].view(torch.uint8).to(query.dtype)
        yield chunk, torch.softmax(scores, -1), kept


def _product(a, b, factor, out=None):
    """`factor * a @ b`; the factor takes no pass of its own."""
    import torch

    if out is None:
        out = a.new_empty((*a.shape[:-1], b.shape[-1]))
    return torch.baddbmm(out, a, b, beta=0, alpha=factor, out=out)
