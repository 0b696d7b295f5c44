"""The second step of a run: its model."""

import logging
import math
from collections.abc import Iterator

import keras

from cct_keras.data.dataset import Dataset
from cct_keras.finetuning.freeze import freeze
from cct_keras.finetuning.lora import add_lora
from cct_keras.layers.preprocessing import Preprocessing
from cct_keras.models.factory import create_model
from cct_keras.models.families import FAMILIES
from cct_keras.models.families import known_heads
from cct_keras.models.variants import SIZES
from cct_keras.models.variants import find_variant
from cct_keras.pretrained.source import WeightSource
from cct_keras.recipes.recipe import Recipe

logger = logging.getLogger(__name__)


def build_model(
    data: Dataset,
    recipe: Recipe,
    source: WeightSource | None = None,
    *,
    classifier_activation: str | None = "softmax",
    frozen: bool = True,
    distillation_head: bool = True,
) -> keras.Model:
    """Builds the model of a recipe, for raw images of a data set.

    Args:
        data: Decides the classes, the image size and the normalization.
        recipe: Decides the variant, the dropout rates, the adapters and what is
            frozen.
        source: Weights to load, if any.
        classifier_activation: Activation of the head; `None` returns logits.
        frozen: Whether to freeze what the recipe freezes.
        distillation_head: Whether a distillation token has a head of its own.

    Returns:
        A Keras model that is not compiled.

    Example:

    >>> data = cct_keras.load_data("digits")
    >>> build_model(data, Recipe()).output_shape
    (None, 10)
    """
    if source is not None:
        source = _check_activation(recipe, source)
    normalized = normalized_images(data)
    model = create_model(
        recipe.variant,
        input_tensor=normalized,
        num_classes=data.num_classes,
        classifier_activation=classifier_activation,
        weights=source,
        data_format="channels_last",
        dtype=precision_policy(recipe.precision),
        **_changed_arguments(recipe, distillation_head),
    )
    if source is not None:
        _check_head(model, recipe, data, source)
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


def normalized_images(data: Dataset):
    """The beginning of a model: raw images of a data set, resized and normalized.

    Args:
        data: Decides the image size, the normalization and the names of the classes.

    Returns:
        A symbolic tensor of normalized images.

    Example:

    >>> normalized_images(cct_keras.load_data("digits")).shape
    (None, 16, 16, 1)
    """
    images = keras.Input((None, None, data.channels), name="images")
    return Preprocessing(
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


def _changed_arguments(recipe, distillation_head):
    """Constructor arguments that are not the variant's own."""
    rates = {
        "dropout_rate": recipe.dropout,
        "attention_dropout": recipe.attention_dropout,
        "stochastic_depth": recipe.stochastic_depth,
    }
    arguments = {name: rate for name, rate in rates.items() if rate is not None}
    kind = recipe.positional_embedding
    if kind != "auto":
        arguments["positional_embedding"] = None if kind == "none" else kind
    if recipe.activation not in ("auto", "gelu"):
        arguments["activation"] = recipe.activation
    family = FAMILIES[find_variant(recipe.variant).family]
    if not distillation_head and family.token_heads:
        arguments["distillation_head"] = False
    return arguments


def _check_activation(recipe, source):
    """Lets weights of another activation be a start: they are trained on anyway."""
    theirs = source.architecture.activation
    if recipe.activation in ("auto", theirs) or not source.tells_activation:
        return source
    logger.info(
        "the weights were trained with the activation %s; this run goes on with %s",
        theirs,
        recipe.activation,
    )
    return source.with_activation(recipe.activation)


# === Head ===


def _check_head(model, recipe, data, source):
    """Gives the model a fresh head if the loaded one is for other classes."""
    if source.num_classes != data.num_classes:
        return  # It did not fit, so the head is fresh anyway.
    if not recipe.fresh_head:
        if source.class_names == data.class_names:
            return
        if source.class_names is None:
            logger.info(
                "the weights have a head for %d classes, too, which is kept; for other "
                "classes use fresh_head=True",
                data.num_classes,
            )
            return
    for head in (layer for layer in model.layers if layer.name in known_heads()):
        head.kernel.assign(head.kernel_initializer(head.kernel.shape))
        head.bias.assign(head.bias_initializer(head.bias.shape))
    logger.info("the head starts fresh, for other classes than those of the weights")


# === What learns ===


def learning_lines(model: keras.Model, recipe: Recipe) -> Iterator[str]:
    """What is shown about the parameters that a run trains, and about its teacher.

    Args:
        model: The model, as `build_model` returns it.
        recipe: The recipe.

    Yields:
        One line each; none if everything is trained from a random start.

    Example:

    >>> data = cct_keras.load_data("digits")
    >>> recipe = Recipe(freeze="body")
    >>> list(learning_lines(build_model(data, recipe), recipe))
    ['training 1,290 of 276,427 parameters']
    """
    trained, all_of_them = count_trained(model), model.count_params()
    if recipe.weights is not None or trained < all_of_them:
        start = "" if recipe.weights is None else f" from {recipe.weights}"
        yield f"training {trained:,} of {all_of_them:,} parameters{start}"
    if recipe.teacher is not None:
        kind, _, _ = recipe.distillation
        yield f"{kind} distillation from {recipe.teacher}"


def count_trained(model: keras.Model) -> int:
    """How many parameters of a model are trained.

    Args:
        model: The model.

    Returns:
        The number of values in its trainable weights.

    Example:

    >>> count_trained(keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]))
    8
    """
    return sum(math.prod(weight.shape) for weight in model.trainable_weights)


def frozen_notes(recipe: Recipe) -> Iterator[str]:
    """What a user may have overlooked about the layers that a recipe freezes.

    Args:
        recipe: The recipe.

    Yields:
        One sentence each.

    Example:

    >>> list(frozen_notes(Recipe(freeze=1)))
    ['frozen layers keep their random values; weights=... starts from trained ones']
    """
    if recipe.weights is None and (recipe.freeze or recipe.lora_rank):
        yield (
            "frozen layers keep their random values; weights=... starts from trained "
            "ones"
        )
    blocks = SIZES[find_variant(recipe.variant).size].num_layers
    if recipe.unfreeze_epochs * (blocks + 1) >= recipe.total_epochs:
        yield (
            f"with unfreeze_epochs={recipe.unfreeze_epochs:g} some layers do not learn "
            f"within {recipe.total_epochs} epochs"
        )


# === Precision ===


def precision_policy(precision: str) -> str:
    """The Keras dtype policy that a recipe's precision means on this machine.

    Args:
        precision: A value of `Recipe.precision`.

    Returns:
        Name of a policy.

    Example:

    >>> precision_policy("mixed_bfloat16")
    'mixed_bfloat16'
    """
    if precision == "auto":
        # Only a run measures which one is the fastest.
        return "float32"
    if precision != "mixed":
        return precision
    # Not every GPU is fast in bfloat16, and the published runs used float16.
    policies = {"cpu": "float32", "tpu": "mixed_bfloat16"}
    return policies.get(device_type(), "mixed_float16")


def device_type() -> str:
    """What the backend computes on.

    Returns:
        `"cpu"`, `"gpu"` or `"tpu"`.

    Example:

    >>> device_type() in ("cpu", "gpu", "tpu")
    True
    """
    if keras.config.backend() == "torch":
        import torch

        return "gpu" if torch.cuda.is_available() else "cpu"
    return keras.distribution.list_devices()[0].split(":")[0]
