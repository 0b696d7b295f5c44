"""Distillation: a student learns from labels and from what a teacher answers.

The teacher's logits travel with the labels, as further columns of the targets; a loss
and a metric know which is which. So training stays `compile` and `fit` of the student
itself, and the student's file knows of no teacher.

Why not `keras.distillation`: its `Distiller` is a model around both, so that weights,
snapshots and the compiled step hold the teacher, too. It takes only Keras models, of
the same input shape and dtype as the student, asks them again for every view, and has
no hard labels and no second head. Its `LogitsDistillation(loss=KLDivergence())` is the
soft term below, which the tests compare with it, but as a mean over the batch, which
padding weights cannot reach, of probabilities cut off at 1e-7. Without that argument
Keras 3.15.1 computes something else: its default, the name "kl_divergence", becomes a
function that gets the scaled logits in place of probabilities.
"""

import keras
from keras import ops

KINDS = ("hard", "soft")
TAU = 3.0
WEIGHT = 0.1


@keras.saving.register_keras_serializable(package="cct_keras")
class DistillationLoss(keras.losses.Loss):
    """What a student is told by the labels and by its teacher, as in DeiT.

    - `"hard"`: `1/2 CE(student, labels) + 1/2 CE(student, argmax teacher)`
    - `"soft"`: `(1 - weight) CE(student, labels) + weight tau^2 KL(softmax(teacher /
      tau) || softmax(student / tau))`

    A student with a distillation token has two heads, whose logits come side by side,
    see `two_heads`: the first learns from the labels, the second from the teacher.
    Targets without logits of a teacher, as in validation, give the cross-entropy of
    the student's own answer, the mean of its heads.

    Args:
        num_classes: Number of classes.
        kind: `"hard"` or `"soft"`.
        tau: Temperature of `"soft"`.
        weight: Weight of the teacher in `"soft"`.
        reduction: As for any Keras loss.
        name: Name of the loss.
        dtype: Dtype or policy of the loss.

    Call arguments:
        y_true: `(batch, 2 * num_classes)`, labels and the teacher's logits side by
            side, as `Teacher.teach` makes them; or `(batch, num_classes)`, labels.
        y_pred: Logits, `(batch, num_classes)`; of two heads twice as wide.

    Example:

    >>> teacher = Teacher(teacher_model, some_images, names)  # doctest: +SKIP
    >>> student.compile("adam", DistillationLoss(10, "soft"))  # doctest: +SKIP
    >>> student.fit(teacher.teach(dataset))  # doctest: +SKIP
    """

    def __init__(
        self,
        num_classes: int,
        kind: str = "hard",
        *,
        tau: float = TAU,
        weight: float = WEIGHT,
        reduction: str = "sum_over_batch_size",
        name: str = "distillation_loss",
        dtype=None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        if kind not in KINDS:
            raise ValueError(
                f"DistillationLoss: `kind` must be one of {', '.join(KINDS)}. "
                f"Received: kind={kind!r}"
            )
        if not tau > 0 or not 0 <= weight <= 1:
            raise ValueError(
                "DistillationLoss: `tau` must be above 0 and `weight` from 0 to 1. "
                f"Received: tau={tau}, weight={weight}"
            )
        self.num_classes = num_classes
        self.kind = kind
        self.tau = tau
        self.weight = weight

    def call(self, y_true, y_pred):
        labels, teacher = _labels_and_logits(y_true, self.num_classes)
        if teacher is None:
            return _cross_entropy(labels, mean_logits(y_pred, self.num_classes))
        student = y_pred[..., : self.num_classes]
        pupil = y_pred[..., -self.num_classes :]
        own = _cross_entropy(labels, student)
        if self.kind == "hard":
            answers = ops.one_hot(
                ops.argmax(teacher, -1), self.num_classes, dtype=y_pred.dtype
            )
            return 0.5 * own + 0.5 * _cross_entropy(answers, pupil)
        expected = ops.log_softmax(teacher / self.tau)
        found = ops.log_softmax(pupil / self.tau)
        divergence = ops.sum(ops.exp(expected) * (expected - found), axis=-1)
        return (1 - self.weight) * own + self.weight * self.tau**2 * divergence

    def get_config(self):
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "kind": self.kind,
            "tau": self.tau,
            "weight": self.weight,
        }


@keras.saving.register_keras_serializable(package="cct_keras")
class DistillationAccuracy(keras.metrics.CategoricalAccuracy):
    """Accuracy of a student by the labels, whatever its teacher says.

    Args:
        num_classes: Number of classes.
        name: Name of the metric.
        dtype: Dtype of the metric.
    """

    def __init__(self, num_classes: int, name: str = "accuracy", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.num_classes = num_classes

    def update_state(self, y_true, y_pred, sample_weight=None):
        return super().update_state(
            y_true[..., : self.num_classes],
            mean_logits(y_pred, self.num_classes),
            sample_weight,
        )

    def get_config(self):
        return {
            "num_classes": self.num_classes,
            "name": self.name,
            "dtype": self.dtype,
        }


def two_heads(model: keras.Model) -> keras.Model:
    """The model to train with a teacher: that of both heads, if there are two.

    Args:
        model: The student. With a layer `head_dist` beside its `head` it has a
            distillation token, and its output is the mean of the two.

    Returns:
        A model with the same weights whose output is the logits of both, side by
        side; or `model` itself.
    """
    if all(layer.name != "head_dist" for layer in model.layers):
        return model
    logits = [model.get_layer(name).output for name in ("head", "head_dist")]
    # In full precision, as logits of one head are.
    both = keras.layers.Concatenate(dtype="float32", name="heads")(logits)
    return keras.Model(model.input, both, name=model.name)


def mean_logits(logits, num_classes: int):
    """What a student answers: its logits, or the mean of its two heads."""
    if logits.shape[-1] == num_classes:
        return logits
    return (logits[..., :num_classes] + logits[..., num_classes:]) / 2


def _labels_and_logits(targets, num_classes):
    width = targets.shape[-1]
    if width not in (num_classes, 2 * num_classes):
        raise ValueError(
            f"DistillationLoss: targets must have {num_classes} columns, or twice as "
            f"many with a teacher's logits. Received: shape {tuple(targets.shape)}"
        )
    if width == num_classes:
        return targets, None
    return targets[..., :num_classes], targets[..., num_classes:]


def _cross_entropy(labels, logits):
    return ops.categorical_crossentropy(labels, logits, from_logits=True)
