"""`train`: a recipe, a data set and a variant to a trained model and its report."""

import dataclasses
import logging
import math
import os
import pathlib
import platform
import time
from typing import NamedTuple

import keras
import numpy as np

from cct_keras.data import DataError
from cct_keras.data import Dataset
from cct_keras.data import load_data
from cct_keras.data.dataset import as_size
from cct_keras.data.pipeline import steps_per_epoch
from cct_keras.layers import Preprocessing
from cct_keras.models import add_lora
from cct_keras.models import create_model
from cct_keras.models import freeze
from cct_keras.models import merge_lora
from cct_keras.models.cost import variant_cost
from cct_keras.models.depth import encoder_blocks
from cct_keras.models.factory import find_variant
from cct_keras.models.transfer import HEADS
from cct_keras.models.variants import SIZES
from cct_keras.notes import collected_notes
from cct_keras.pretrained import origin_of
from cct_keras.training.callbacks import Progress
from cct_keras.training.callbacks import Record
from cct_keras.training.callbacks import StopOnNaN
from cct_keras.training.callbacks import duration
from cct_keras.training.devices import Devices
from cct_keras.training.devices import find_devices
from cct_keras.training.devices import reduced
from cct_keras.training.distillation import DistillationAccuracy
from cct_keras.training.distillation import DistillationLoss
from cct_keras.training.distillation import two_heads
from cct_keras.training.evaluation import find_mistakes
from cct_keras.training.evaluation import load_classifier
from cct_keras.training.evaluation import measure
from cct_keras.training.fused_adam import find_adamw
from cct_keras.training.layerwise import LayerwiseAdamW
from cct_keras.training.layerwise import LayerwiseSGD
from cct_keras.training.layerwise import layer_paces
from cct_keras.training.recipe import Recipe
from cct_keras.training.recipe import RecipeError
from cct_keras.training.recipes import find_recipe
from cct_keras.training.report import write_report
from cct_keras.training.run_folder import LAST_MODEL
from cct_keras.training.run_folder import METRICS
from cct_keras.training.run_folder import MODEL
from cct_keras.training.run_folder import REPORT
from cct_keras.training.run_folder import TENSORBOARD
from cct_keras.training.run_folder import RunError
from cct_keras.training.run_folder import RunFolder
from cct_keras.training.schedule import WarmupSchedule
from cct_keras.training.teacher import StoredAnswers
from cct_keras.training.teacher import Teacher
from cct_keras.training.teacher import teacher_name

logger = logging.getLogger(__name__)

# What the first machine finds in its folder.
NEW, RESUMED, COMPLETE, FAILED = b"new", b"resumed", b"complete", b"failed: "


@dataclasses.dataclass(frozen=True)
class Run:
    """What `train` returns.

    Attributes:
        model: The trained model, with the best weights: raw images in,
            probabilities out.
        history: A dictionary an epoch.
        metrics: What `metrics.json` holds.
        data: The data it was trained on.
    """

    model: keras.Model
    history: list[dict]
    metrics: dict
    data: Dataset


def train(
    data,
    variant: str | None = None,
    recipe: str | Recipe | None = None,
    *,
    epochs: int | None = None,
    weights=None,
    teacher=None,
    out=None,
    image_size: int | tuple[int, int] | None = None,
    data_dir=None,
    seed: int = 0,
    jit: bool | None = None,
    devices: int | str | None = None,
    coordinator: str | None = None,
    num_hosts: int | None = None,
    host_id: int | None = None,
    restart: bool = False,
    verbose: bool = True,
    callbacks: tuple = (),
    command: str | None = None,
    **fields,
) -> Run | None:
    """Trains a model with `compile` and `fit`, and says how good it is.

    With `out`, the run can be killed at any moment: the same call goes on after the
    last complete epoch and ends with the same result.

    Args:
        data: What `load_data` takes, or what it returned.
        variant: One of `list_models()`, if not the recipe's own or that of the
            file of weights.
        recipe: One of `list_recipes()`, a `Recipe` or a YAML file. By default
            `small`, or `finetune` if there are weights to start from.
        epochs: Epochs instead of the recipe's; warmup and the like scale.
        weights: Weights to start from: a tag of known weights, a `.keras`, a
            `.weights.h5` or an official `.pth` file, or the folder of a run. The
            head starts fresh if the classes are others, positions are resized,
            the first convolution is adapted to the channels; images are
            normalised as they were for the weights, if that is known.
        teacher: A model to learn from beside the labels, see `Recipe.distill`: a
            Keras model, its file, the folder of a run, `VARIANT.TAG`, or a function
            from images, `(batch, height, width, channels)` with values from 0 to 255,
            to logits or probabilities. The trained model knows nothing of it.
        out: Folder for the model, snapshots, logs and the report; `None` writes
            nothing.
        image_size: Side, or height and width, of the model's images.
        data_dir: Where tensorflow-datasets keeps prepared data.
        seed: Seed of the weights, the splits, the order and the augmentation.
        jit: Whether to compile with XLA. By default the backend decides, but not
            on TensorFlow without an accelerator, where it is slower.
        devices: How many devices of this machine share every batch, or `"all"`. On
            TensorFlow and JAX; by default one.
        coordinator: For several machines, on JAX: address and port of the first,
            such as `"10.0.0.1:1234"`. Every machine makes the same call, with its
            own `host_id`; the first writes.
        num_hosts: Number of machines.
        host_id: Number of this machine, from 0.
        restart: Whether to throw away a run that is in `out`.
        verbose: Whether to show the progress.
        callbacks: Further Keras callbacks.
        command: What to write into the report as the command of this run.
        **fields: Fields of the recipe to replace, such as `lr` or `mixup`.

    Returns:
        A `Run`; `None` on machines other than the first, which only compute.

    Example:

    >>> run = train("digits", recipe="quick", verbose=False)
    >>> run.metrics["test"]["top1"] > 0.5
    True
    """
    if variant is not None:
        fields["variant"] = variant
    if weights is not None:
        fields["weights"] = weights
    if teacher is not None:
        fields["teacher"] = teacher if _is_path(teacher) else teacher_name(teacher)
    recipe = find_recipe(recipe, epochs=epochs, **fields)
    if not isinstance(seed, int) or seed < 0:
        raise ValueError(f"`seed` must be an integer of 0 or more. Received: {seed!r}")
    devices = find_devices(
        devices, coordinator=coordinator, num_hosts=num_hosts, host_id=host_id
    )
    verbose = verbose and devices.is_first
    try:
        if recipe.teacher is not None and (teacher is None or _is_path(teacher)):
            teacher = _load_teacher(recipe.teacher)
        data = load_for(
            data, recipe, image_size=image_size, data_dir=data_dir, seed=seed
        )
        earlier = {} if out is None or restart else RunFolder.read_settings(out)
        data, recipe = take_from_weights(data, recipe, earlier)
        devices.check(recipe, len(data.train))
        if teacher is not None:
            first = data.training_pipeline(recipe, seed=seed, shard=devices.shard)
            images = next(first.take(1).as_numpy_iterator())[0]
            teacher = Teacher(teacher, images, data.class_names)
    except Exception as error:
        devices.fail(error)
        raise
    options = _Options(seed, jit, devices, verbose, tuple(callbacks), command, teacher)
    if not devices.is_first:
        print(f"host {devices.host} of {devices.hosts}; the progress is on host 0")
    _say(verbose, data.describe())
    for note in data.notes:
        _say(verbose, f"note: {note}")
    settings = {
        **_plain(recipe),
        "data": data.name,
        "fingerprint": data.fingerprint,
        "image_size": data.image_size,
        "mean": data.mean,
        "std": data.std,
        "seed": seed,
        "backend": keras.config.backend(),
        # The file may be another one by now.
        "teacher_name": teacher and teacher.name,
    }
    devices.agree(settings)
    if out is None or not devices.is_first:
        return _train(data, recipe, None, options)
    with RunFolder(out) as folder:
        try:
            if restart:
                _check_not_thrown_away(recipe.weights, out)
            complete = folder.begin(settings, restart)
        except RunError as error:
            devices.broadcast(FAILED + str(error).encode())
            raise
        if complete:
            _say(verbose, f"{out} is complete; --restart trains anew")
            devices.broadcast(COMPLETE)
            devices.part()
            return _complete_run(folder, data)
        return _train(data, recipe, folder, options)


class _Options(NamedTuple):
    """What a run needs to know beside data and recipe."""

    seed: int
    jit: bool | None
    devices: Devices
    verbose: bool
    callbacks: tuple
    command: str | None
    teacher: Teacher | None


def _train(data, recipe, folder, options):
    started, verbose, devices = time.perf_counter(), options.verbose, options.devices
    keras.utils.set_random_seed(options.seed)
    state = RESUMED if folder is not None and folder.has_snapshot() else NEW
    state = devices.broadcast(state)
    if state.startswith(FAILED):
        raise RunError(f"host 0: {state.removeprefix(FAILED).decode()}")
    if state == COMPLETE:
        devices.part()
        return None
    with collected_notes() as notes, devices.scope():
        model = build_model(data, recipe, classifier_activation=None, load=state == NEW)
        student = model if options.teacher is None else two_heads(model)
        schedule = compile_model(
            student,
            recipe,
            images=len(data.train),
            num_classes=data.num_classes,
            jit=options.jit,
            devices=devices,
        )
    notes = [*dict.fromkeys(notes), *_thaw_notes(recipe)]
    for note in notes:
        _say(verbose, f"note: {note}")
    trained = sum(math.prod(weight.shape) for weight in model.trainable_weights)
    if recipe.weights is not None or trained < model.count_params():
        start = "" if recipe.weights is None else f" from {recipe.weights}"
        of = f"{trained:,} of {model.count_params():,} parameters"
        _say(verbose, f"training {of}{start}")
    if options.teacher is not None:
        _say(verbose, f"{recipe.distill or 'hard'} distillation from {recipe.teacher}")
    final = build_model(data, recipe, load=False, frozen=False)

    def publish(best):
        with devices.local():
            _save(folder, final, best, MODEL)

    record = Record(
        folder,
        student=model,
        schedule=schedule,
        images=schedule.steps_per_epoch * min(recipe.batch_size, len(data.train)),
        validation_images=len(data.validation),
        patience=recipe.patience,
        publish=publish,
    )
    record.set_model(student)
    first_epoch = record.restore(devices) if folder or devices.hosts > 1 else 0
    if first_epoch:
        _say(verbose, f"going on after epoch {first_epoch} of {recipe.total_epochs}")
    if first_epoch < recipe.total_epochs and not record.is_over:
        _fit(student, data, recipe, record, first_epoch, options)
    devices.part()
    if not devices.is_first:
        return None

    final.set_weights(record.best)
    best = merge_lora(final)
    probabilities, test = measure(best, data, "test")
    seconds = [row["seconds"] for row in record.history]
    speeds = [row["images_per_second"] for row in record.history]
    cost = variant_cost(
        recipe.variant, data.num_classes, data.image_size, data.channels
    )
    metrics = {
        "test": test,
        "validation": {
            "top1": record.best_row["val_accuracy"],
            "loss": record.best_row["val_loss"],
            "epoch": record.best_epoch,
        },
        "epochs": len(record.history),
        "seconds": sum(seconds),
        # The first epoch also compiles.
        "images_per_second": float(np.median(speeds[1:] or speeds)),
        "parameters": best.count_params(),
        "trained_parameters": trained,
        "macs": cost.macs + cost.attention_macs,
        "variant": recipe.variant,
        "data": data.name,
        "fingerprint": data.fingerprint,
    }
    if folder:
        try:
            _save(folder, final, record.last, LAST_MODEL)
            _save(folder, final, record.best, MODEL)
            data = dataclasses.replace(data, notes=(*data.notes, *notes))
            _write_results(
                folder, data, recipe, record, metrics, probabilities, options
            )
        except OSError as error:
            raise RunError(
                f"cannot write the results to {folder.path} ({error}); the same "
                "command tries again, without training"
            ) from error
    low, high = test["top1_ci95"]
    _say(
        verbose,
        f"test accuracy {test['top1']:.2%} (95 % interval {low:.2%} to {high:.2%}), "
        f"best epoch {record.best_epoch}, {duration(time.perf_counter() - started)}",
    )
    if folder:
        _say(verbose, f"model: {folder.path / MODEL}")
        _say(verbose, f"report: {folder.path / REPORT}")
    return Run(best, record.history, metrics, data)


def _check_not_thrown_away(weights, out):
    """A run that is restarted cannot begin with what it throws away."""
    if weights is not None and pathlib.Path(out).resolve() in (
        pathlib.Path(weights).resolve().parents
    ):
        raise RunError(
            f"--restart would throw {weights} away, from which this run starts: "
            "choose another folder with --out"
        )


def _complete_run(folder, data):
    return Run(
        keras.models.load_model(folder.path / MODEL),
        folder.read_history(),
        folder.read_metrics(),
        data,
    )


def _is_path(teacher):
    return isinstance(teacher, (str, os.PathLike))


def _load_teacher(path):
    try:
        return load_classifier(path)
    except DataError as error:
        raise RecipeError(f"`teacher`: {error}") from error


def _say(verbose, text):
    if verbose:
        print(text, flush=True)


def _plain(recipe):
    # Neither changes the result.
    return {
        name: value
        for name, value in dataclasses.asdict(recipe).items()
        if name not in ("about", "remat")
    }


# === Data ===


def load_for(data, recipe: Recipe, *, image_size, data_dir, seed: int) -> Dataset:
    """Loads data in the size that suits a recipe's variant."""
    image_size = image_size or recipe.image_size
    row = find_variant(recipe.variant)
    multiple = row.kernel if row.family != "CCT" else 1
    if isinstance(data, Dataset):
        if image_size is not None and as_size(image_size) != data.image_size:
            raise DataError(
                f"the data are loaded at {data.image_size}; give `image_size` to "
                f"`load_data` instead. Received: image_size={image_size!r}"
            )
        if any(side % multiple for side in data.image_size):
            raise DataError(
                f"{recipe.variant} takes images in multiples of {multiple}; load them "
                f"with load_data(..., multiple={multiple})"
            )
        return data
    default_size = row.image_size
    if default_size <= 64:
        # Larger images than the variant's own: 16 x 16 tokens of them.
        default_size = 16 * (multiple if multiple > 1 else 2**row.stages)
    return load_data(
        data,
        image_size=image_size,
        default_size=default_size,
        multiple=multiple,
        crop=recipe.eval_crop,
        seed=seed,
        data_dir=data_dir,
    )


def take_from_weights(
    data: Dataset, recipe: Recipe, earlier: dict
) -> tuple[Dataset, Recipe]:
    """What the weights of a recipe decide: normalisation and kind of positions.

    Args:
        data: The data; its own normalisation stays where that of the weights is not
            known or is for other channels.
        recipe: The recipe.
        earlier: Settings of a run that is to go on, which has it all on record.
    """
    recipe = dataclasses.replace(recipe, eval_crop=data.crop)
    if recipe.weights is None:
        return data, recipe
    if earlier.get("weights") == recipe.weights:
        mean, std = earlier["mean"], earlier["std"]
        kind = earlier["positional_embedding"]
    else:
        origin = origin_of(recipe.variant, recipe.weights)
        mean, std, kind = origin.mean, origin.std, origin.positions or "none"
    if recipe.positional_embedding == "auto":
        recipe = dataclasses.replace(recipe, positional_embedding=kind)
    if mean is not None and len(mean) != data.channels:
        note = "images are normalised by themselves: the weights are for other channels"
        return dataclasses.replace(data, notes=(*data.notes, note)), recipe
    if mean is not None and tuple(mean) != data.mean:
        text = " and ".join(", ".join(map(str, values)) for values in (mean, std))
        data = dataclasses.replace(
            data,
            mean=tuple(mean),
            std=tuple(std),
            notes=(*data.notes, f"images are normalised as for the weights: {text}"),
        )
    return data, recipe


# === Model ===


def build_model(
    data: Dataset,
    recipe: Recipe,
    *,
    classifier_activation: str | None = "softmax",
    load: bool = True,
    frozen: bool = True,
) -> keras.Model:
    """The recipe's model for raw images of a data set.

    Args:
        data: Decides the classes, the size and the normalisation.
        recipe: Decides the variant, the weights and the rates.
        classifier_activation: Of the head.
        load: Whether to load the recipe's weights.
        frozen: Whether to freeze what the recipe freezes.
    """
    images = keras.Input((None, None, data.channels), name="images")
    normalised = Preprocessing(
        data.image_size,
        mean=data.mean,
        std=data.std,
        crop=data.crop,
        class_names=data.class_names,
        trained_on={
            "name": data.name,
            "fingerprint": data.fingerprint,
            "cut": data.cut,
        },
        name="preprocessing",
    )(images)
    rates = {
        "dropout_rate": recipe.dropout,
        "attention_dropout": recipe.attention_dropout,
        "stochastic_depth": recipe.stochastic_depth,
    }
    own = {name: rate for name, rate in rates.items() if rate is not None}
    if recipe.positional_embedding != "auto":
        kind = recipe.positional_embedding
        own["positional_embedding"] = None if kind == "none" else kind
    model = create_model(
        recipe.variant,
        input_tensor=normalised,
        num_classes=data.num_classes,
        classifier_activation=classifier_activation,
        weights=recipe.weights if load else None,
        data_format="channels_last",
        dtype=precision_policy(recipe.precision),
        **own,
    )
    if load and recipe.weights is not None:
        _check_head(model, recipe, data)
    if recipe.lora_rank is not None:
        model = add_lora(
            model,
            recipe.lora_rank,
            alpha=recipe.lora_alpha,
            targets=recipe.lora_targets,
        )
    if frozen:
        freeze(model, recipe.freeze)
    return model


def _check_head(model, recipe, data):
    """Makes a head fresh that fits, but is for other classes."""
    origin = origin_of(recipe.variant, recipe.weights)
    if origin.num_classes != data.num_classes:
        return  # It did not fit.
    same = origin.class_names == data.class_names
    if same and not recipe.fresh_head:
        return
    if origin.class_names is None and not recipe.fresh_head:
        logger.info(
            "the weights have a head for %d classes too, which is kept; for other "
            "classes say --fresh-head yes",
            data.num_classes,
        )
        return
    for head in (x for x in model.layers if x.name in HEADS):
        head.kernel.assign(head.kernel_initializer(head.kernel.shape))
        head.bias.assign(head.bias_initializer(head.bias.shape))
    logger.info("the head starts fresh, for other classes than those of the weights")


def _thaw_notes(recipe):
    if recipe.weights is None and (recipe.freeze or recipe.lora_rank):
        yield "what is frozen stays at its random start; --weights gives a trained one"
    blocks = SIZES[find_variant(recipe.variant).size].num_layers
    if recipe.unfreeze_epochs * (blocks + 1) >= recipe.total_epochs:
        yield (
            f"with a block every {recipe.unfreeze_epochs:g} epochs not all thaws in "
            f"{recipe.total_epochs}"
        )


def precision_policy(precision: str) -> str:
    """The dtype policy of a recipe's precision on this machine."""
    if precision != "mixed":
        return precision
    # Not every GPU is fast in bfloat16; the published runs used float16.
    policies = {"cpu": "float32", "tpu": "mixed_bfloat16"}
    return policies.get(device_type(), "mixed_float16")


def device_type() -> str:
    """What the backend computes on: `"cpu"`, `"gpu"` or `"tpu"`."""
    if keras.config.backend() == "torch":
        import torch

        return "gpu" if torch.cuda.is_available() else "cpu"
    return keras.distribution.list_devices()[0].split(":")[0]


def compile_model(
    model: keras.Model,
    recipe: Recipe,
    *,
    images: int,
    num_classes: int,
    jit: bool | None = None,
    devices: Devices | None = None,
) -> WarmupSchedule:
    """Compiles a model that returns logits as a recipe says.

    Args:
        model: The model.
        recipe: The recipe.
        images: Number of training images.
        num_classes: Number of classes.
        jit: Whether to compile with XLA; `None` decides by the machine.
        devices: Where the run computes; the model was built in their scope.

    Returns:
        The learning rate of each step.
    """
    schedule = WarmupSchedule(
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
    mirrored = devices is not None and devices.mirrored
    clip_norm = recipe.clip_norm
    if mirrored and clip_norm is not None:
        clip_norm /= devices.replicas  # See `reduced`.
    common = {
        "global_clipnorm": clip_norm,
        "use_ema": recipe.ema is not None,
        "ema_momentum": 0.99 if recipe.ema is None else recipe.ema,
        "gradient_accumulation_steps": recipe.accumulate
        if recipe.accumulate > 1
        else None,
    }
    adamw, sgd = find_adamw(), keras.optimizers.SGD
    if recipe.layer_decay < 1 or recipe.unfreeze_epochs:
        adamw, sgd = LayerwiseAdamW, LayerwiseSGD
        common["decay"] = recipe.weight_decay
        common["paces"] = layer_paces(
            model,
            layer_decay=recipe.layer_decay,
            # An optimizer counts updates.
            unfreeze_steps=recipe.unfreeze_epochs
            * schedule.steps_per_epoch
            / recipe.accumulate,
        )
    else:
        common["weight_decay"] = recipe.weight_decay
    scales = precision_policy(recipe.precision) == "mixed_float16"
    if mirrored and not scales:
        adamw, sgd = reduced(adamw), reduced(sgd)
    if recipe.optimizer == "adamw":
        optimizer = adamw(schedule, epsilon=1e-8, **common)
    else:
        optimizer = sgd(schedule, momentum=0.9, nesterov=True, **common)
    optimizer.exclude_from_weight_decay(var_list=find_undecayed(model, recipe))
    if scales:
        # Keras does it by itself only if the model has the policy, not its layers.
        wrapper = keras.optimizers.LossScaleOptimizer
        optimizer = (reduced(wrapper) if mirrored else wrapper)(optimizer)
    if jit is None:
        # XLA on a CPU is slower than TensorFlow's own kernels.
        slow = keras.config.backend() == "tensorflow" and device_type() == "cpu"
        jit = False if slow or keras.config.backend() == "torch" else "auto"
    if recipe.teacher is None:
        loss = keras.losses.CategoricalCrossentropy(from_logits=True)
        accuracy = keras.metrics.CategoricalAccuracy(name="accuracy")
    else:
        loss = DistillationLoss(
            num_classes,
            recipe.distill or "hard",
            tau=recipe.distill_tau,
            weight=recipe.distill_weight,
        )
        accuracy = DistillationAccuracy(num_classes)
    for block in encoder_blocks(model):
        block.remat = recipe.remat
    model.compile(
        optimizer=optimizer,
        loss=loss,
        # Weighted, for validation on several devices pads with weights of zero.
        weighted_metrics=[accuracy],
        jit_compile=jit,
    )
    model.optimizer.build(model.trainable_variables)
    return schedule


def find_undecayed(model: keras.Model, recipe: Recipe) -> list:
    """The weights that a recipe exempts from weight decay."""
    if recipe.decay_exempt == "nothing":
        return []
    tables = ("position_embedding", "class_token")
    return [
        variable
        for variable in model.trainable_variables
        if len(variable.shape) <= 1
        or (
            recipe.decay_exempt == "positions"
            and any(name in variable.path for name in tables)
        )
    ]


def _fit(model, data, recipe, record, first_epoch, options):
    devices = options.devices
    batch = max(recipe.batch_size, 256)
    if devices.replicas > 1:
        validation = data.padded_pipeline(
            "validation", batch, multiple=devices.replicas, shard=devices.shard
        )
    else:
        validation = data.pipeline("validation", batch)
    steps = steps_per_epoch(len(data.train), recipe.batch_size)
    watching = [
        StopOnNaN(
            f"a lower rate (--lr {recipe.lr / 3:.1e}), --clip-norm 1 or "
            "--precision float32, each with --restart"
        ),
        record,
    ]
    if recipe.ema is not None:
        watching.append(keras.callbacks.SwapEMAWeights())
    if options.verbose:
        watching.append(Progress(steps, recipe.total_epochs, record))
    if record.folder:
        logs = record.folder.path / TENSORBOARD
        watching.append(keras.callbacks.TensorBoard(logs, write_graph=False))
    training = data.training_pipeline(
        recipe, first_epoch=first_epoch, seed=options.seed, shard=devices.shard
    )
    if options.teacher is not None:
        training = _teach(training, data, recipe, first_epoch, options)
    try:
        with devices.scope():
            model.fit(
                training,
                epochs=recipe.total_epochs,
                initial_epoch=first_epoch,
                steps_per_epoch=steps,
                shuffle=False,
                validation_data=validation,
                callbacks=[*watching, *options.callbacks],
                verbose=0,
            )
    except (ValueError, RuntimeError) as error:
        if not devices.is_loss_of_host(error):
            raise
        raise RunError(
            f"lost another host after epoch {len(record.history)}; the same command "
            f"on all hosts goes on from there ({str(error).strip()[:100]})"
        ) from error
    except KeyboardInterrupt:
        if record.folder:
            done = len(record.history)
            _say(
                options.verbose,
                f"\ninterrupted; the same call goes on after epoch {done}",
            )
        raise


def _teach(training, data, recipe, first_epoch, options):
    if not recipe.teacher_views:
        return options.teacher.teach(training)
    answers = StoredAnswers(
        options.teacher,
        data,
        recipe,
        seed=options.seed,
        shard=options.devices.shard,
        say=lambda text: _say(options.verbose, text),
    )
    return answers.teach(training, first_epoch)


# === Results ===


def _save(folder, final, weights, name):
    final.set_weights(weights)
    folder.save_model(merge_lora(final), name)


def _write_results(folder, data, recipe, record, metrics, probabilities, options):
    folder.write_history(record.history)
    write_report(
        folder.path / REPORT,
        title=f"{recipe.variant} on {data.name}",
        metrics=metrics,
        history=record.history,
        class_names=data.class_names,
        examples=find_mistakes(data, "test", probabilities),
        facts=_facts(data, recipe, options),
        notes=list(data.notes),
    )
    # Last, as it says that the run is complete.
    folder.write_json(METRICS, metrics)


def _facts(data, recipe, options):
    import tensorflow as tf

    from cct_keras import __version__

    default = Recipe()
    height, width = data.image_size
    return {
        "command": options.command or "cct_keras.train",
        "data": data.describe(),
        "data fingerprint": data.fingerprint,
        "mean": ", ".join(f"{value:.4f}" for value in data.mean),
        "std": ", ".join(f"{value:.4f}" for value in data.std),
        "image size": f"{height} x {width}",
        "seed": str(options.seed),
        **{
            f"recipe: {name}": str(value)
            for name, value in _plain(recipe).items()
            if value != getattr(default, name) or name in ("epochs", "batch_size", "lr")
        },
        "dtype policy": precision_policy(recipe.precision),
        "versions": ", ".join(
            (
                f"cct_keras {__version__}",
                f"Keras {keras.__version__} on {keras.config.backend()}",
                f"TensorFlow {tf.__version__}",
                f"NumPy {np.__version__}",
                f"Python {platform.python_version()}",
            )
        ),
        "machine": f"{platform.machine()}, {platform.system()}",
    }
