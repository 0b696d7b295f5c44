"""Runs a model so that its attention can be seen, and its gradients by every backend.

A `Tracer` calls the model with an observer in place (`kernels/observation.py`) and
hands what it saw to a function that makes maps of it, all in one compiled function, so
that the attention of large models never leaves the backend.
"""

import dataclasses
import weakref
from collections.abc import Callable
from collections.abc import Mapping

import keras
import numpy as np
from keras import ops

from cct_keras.explaining.readout import Readout
from cct_keras.explaining.readout import find_readout
from cct_keras.explaining.readout import tokens_of_mean
from cct_keras.inference.trained import last_operation
from cct_keras.inference.trained import output_activation
from cct_keras.kernels.observation import observe
from cct_keras.kernels.observation import observed
from cct_keras.models.inspection import find_tokenizer

# As a target: the class that the model itself predicts.
PREDICTED = -1
# TensorFlow compiles a function only for more images: tracing it takes about a second.
FEW_IMAGES = 48

_tracers = weakref.WeakKeyDictionary()


@dataclasses.dataclass(frozen=True)
class Trace:
    """What was seen of a batch on its way through the model.

    Attributes:
        readout: Which tokens the head reads.
        tokens: `(batch, tokens, dim)`, what the tokenizer made of the images.
        attention: For each block `(batch, heads, tokens, tokens)`.
        pool: The weights of SeqPool `(batch, tokens)`, or of attention pooling
            `(batch, heads, 1, tokens)`; `None` without one.
        read: `(batch, tokens, dim)`, what a head reads the mean of; `None` for others.
        gradients: Under the same names the derivatives of the target's score.
        logits: `(batch, classes)`.
    """

    readout: Readout
    tokens: object
    attention: tuple
    pool: object
    read: object
    gradients: Mapping[str, object]
    logits: object


class Tracer:
    """Computes maps of a model, batch by batch.

    Args:
        model: A classifier of this package.
    """

    def __init__(self, model: keras.Model):
        self._readout = find_readout(model)
        self._tokenizer = find_tokenizer(model)
        logits, self._as_probabilities = _without_softmax(model)
        read = tokens_of_mean(model, self._readout)
        self.model = keras.Model(model.input, _showing(read, logits))
        # A model that was quantized or got another layer has other variables.
        self._variables = list(model.variables)
        self._compiled = {}

    def is_current(self, model: keras.Model) -> bool:
        """Whether the model has the same variables as when the tracer was made."""
        now = model.variables
        return len(now) == len(self._variables) and all(
            a is b for a, b in zip(now, self._variables, strict=True)
        )

    def readout(self, image_shape: tuple) -> Readout:
        """What the head reads of images of this shape, the batch axis included."""
        if None not in self._readout.grid:
            return self._readout
        grid = self._tokenizer.compute_grid(image_shape)
        return dataclasses.replace(self._readout, grid=grid)

    def run(
        self,
        make_maps: Callable | None,
        watched: tuple[str, ...],
        images: np.ndarray,
        targets: np.ndarray,
        *,
        few: bool = False,
    ) -> tuple[np.ndarray | None, np.ndarray]:
        """Computes the maps of a batch.

        Args:
            make_maps: From a `Trace` to a tensor; `None` for the probabilities alone.
            watched: What to differentiate by: some of `"tokens"`, `"attention"`,
                `"pool"` and `"read"`, as far as the model has them.
            images: Input of the model.
            targets: Class of each image, or `PREDICTED`.
            few: Whether so few images come that compiling would take longer.

        Returns:
            The maps, and the probabilities.
        """
        run = {
            "tensorflow": self._run_tensorflow,
            "jax": self._run_jax,
            "torch": self._run_torch,
        }[keras.config.backend()]
        outputs = run(make_maps, watched, images, targets.astype("int32"), few)
        maps, probabilities = (
            None if x is None else ops.convert_to_numpy(x).astype("float32")
            for x in outputs
        )
        return maps, probabilities

    # === One backend each ===

    def _run_tensorflow(self, make_maps, watched, images, targets, few):
        import tensorflow as tf

        def compute(images, targets):
            seen = _Seen(watched)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                seen.watch = tape.watch
                with observe(seen):
                    logits = self.model(images, training=False)
                score = _score(logits, targets)
            gradients = tape.gradient(score, seen.watched) if seen.watched else ()
            return self._finish(make_maps, seen, gradients, logits, images)

        key = (make_maps, images.shape[1:])
        if few and key not in self._compiled:
            return compute(tf.convert_to_tensor(images), tf.convert_to_tensor(targets))
        if key not in self._compiled:
            self._compiled[key] = tf.function(
                compute,
                input_signature=[
                    tf.TensorSpec((None, *images.shape[1:]), images.dtype),
                    tf.TensorSpec((None,), tf.int32),
                ],
                autograph=False,
            )
        return self._compiled[key](images, targets)

    def _run_jax(self, make_maps, watched, images, targets, few):
        import jax

        def forward(offsets, variables, images, targets):
            seen = _Seen(watched)
            # JAX differentiates by arguments: by zeros that are added on the way.
            remaining = None if offsets is None else iter(offsets)
            seen.add = None if remaining is None else lambda x: x + next(remaining)
            with observe(seen):
                logits, _ = self.model.stateless_call(
                    *variables, images, training=False
                )
            return _score(logits, targets), (seen, logits)

        def compute(variables, images, targets):
            shapes = []

            def measure(variables, images, targets):
                _, (seen, _) = forward(None, variables, images, targets)
                shapes.extend((x.shape, x.dtype) for x in seen.watched)
                return 0

            jax.eval_shape(measure, variables, images, targets)
            offsets = [jax.numpy.zeros(*shape) for shape in shapes]
            inner = {}

            def score(offsets):
                value, (seen, logits) = forward(offsets, variables, images, targets)
                inner["seen"] = seen
                return value, (logits, seen.tensors())

            if offsets:
                (_, (logits, tensors)), gradients = jax.value_and_grad(
                    score, has_aux=True
                )(offsets)
            else:
                (_, (logits, tensors)), gradients = score(offsets), ()
            seen = inner["seen"].with_tensors(tensors)
            return self._finish(make_maps, seen, gradients, logits, images)

        # JAX compiles anew for every number of images: powers of two are few.
        count = len(images)
        missing = (1 << (count - 1).bit_length()) - count
        images = np.concatenate([images, np.repeat(images[:1], missing, axis=0)])
        targets = np.concatenate([targets, np.repeat(targets[:1], missing)])
        if make_maps not in self._compiled:
            self._compiled[make_maps] = jax.jit(compute)
        variables = tuple(
            [variable.value for variable in group]
            for group in (
                self.model.trainable_variables,
                self.model.non_trainable_variables,
            )
        )
        outputs = self._compiled[make_maps](variables, images, targets)
        return tuple(None if x is None else x[:count] for x in outputs)

    def _run_torch(self, make_maps, watched, images, targets, few):
        import torch

        seen = _Seen(watched)
        # A model whose weights are frozen records nothing until somebody asks.
        seen.add = lambda x: x if x.requires_grad else x.detach().requires_grad_()
        with torch.set_grad_enabled(bool(watched)):
            images = ops.convert_to_tensor(images)
            with observe(seen):
                logits = self.model(images, training=False)
            score = _score(logits, ops.convert_to_tensor(targets))
            gradients = torch.autograd.grad(score, seen.watched) if seen.watched else ()
        with torch.no_grad():
            return self._finish(make_maps, seen, gradients, logits, images)

    # === What they share ===

    def _finish(self, make_maps, seen, gradients, logits, images):
        logits = ops.cast(logits, "float32")
        probabilities = self._as_probabilities(logits)
        if make_maps is None:
            return None, probabilities
        readout = self.readout(images.shape)
        return make_maps(seen.as_trace(readout, gradients, logits)), probabilities


def open_tracer(model: keras.Model) -> Tracer:
    """The tracer of a model; its compiled functions are kept as long as the model."""
    tracer = _tracers.get(model)
    if tracer is None or not tracer.is_current(model):
        tracer = _tracers[model] = Tracer(model)
    return tracer


class _Seen:
    """An observer that keeps what it sees."""

    def __init__(self, kinds):
        self.kinds = kinds
        self.found = []
        # The backend's way of differentiating by a value on the way.
        self.watch = self.add = None

    def __call__(self, kind, value):
        if kind in self.kinds:
            value = value if self.add is None else self.add(value)
            if self.watch is not None:
                self.watch(value)
        self.found.append((kind, value))
        return value

    @property
    def watched(self):
        return [value for kind, value in self.found if kind in self.kinds]

    def tensors(self):
        return [value for _, value in self.found]

    def with_tensors(self, tensors):
        other = _Seen(self.kinds)
        kinds = (kind for kind, _ in self.found)
        other.found = list(zip(kinds, tensors, strict=True))
        return other

    def as_trace(self, readout, gradients, logits):
        derivatives = iter(gradients)
        values, slopes = {}, {}
        for kind, value in self.found:
            values.setdefault(kind, []).append(ops.cast(value, "float32"))
            if kind in self.kinds:
                slope = ops.cast(next(derivatives), "float32")
                slopes.setdefault(kind, []).append(slope)
        return Trace(
            readout,
            values["tokens"][0],
            tuple(values["attention"]),
            values.get("pool", [None])[0],
            values.get("read", [None])[0],
            {
                kind: tuple(found) if kind == "attention" else found[0]
                for kind, found in slopes.items()
            },
            logits,
        )


def _score(logits, targets):
    """The sum of the targets' scores: images do not influence each other."""
    predicted = ops.cast(ops.argmax(logits, axis=-1), "int32")
    targets = ops.where(targets < 0, predicted, targets)
    chosen = ops.one_hot(targets, logits.shape[-1], dtype=logits.dtype)
    return ops.sum(chosen * logits)


class _Read(keras.layers.Layer):
    """Shows tokens on their way to a layer of Keras, which shows none by itself."""

    def call(self, tokens):
        return observed("read", tokens)


def _showing(read, logits):
    """The logits, computed from tokens that are shown; without tokens as they are."""
    if read is None:
        return logits
    return keras.Model(read, logits)(_Read(autocast=False)(read))


def _without_softmax(model):
    """The logits of a model, and the function that makes them probabilities.

    The derivative of a probability near 1 is almost 0, that of its logit is not. Where
    the end of a model cannot be taken off, the logarithm of its output stands in.
    """
    ending, last = output_activation(model), last_operation(model)
    if ending == "linear":
        # A single logit tells one class from its absence.
        return model.output, ops.sigmoid if model.output_shape[-1] == 1 else ops.softmax
    if ending == "softmax" and not getattr(last, "weights", ()):
        return last.input, ops.softmax
    return ops.log(ops.maximum(model.output, 1e-7)), ops.exp
