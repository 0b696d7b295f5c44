"""Losses and metrics of a student that learns from labels and from a teacher.

The teacher's logits travel with the labels, as further columns of the targets, and the
loss and the metric know which columns are which. So training stays `compile` and `fit`
of the student itself, and the student's file knows nothing of a teacher.

Why not `keras.distillation`: its `Distiller` is a model around student and teacher, so
that weights, snapshots and the compiled step hold the teacher, too. It takes only Keras
models with the same input shape and dtype as the student, runs the teacher again for
every view of an image, and has neither hard labels nor a second head. Its
`LogitsDistillation(loss=KLDivergence())` is the soft term below, and the tests compare
the two. But it is a mean over the batch, so that sample weights cannot leave out images
that only pad a batch, and its probabilities are cut off at 1e-7. Without the argument
`loss` Keras 3.15.1 computes something else: its default, the name "kl_divergence",
becomes a function that gets the scaled logits instead of probabilities.
"""

import keras
from keras import ops

from cct_keras.recipes.recipe import DISTILL_KINDS
from cct_keras.recipes.recipe import DISTILL_TAU
from cct_keras.recipes.recipe import DISTILL_WEIGHT


@keras.saving.register_keras_serializable(package="cct_keras")
class DistillationLoss(keras.losses.Loss):
    """Loss of a student by the labels and by its teacher, as in DeiT.

    - `"hard"`: `1/2 CE(student, labels) + 1/2 CE(student, argmax teacher)`
    - `"soft"`: `(1 - weight) CE(student, labels) + weight tau^2 KL(softmax(teacher /
      tau) || softmax(student / tau))`

    A student with a distillation token has two heads, whose logits stand side by side
    (see `two_heads`): the first learns from the labels, the second from the teacher.
    In validation the targets have no logits of a teacher; then the loss is the
    cross-entropy of the student's own output, which is the mean of its heads.

    Args:
        num_classes: Number of classes.
        kind: `"hard"` or `"soft"`.
        tau: Temperature of `"soft"`.
        weight: Weight of the teacher in `"soft"`.
        reduction: As for any Keras loss.
        name: Name of the loss.
        dtype: Dtype or policy of the loss.

    Call arguments:
        y_true: `(batch, 2 * num_classes)`, the labels and the teacher's logits side
            by side, as `Teacher.teach` puts them; or `(batch, num_classes)`, only
            labels.
        y_pred: Logits, `(batch, num_classes)`; of two heads twice as wide.

    Example:

    >>> loss = DistillationLoss(2, "hard")
    >>> labels_and_logits = np.array([[1.0, 0.0, 3.0, -1.0]])
    >>> round(float(loss(labels_and_logits, np.zeros((1, 2)))), 4)  # log(2)
    0.6931
    """

    def __init__(
        self,
        num_classes: int,
        kind: str = "hard",
        *,
        tau: float = DISTILL_TAU,
        weight: float = DISTILL_WEIGHT,
        reduction: str = "sum_over_batch_size",
        name: str = "distillation_loss",
        dtype=None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        if kind not in DISTILL_KINDS:
            raise ValueError(
                f"DistillationLoss: `kind` must be one of {', '.join(DISTILL_KINDS)}. "
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
        # With a single head both are all of it.
        label_head = y_pred[..., : self.num_classes]
        teacher_head = y_pred[..., -self.num_classes :]
        label_loss = _cross_entropy(labels, label_head)
        if self.kind == "hard":
            likeliest = ops.one_hot(
                ops.argmax(teacher, -1), self.num_classes, dtype=y_pred.dtype
            )
            return 0.5 * label_loss + 0.5 * _cross_entropy(likeliest, teacher_head)
        expected = ops.log_softmax(teacher / self.tau)
        found = ops.log_softmax(teacher_head / self.tau)
        divergence = ops.sum(ops.exp(expected) * (expected - found), axis=-1)
        return (1 - self.weight) * label_loss + self.weight * self.tau**2 * divergence

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
    """Accuracy of a student by the labels alone, also where a teacher's logits follow.

    Args:
        num_classes: Number of classes.
        name: Name of the metric.
        dtype: Dtype of the metric.

    Example:

    >>> accuracy = DistillationAccuracy(2)
    >>> labels_and_logits = np.array([[1.0, 0.0, -5.0, 5.0]])
    >>> accuracy.update_state(labels_and_logits, np.array([[2.0, 1.0]]))
    >>> float(accuracy.result())
    1.0
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
    """The model to train with a teacher: it returns both heads, if there are two.

    Args:
        model: The student. If it has a layer `head_dist` beside its `head`, it has a
            distillation token, and its output is the mean of both heads.

    Returns:
        A model with the same weights that returns the logits of both heads side by
        side; or `model` itself, if it has one head.

    Example:

    >>> model = cct_keras.DeiT(
    ...     3, (32, 32, 3), distilled=True, num_layers=1, classifier_activation=None
    ... )
    >>> model.output_shape, two_heads(model).output_shape
    ((None, 3), (None, 6))
    """
    if all(layer.name != "head_dist" for layer in model.layers):
        return model
    logits = [model.get_layer(name).output for name in ("head", "head_dist")]
    # In full precision, as the logits of a single head are.
    both = keras.layers.Concatenate(dtype="float32", name="heads")(logits)
    return keras.Model(model.input, both, name=model.name)


def mean_logits(logits, num_classes: int):
    """The student's own logits: those of its head, or the mean of its two heads.

    Args:
        logits: Of one head or of two, side by side in the last axis.
        num_classes: Number of classes.

    Returns:
        Logits with `num_classes` in the last axis.

    Example:

    >>> mean_logits(np.array([[1.0, 2.0, 3.0, 6.0]]), 2)
    array([[2., 4.]])
    """
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
