"""Attention on torch without all of its weights in memory at once.

Without dropout torch has a kernel for that. With dropout, on a CPU, a few images are
done at a time: their weights stay in the cache of the processor, and the backward pass
computes them again.
"""

import functools

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
    first, second = seed_generator.next().tolist()
    flat = (x.reshape(-1, *x.shape[-2:]) for x in (query, key, value))
    output = _function().apply(*flat, rate, (first + second) % 2**32)
    return output.reshape(query.shape)


@functools.cache
def _function():
    import torch

    class ChunkedAttention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, query, key, value, rate, seed):
            ctx.rate, ctx.seed = rate, seed
            output = torch.empty_like(query)
            for part, weights, kept in _weights(query, key, rate, seed):
                torch.bmm(weights.mul_(kept), value[part], out=output[part])
            ctx.save_for_backward(query, key, value, output)
            return output

        @staticmethod
        def backward(ctx, gradient):
            query, key, value, output = ctx.saved_tensors
            to_query, to_key, to_value = map(torch.empty_like, (query, key, value))
            # What the softmax takes off every row, without its weights.
            means = (gradient * output).sum(-1, keepdim=True)
            for part, weights, kept in _weights(query, key, ctx.rate, ctx.seed):
                scores = torch.bmm(gradient[part], value[part].mT)
                scores.mul_(kept).sub_(means[part]).mul_(weights)
                scores.mul_(query.shape[-1] ** -0.5)
                torch.bmm(weights.mul_(kept).mT, gradient[part], out=to_value[part])
                torch.bmm(scores, key[part], out=to_query[part])
                torch.bmm(scores.mT, query[part], out=to_key[part])
            return to_query, to_key, to_value, None, None

    return ChunkedAttention


def _weights(query, key, rate, seed):
    """`(part, weights, what is kept of them, scaled)`, the same for the same seed."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    count, tokens, dim = query.shape
    size = max(1, CHUNK_BYTES // (tokens**2 * query.element_size()))
    for start in range(0, count, size):
        part = slice(start, start + size)
        scores = torch.bmm(query[part] * dim**-0.5, key[part].mT)
        weights = torch.softmax(scores, -1)
        kept = torch.empty_like(weights).bernoulli_(1 - rate, generator=generator)
        yield part, weights, kept.div_(1 - rate)
