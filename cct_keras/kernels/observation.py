"""A view of what a model computes on the way, for those who explain it.

Layers hand three intermediate values to `observed`: the tokens that the tokenizer made
(`"tokens"`), the attention weights of each block (`"attention"`) and the weights of
sequence or attention pooling (`"pool"`). Nobody looks unless `observe` is active.
"""

import contextlib
import contextvars
from collections.abc import Callable
from collections.abc import Iterator

_observer = contextvars.ContextVar("observer", default=None)


def observed(kind: str, value):
    """What a layer goes on with: the value, or what the observer returns for it.

    Args:
        kind: What it is: `"tokens"`, `"attention"` or `"pool"`.
        value: A tensor.
    """
    observer = _observer.get()
    return value if observer is None else observer(kind, value)


def is_observed() -> bool:
    """Whether somebody looks: fused operations, which keep their weights to
    themselves, are then left aside."""
    return _observer.get() is not None


@contextlib.contextmanager
def observe(observer: Callable) -> Iterator[None]:
    """Shows intermediate values to a function while a model is called or traced.

    Functions that were traced or compiled before stay as they are.

    Args:
        observer: Takes the kind and the value, and returns the value, or another one
            with which the layer goes on.

    Example:

    >>> seen = []
    >>> def look(kind, value):
    ...     seen.append(kind)
    ...     return value
    >>> model = cct_keras.create_model("cct_2_3x2_32")
    >>> with observe(look):
    ...     probabilities = model(np.zeros((1, 32, 32, 3)))
    >>> seen
    ['tokens', 'attention', 'attention', 'pool']
    """
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)
