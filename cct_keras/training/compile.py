"""The third step of a run: schedule, optimizer and loss."""

import keras

from cct_keras.data.pipeline import steps_per_epoch
from cct_keras.distillation.losses import DistillationAccuracy
from cct_keras.distillation.losses import DistillationLoss
from cct_keras.distributed.devices import Devices
from cct_keras.distributed.devices import reduced
from cct_keras.finetuning.layer_rates import layer_rates
from cct_keras.finetuning.layerwise import LayerwiseAdamW
from cct_keras.finetuning.layerwise import LayerwiseSGD
from cct_keras.models.inspection import encoder_blocks
from cct_keras.models.inspection import matrix_weights
from cct_keras.models.inspection import undecayed_weights
from cct_keras.recipes.recipe import Recipe
from cct_keras.training.build import device_type
from cct_keras.training.build import precision_policy
from cct_keras.training.optimizers import LayerwiseMuon
from cct_keras.training.optimizers import Muon
from cct_keras.training.optimizers import find_adamw
from cct_keras.training.schedule import WarmupSchedule


def compile_model(
    model: keras.Model,
    recipe: Recipe,
    *,
    images: int,
    num_classes: int,
    jit: bool | None = None,
    devices: Devices | None = None,
    clocked: bool = False,
) -> WarmupSchedule:
    """Compiles a model that returns logits, as a recipe says.

    Args:
        model: The model.
        recipe: The recipe.
        images: Number of training images.
        num_classes: Number of classes.
        jit: Whether to compile with XLA; `None` decides by the machine.
        devices: The devices of the run; the model was built in their scope.
        clocked: Whether `FollowClock` sets what otherwise depends on the step.

    Returns:
        The schedule, which gives the learning rate of each step.

    Example:

    >>> model = cct_keras.create_model("cct_2_3x2_32", classifier_activation=None)
    >>> schedule = compile_model(model, Recipe(), images=1000, num_classes=10)
    >>> schedule.steps_per_epoch
    7
    """
    devices = devices or Devices()
    schedule = make_schedule(recipe, images)
    loss, accuracy = make_loss(recipe, num_classes)
    for block in encoder_blocks(model):
        block.remat = recipe.remat
    model.compile(
        optimizer=make_optimizer(model, recipe, schedule, devices, clocked=clocked),
        loss=loss,
        # Weighted, because validation on several devices pads its batches with
        # images whose weight is zero.
        weighted_metrics=[accuracy],
        jit_compile=_choose_jit(jit),
    )
    model.optimizer.build(model.trainable_variables)
    return schedule


def make_schedule(recipe: Recipe, images: int) -> WarmupSchedule:
    """The learning rates of a recipe.

    Args:
        recipe: The recipe.
        images: Number of training images.

    Returns:
        A `WarmupSchedule`.

    Example:

    >>> schedule = make_schedule(Recipe(lr=1e-3, min_lr=0.0, epochs=10), 1280)
    >>> round(float(schedule(50)), 6)
    0.0005
    """
    return WarmupSchedule(
        recipe.lr,
        epochs=recipe.epochs,
        steps_per_epoch=steps_per_epoch(images, recipe.batch_size),
        min_lr=recipe.min_lr,
        kind=recipe.schedule,
        warmup_epochs=recipe.warmup_epochs,
        warmup_lr=recipe.warmup_lr,
        warmup=recipe.warmup,
        decay_epochs=recipe.decay_epochs,
        decay_rate=recipe.decay_rate,
        per_step=recipe.per_step,
    )


def make_optimizer(
    model: keras.Model,
    recipe: Recipe,
    schedule: WarmupSchedule,
    devices: Devices,
    *,
    clocked: bool = False,
) -> keras.optimizers.Optimizer:
    """The optimizer of a recipe.

    Args:
        model: The model it is for.
        recipe: The recipe.
        schedule: Its learning rates.
        devices: The devices of the run.
        clocked: Whether the learning rate, the momentum of averaged weights and the
            time at which layers begin to learn are variables, which somebody assigns.

    Returns:
        A Keras optimizer.

    Example:

    >>> model = cct_keras.create_model("cct_2_3x2_32")
    >>> schedule = make_schedule(Recipe(), images=1000)
    >>> recipe = Recipe(optimizer="sgd", clip_norm=1)
    >>> make_optimizer(model, recipe, schedule, Devices()).global_clipnorm
    1.0
    """
    options = {
        "global_clipnorm": recipe.clip_norm,
        "use_ema": recipe.ema is not None,
        "ema_momentum": 0.99 if recipe.ema is None else recipe.ema,
        "gradient_accumulation_steps": recipe.accumulate
        if recipe.accumulate > 1
        else None,
    }
    if devices.mirrored and recipe.clip_norm is not None:
        # `reduced` explains why.
        options["global_clipnorm"] /= devices.replicas
    classes = {"adamw": find_adamw(), "muon": Muon, "sgd": keras.optimizers.SGD}
    if recipe.layer_decay < 1 or recipe.unfreeze_epochs:
        classes = {"adamw": LayerwiseAdamW, "muon": LayerwiseMuon, "sgd": LayerwiseSGD}
        options["decay"] = recipe.weight_decay
        options["layer_rates"] = _layer_rates(model, recipe, schedule)
        options["clocked"] = clocked
    else:
        options["weight_decay"] = recipe.weight_decay
    if recipe.optimizer == "sgd":
        options |= {"momentum": 0.9, "nesterov": True}
    else:
        options["epsilon"] = 1e-8
    if recipe.optimizer == "muon":
        options["matrices"] = matrix_weights(model)
        options |= {"matrix_lr": recipe.matrix_lr, "peak": recipe.lr}
    optimizer_class = classes[recipe.optimizer]
    scales_loss = precision_policy(recipe.precision) == "mixed_float16"
    if devices.mirrored and not scales_loss:
        optimizer_class = reduced(optimizer_class)
    rate = float(schedule(0)) if clocked else schedule
    optimizer = optimizer_class(rate, **options)
    if clocked and recipe.ema is not None:
        # A number would be a constant of the compiled step.
        optimizer.ema_momentum = optimizer.add_variable(
            (), keras.initializers.Constant(recipe.ema), name="ema_momentum"
        )
    optimizer.exclude_from_weight_decay(var_list=find_undecayed(model, recipe))
    if not scales_loss:
        return optimizer
    # Keras adds it by itself only if the model has the policy, not if its layers do.
    wrapper = keras.optimizers.LossScaleOptimizer
    return (reduced(wrapper) if devices.mirrored else wrapper)(optimizer)


def _layer_rates(model, recipe, schedule):
    # An optimizer counts updates, not steps.
    updates_per_epoch = schedule.steps_per_epoch / recipe.accumulate
    return layer_rates(
        model,
        layer_decay=recipe.layer_decay,
        unfreeze_steps=recipe.unfreeze_epochs * updates_per_epoch,
    )


def find_undecayed(model: keras.Model, recipe: Recipe) -> list:
    """The weights that a recipe exempts from weight decay.

    Args:
        model: The model.
        recipe: The recipe.

    Returns:
        Trainable variables of the model.

    Example:

    >>> model = cct_keras.create_model("cct_2_3x2_32")
    >>> find_undecayed(model, Recipe(decay_exempt="nothing"))
    []
    """
    if recipe.decay_exempt == "nothing":
        return []
    exempt = [
        variable for variable in model.trainable_variables if _is_vector(variable)
    ]
    if recipe.decay_exempt == "positions":
        exempt += undecayed_weights(model)
    return exempt


def _is_vector(variable):
    return len(variable.shape) <= 1


def make_loss(
    recipe: Recipe, num_classes: int
) -> tuple[keras.losses.Loss, keras.metrics.Metric]:
    """The loss of a recipe, and the accuracy that is shown with it.

    Args:
        recipe: The recipe.
        num_classes: Number of classes.

    Returns:
        A loss and a metric of logits.

    Example:

    >>> loss, accuracy = make_loss(Recipe(), num_classes=10)
    >>> accuracy.name
    'accuracy'
    """
    if recipe.teacher is None:
        return (
            keras.losses.CategoricalCrossentropy(from_logits=True),
            keras.metrics.CategoricalAccuracy(name="accuracy"),
        )
    kind, tau, weight = recipe.distillation
    loss = DistillationLoss(num_classes, kind, tau=tau, weight=weight)
    return loss, DistillationAccuracy(num_classes)


def _choose_jit(jit):
    """What `compile` takes as `jit_compile`."""
    if jit is not None:
        return jit
    # On a CPU, XLA is slower than TensorFlow's own kernels.
    slow = keras.config.backend() == "tensorflow" and device_type() == "cpu"
    return False if slow or keras.config.backend() == "torch" else "auto"
