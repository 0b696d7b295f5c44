"""The learning rate of each step."""

import math

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="cct_keras")
class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Warmup, then a cosine, a line, steps or a constant rate, then a cooldown.

    At epoch t, while t is below `warmup_epochs`, the rate is
    `warmup_lr + t (lr - warmup_lr) / warmup_epochs`. After that it is
    `min_lr + (lr - min_lr) (1 + cos(pi t / epochs)) / 2` for a cosine, or
    `lr * decay_rate ** floor(t / decay_epochs)` for steps. A line falls from `lr` at
    the end of the warmup to `min_lr` at `epochs`: a triangle with the warmup. From
    `epochs` on it is `min_lr`.

    Args:
        lr: Rate after the warmup.
        epochs: Length of the schedule in epochs, the warmup included.
        steps_per_epoch: Batches in an epoch.
        min_lr: Rate at the end.
        kind: `"cosine"`, `"linear"`, `"step"` or `"constant"`.
        warmup_epochs: Length of the warmup.
        warmup_lr: Rate at the start of the warmup.
        warmup: `"linear"`, or `"inverse"`: a rate of `lr / (warmup_epochs - t)`, and
            then a cosine over the epochs after the warmup.
        decay_epochs: Epochs between the steps of `"step"`.
        decay_rate: Factor of each step.
        per_step: Whether t moves with every step, not once an epoch.

    Example:

    >>> schedule = WarmupSchedule(1e-3, epochs=100, steps_per_epoch=10)
    >>> round(float(schedule(500)), 6)
    0.0005
    """

    def __init__(
        self,
        lr: float,
        *,
        epochs: float,
        steps_per_epoch: int,
        min_lr: float = 0.0,
        kind: str = "cosine",
        warmup_epochs: float = 0,
        warmup_lr: float = 0.0,
        warmup: str = "linear",
        decay_epochs: float = 30,
        decay_rate: float = 0.1,
        per_step: bool = False,
    ):
        super().__init__()
        self.lr = lr
        self.epochs = epochs
        self.steps_per_epoch = steps_per_epoch
        self.min_lr = min_lr
        self.kind = kind
        self.warmup_epochs = warmup_epochs
        self.warmup_lr = warmup_lr
        self.warmup = warmup
        self.decay_epochs = decay_epochs
        self.decay_rate = decay_rate
        self.per_step = per_step

    def __call__(self, step):
        # Whole epochs are counted in integers: in float32 a large number of steps
        # loses its last digits.
        step = ops.cast(step, "int32")
        epoch = ops.cast(step // self.steps_per_epoch, "float32")
        if self.per_step:
            step_in_epoch = ops.cast(step % self.steps_per_epoch, "float32")
            epoch = epoch + step_in_epoch / self.steps_per_epoch
        return self.at_epoch(epoch)

    def at_epoch(self, epoch):
        """The rate at a time in epochs, or at several, which need not be whole."""
        rate = self._rate_after_warmup(epoch)
        if self.warmup_epochs > 0:
            rate = ops.where(epoch < self.warmup_epochs, self._warmup_rate(epoch), rate)
        if self.kind == "constant":
            return rate
        return ops.where(epoch < self.epochs, rate, self.min_lr)

    def _warmup_rate(self, epoch):
        if self.warmup == "inverse":
            left = ops.maximum(self.warmup_epochs - epoch, 1e-6)
            return ops.minimum(self.lr, self.lr / left)
        slope = (self.lr - self.warmup_lr) / self.warmup_epochs
        return self.warmup_lr + slope * epoch

    def _rate_after_warmup(self, epoch):
        if self.kind == "constant":
            return self.lr + 0.0 * epoch
        if self.kind == "step":
            steps = ops.floor(epoch / self.decay_epochs)
            return self.lr * ops.power(self.decay_rate, steps)
        if self.kind == "linear":
            span = max(self.epochs - self.warmup_epochs, 1e-6)
            share = (self.epochs - epoch) / span
            return self.min_lr + (self.lr - self.min_lr) * share
        span = self.epochs
        if self.warmup == "inverse":
            epoch, span = epoch - self.warmup_epochs, span - self.warmup_epochs
        share = (1.0 + ops.cos(math.pi * epoch / max(span, 1e-6))) / 2.0
        return self.min_lr + (self.lr - self.min_lr) * share

    def get_config(self):
        return {
            "lr": self.lr,
            "epochs": self.epochs,
            "steps_per_epoch": self.steps_per_epoch,
            "min_lr": self.min_lr,
            "kind": self.kind,
            "warmup_epochs": self.warmup_epochs,
            "warmup_lr": self.warmup_lr,
            "warmup": self.warmup,
            "decay_epochs": self.decay_epochs,
            "decay_rate": self.decay_rate,
            "per_step": self.per_step,
        }
