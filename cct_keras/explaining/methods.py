"""The methods, one row each: from what was seen of an image to a map of its tokens."""

import dataclasses
import numbers
from collections.abc import Callable

import numpy as np
from keras import ops

from cct_keras.errors import ModelError
from cct_keras.explaining.readout import Readout
from cct_keras.explaining.tracing import Trace
from cct_keras.spelling import did_you_mean


@dataclasses.dataclass(frozen=True)
class Method:
    """One way to say where a model looks.

    Attributes:
        name: What users call it.
        meaning: What a value of the map is, for legends.
        make_maps: From a `Trace` to values `(batch, image tokens)`; those of
            `"attention"` have the axes block and head before the tokens. `None` if the
            method needs no trace.
        watched: What is differentiated by.
        class_specific: Whether another target gives another map.
        signed: Whether values may be negative.
    """

    name: str
    meaning: str
    make_maps: Callable[[Trace], object] | None
    watched: tuple[str, ...] = ()
    class_specific: bool = False
    signed: bool = False


def seqpool_maps(trace: Trace):
    """The weights by which SeqPool, or attention pooling, averages the tokens."""
    return trace.readout.image_tokens(_reading(trace))


def attention_maps(trace: Trace):
    """What the head reads, through the attention of one block and head.

    A class token's own row of the attention; where a pooling reads all tokens, the mean
    of their rows by the weights of the pooling.

    Returns:
        Tensor `(batch, blocks, heads, image tokens)`.
    """
    reading = ops.expand_dims(_reading(trace), (1, 2))
    rows = [ops.squeeze(ops.matmul(reading, x), axis=2) for x in trace.attention]
    return trace.readout.image_tokens(ops.stack(rows, axis=1))


def rollout_maps(trace: Trace):
    """Attention rollout (Abnar and Zuidema, 2020).

    The attention of a block, averaged over its heads, is mixed half and half with the
    identity, which stands for the residual connection, and the blocks are multiplied.
    In CCT, CVT and ViT-Lite the second normalization of a block replaces the residual
    stream, so that one half is no more than a convention there.
    """
    flow = _reading(trace)
    for attention in reversed(trace.attention):
        mean = ops.mean(attention, axis=1)
        flow = 0.5 * flow + 0.5 * _through(flow, mean)
    return trace.readout.image_tokens(flow)


def gradient_maps(trace: Trace):
    """Relevance of attention times its gradient (Chefer, Gur and Wolf, 2021).

    In every block the positive part of attention times gradient, averaged over the
    heads, is added to the relevance that came so far. It begins with the class token
    that the head reads; SeqPool is an attention too, and begins with its own weights
    times gradient, as does a mean, whose weights are equal.
    """
    flow, relevances = _relevance(trace)
    for relevance in reversed(relevances):
        flow = flow + _through(flow, relevance)
    return trace.readout.image_tokens(flow)


def gradient_rollout_maps(trace: Trace):
    """Attention rollout by the relevance of `gradient_maps` instead of attention.

    The rows of a block's relevance are made to sum to 1 and mixed half and half with
    the identity. So every block counts alike, where in `gradient_maps` the blocks with
    small gradients add next to nothing to what came before.
    """
    flow, relevances = _relevance(trace)
    for relevance in reversed(relevances):
        total = ops.sum(relevance, axis=-1, keepdims=True)
        shares = relevance / ops.where(total > 0, total, 1.0)
        flow = 0.5 * flow + 0.5 * _through(flow, shares)
    return trace.readout.image_tokens(flow)


def gradcam_maps(trace: Trace):
    """Grad-CAM (Selvaraju et al., 2017) on the last stage of the tokenizer."""
    importance = ops.mean(trace.gradients["tokens"], axis=1, keepdims=True)
    return ops.relu(ops.sum(importance * trace.tokens, axis=-1))


def _relevance(trace):
    """What is relevant of what the head reads, and of the attention of each block."""
    pairs = zip(trace.attention, trace.gradients["attention"], strict=True)
    relevances = [
        ops.mean(ops.relu(weights * slope), axis=1) for weights, slope in pairs
    ]
    if "pool" in trace.gradients:
        start = ops.relu(trace.pool * trace.gradients["pool"])
    elif "read" in trace.gradients:
        # Equal weights times their gradient, without the weights being anywhere.
        start = ops.relu(ops.sum(trace.read * trace.gradients["read"], axis=-1))
    else:
        return _reading(trace), relevances
    start = trace.readout.over_tokens(start)
    # Where no token speaks for the class, what the head reads has to do.
    speaks = ops.max(start, axis=-1, keepdims=True) > 0
    return ops.where(speaks, start, _reading(trace)), relevances


def _reading(trace):
    return trace.readout.weights(trace.pool, ops.shape(trace.tokens)[0])


def _through(flow, attention):
    """`(batch, tokens)` times `(batch, tokens, tokens)`."""
    return ops.squeeze(ops.matmul(ops.expand_dims(flow, 1), attention), axis=1)


# Used where nobody names a method. `python benchmarks/explain.py` prints why.
BEST = "gradient_rollout"
METHODS = {
    method.name: method
    for method in (
        Method("seqpool", "weight of the token in the pooling", seqpool_maps),
        Method("attention", "attention to the token", attention_maps),
        Method("rollout", "attention that flows to the token", rollout_maps),
        Method(
            "gradient",
            "relevance of the token",
            gradient_maps,
            watched=("attention", "pool", "read"),
            class_specific=True,
        ),
        Method(
            "gradient_rollout",
            "relevance that flows to the token",
            gradient_rollout_maps,
            watched=("attention", "pool", "read"),
            class_specific=True,
        ),
        Method(
            "gradcam",
            "relevance of the token",
            gradcam_maps,
            watched=("tokens",),
            class_specific=True,
        ),
        Method(
            "occlusion",
            "fall of the log-probability if the place is covered",
            None,
            class_specific=True,
            signed=True,
        ),
    )
}


def find_method(name: str | None, readout: Readout) -> Method:
    """The row of a method, if it can be used on a model.

    Args:
        name: Its name; `None` for the one that the judge found best.
        readout: What the head of the model reads.
    """
    name = BEST if name is None else name
    if not isinstance(name, str) or name not in METHODS:
        raise ModelError(
            f"unknown `method` {name!r}. {did_you_mean(str(name), METHODS)}"
        )
    if name == "seqpool" and readout.kind != "pool":
        usable = ", ".join(other for other in METHODS if other != name)
        raise ModelError(
            "method='seqpool' shows the weights of a learned pooling, and this model "
            f"has none; use one of: {usable}"
        )
    return METHODS[name]


def usable_methods(readout: Readout) -> list[str]:
    """Names of the methods that can be used on a model."""
    return [name for name in METHODS if name != "seqpool" or readout.kind == "pool"]


def choose_head(values: np.ndarray, block: int | None, head: int | None) -> np.ndarray:
    """Of the maps of all blocks and heads, those of one block and one head.

    Args:
        values: `(blocks, heads, rows, columns)`.
        block: Which block, from 0, or from -1 backwards; by default the last.
        head: Which head; by default the mean of all.

    Returns:
        `(rows, columns)`.
    """
    blocks, heads = values.shape[:2]
    block = -1 if block is None else block
    for name, index, count in (("block", block, blocks), ("head", head, heads)):
        if index is None:
            continue
        if not isinstance(index, numbers.Integral) or not -count <= index < count:
            raise ModelError(
                f"`{name}` must be from 0 to {count - 1}, or from -1 to {-count}. "
                f"Received: {name}={index}"
            )
    return values[block].mean(axis=0) if head is None else values[block, head]
