"""`linear_probe`: two classifiers of frozen features, in seconds."""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable

import keras
import numpy as np

from cct_keras.data.dataset import Dataset
from cct_keras.errors import DataError
from cct_keras.errors import RecipeError
from cct_keras.inference.metrics import classification_metrics
from cct_keras.models.architecture import Architecture
from cct_keras.models.cost import variant_cost
from cct_keras.models.factory import build_architecture
from cct_keras.models.factory import create_model
from cct_keras.models.families import known_heads
from cct_keras.models.inspection import architecture_of
from cct_keras.notes import collected_notes
from cct_keras.pretrained.source import address_to_download
from cct_keras.pretrained.source import find_row
from cct_keras.pretrained.source import names_tag
from cct_keras.recipes.recipe import Recipe
from cct_keras.recipes.rows import find_recipe
from cct_keras.training.build import normalized_images
from cct_keras.training.feature_classifiers import PENALTIES
from cct_keras.training.feature_classifiers import Estimate
from cct_keras.training.feature_classifiers import choose_neighbors
from cct_keras.training.feature_classifiers import choose_penalty
from cct_keras.training.feature_classifiers import cross_validate
from cct_keras.training.feature_classifiers import fit_heads
from cct_keras.training.feature_classifiers import head_probabilities
from cct_keras.training.feature_classifiers import neighbor_probabilities
from cct_keras.training.features import backend_facts
from cct_keras.training.features import compute_features
from cct_keras.training.features import weights_digest
from cct_keras.training.load import load_suitable_data
from cct_keras.training.load import match_weights
from cct_keras.training.load import open_given
from cct_keras.training.train import Run

# What can be read of an image, in words.
READINGS = {
    "token": "the class token",
    "avg": "the mean of the image's tokens",
    "token_avg": "the class token and the mean of the image's tokens",
    "seq": "sequence pooling of the tokens",
    "map": "attention pooling of the tokens",
}
FEATURES = ("token", "avg", "token_avg")
# A test split of fewer images would tell little: all images are then left out in turn.
SMALLEST_TEST = 30
# Up to so many images are left out one by one, more of them in tenths.
MOST_ONE_BY_ONE = 50
# Features of larger images take long; DINOv2, for 518 pixels, was itself probed at 224.
LARGEST_DEFAULT = 384
# Half precision would make the saved model another function than the one fitted.
DTYPE = "float32"


def linear_probe(
    data,
    variant: str | None = None,
    *,
    weights,
    features: str | None = None,
    image_size: int | tuple[int, int] | None = None,
    data_dir=None,
    split_seed: int = 0,
    penalties: tuple[float, ...] = PENALTIES,
    cache: bool = True,
    verbose: bool = False,
    log: Callable[[str], None] | None = None,
) -> Run:
    """Fits a logistic regression and nearest neighbors on features of trained weights.

    It shows in seconds how much the features of some weights are worth for a data set.
    The images pass through the model once, without augmentation, and their features are
    kept in the cache. The penalty of the regression and the number of neighbors are
    chosen on the validation images or, if these are few, by cross-validation. The final
    fit uses all images but those of the test split. If there is no test split and there
    are too few images to cut one off, all images are left out in turn to measure the
    accuracy, and the final fit uses all of them.

    Nearest neighbors fit nothing. Where they are as good as the regression, the weights
    know these classes already; where they beat it, there are very few images a class,
    or some labels are wrong. Where the regression is far ahead, some directions of the
    features matter more than others for these classes, and fine-tuning gains most.

    Args:
        data: What `load_data` takes, or what it returned.
        variant: One of `list_models()`. By default that of the file of weights, which
            need not have a name.
        weights: What `train` takes as `weights`; also those of a body without a head.
        features: What is read of an image: the class `"token"`; `"avg"`, the mean of
            its other tokens; or `"token_avg"`, both side by side. By default what the
            head of the weights reads, or would read.
        image_size: Side, or height and width, of the model's images.
        data_dir: Where tensorflow-datasets keeps prepared data.
        split_seed: Seed of the splits, as that of `train`.
        penalties: Inverse strengths of the penalty to choose from.
        cache: Whether to look for the features in the cache, and to keep them there.
        verbose: Whether to show what is done, and how long it takes.
        log: Called with each line that is shown; by default they are printed.

    Returns:
        A `Run` with the model, which takes raw images and returns the probabilities of
        the logistic regression, and its metrics. The history is empty.
        `metrics["test"]` is of the regression and `metrics["knn"]` of the neighbors,
        whose number is its `k`. `metrics["estimate"]` says what they were measured on:
        `"test"` images, `"leave-one-out"` or `"10-fold cross-validation"` of all
        images, or `None` if every class has a single image; then both are `None`.

    Example:

    >>> run = linear_probe("digits", weights="mnist", penalties=(1.0,))
    >>> run.metrics["test"]["top1"] > 0.8, run.metrics["knn"]["top1"] > 0.8
    (True, True)
    """
    started = time.perf_counter()
    log = log or functools.partial(print, flush=True)
    say = log if verbose else lambda line: None
    if weights is None:
        raise RecipeError(
            "a probe needs `weights`: a tag, a file or the folder of a run. "
            "Received: weights=None"
        )
    source, variant = _open(weights, variant, say)
    architecture = source.architecture
    if variant is not None:
        architecture = Architecture.from_variant(variant)
    else:
        _check_told(source)
    data = _load(
        data,
        architecture,
        source,
        variant,
        image_size,
        data_dir=data_dir,
        seed=split_seed,
    )
    with collected_notes() as notes:
        model, read = _build(data, source, variant, features)
    notes = [note for note in dict.fromkeys(notes) if "head" not in note]
    data = dataclasses.replace(data, notes=(*data.notes, *notes))
    say(data.describe())
    for note in data.notes:
        say(f"note: {note}")

    # === Features ===
    head = model.get_layer("head")
    body = keras.Model(model.input, head.input)
    shaped = architecture_of(model)
    count = sum(map(len, (data.train, data.validation, data.test)))
    say(
        f"features: {read}; {body.output_shape[1]:,} numbers an image, {count:,} "
        f"images of {shaped.tokens:,} tokens each"
    )
    facts = None
    if cache:
        facts = {
            "weights": weights_digest(source.arrays, known_heads()),
            "architecture": dataclasses.replace(
                shaped, arguments={**shaped.arguments, "num_classes": 1}
            ).to_json(),
            "read": read,
            **backend_facts(DTYPE),
        }
    known = len(data.notes)
    rows, data = compute_features(
        body, data, shaped, facts=facts, say=say, show_bar=verbose
    )
    for note in data.notes[known:]:
        say(f"note: {note}")

    # === Classifiers ===
    fitted = np.concatenate([rows["train"], rows["validation"]])
    labels = np.concatenate([data.train.labels, data.validation.labels])
    _check_classes(labels, data)
    if not np.ptp(rows["train"], axis=0).any():
        note = "the features of all images are the same: they tell nothing apart"
        data = dataclasses.replace(data, notes=(*data.notes, note))
        say(f"note: {note}")
    classes, validation = data.num_classes, len(data.validation)
    penalty = choose_penalty(fitted, labels, classes, penalties, validation=validation)
    neighbors = choose_neighbors(fitted, labels, classes, validation=validation)
    ((kernel, bias),) = fit_heads(fitted, labels, classes, [penalty.value])
    head.set_weights([kernel, bias])
    name, estimate = _estimate(
        rows["test"], fitted, labels, data, (kernel, bias), neighbors.value, penalties
    )
    regression = knn = None
    if estimate is not None:
        truth = data.test.labels if name == "test" else labels[estimate.images]
        regression, knn = (
            classification_metrics(truth, probabilities, data.class_names)
            for probabilities in (estimate.regression, estimate.neighbors)
        )
        knn["k"] = neighbors.value
        if name != "test" and len(truth) < len(labels):
            note = (
                f"{len(labels) - len(truth)} images are alone in their class and "
                "cannot be left out: they are not measured"
            )
            data = dataclasses.replace(data, notes=(*data.notes, note))
            say(f"note: {note}")
    metrics = {
        "test": regression,
        "knn": knn,
        "estimate": name,
        "validation": {"top1": penalty.accuracy},
        "penalty": penalty.value,
        "features": read,
        "seconds": time.perf_counter() - started,
        "trained_parameters": kernel.size + bias.size,
        "variant": variant or str(source.architecture),
        "data": data.name,
        "fingerprint": data.fingerprint,
    }
    return Run(model, [], metrics, data)


# === Weights and data ===


def _open(weights, variant, say):
    """The weights, and the named variant that they are for, if there is one."""
    row = address = None
    # Opening the weights says what is wrong.
    with contextlib.suppress(ValueError):
        if variant is None and names_tag(weights):
            variant = Recipe().variant
        row = find_row(weights, variant)
        address = address_to_download(weights, variant)
    if address is not None:
        size = ""
        if row is not None:
            size = f", about {4e-6 * variant_cost(row.variant).parameters:,.0f} MB"
        say(f"weights: {address} has to be downloaded first{size}")
    source = open_given(weights, variant)
    if variant is None:
        row = source.row
        variant = row.variant if row else source.architecture.nearest_variant()
    body = [x for x in source.arrays if x.split("/")[0] not in known_heads()]
    parameters = sum(np.asarray(source.arrays[path]).size for path in body)
    say(
        f"weights: {source.name}, {variant or _in_words(source.architecture)}, "
        f"{parameters:,} parameters without a head{_row_text(source.row)}"
    )
    return source, variant


def _check_told(source):
    """Refuses weights of a file that does not tell what a model needs."""
    lacks = pronoun = None
    if source.architecture.arguments["num_heads"] is None:
        lacks, pronoun = "its heads", "them"
    elif source.positional_embedding is not None and source.architecture.grid is None:
        lacks, pronoun = "the grid of its positions", "it"
    if lacks is not None:
        raise RecipeError(
            f"{source.name} does not tell {lacks}: name {pronoun} to `convert`, and "
            "probe the .keras file that it writes"
        )


def _in_words(architecture):
    width, blocks = (architecture.get(k) for k in ("embedding_dim", "num_layers"))
    kernel = architecture.kernel_size
    tokenizer = architecture.row.tokenizer
    return (
        f"a {architecture.family} of {blocks} blocks, {width} wide, on {tokenizer} "
        f"of {kernel} x {kernel}"
    )


def _row_text(row):
    """What is published about known weights."""
    if row is None:
        return ""
    about = f"; {row.about.name}: {row.about.good_for}"
    if row.top1 is None:
        return about
    return f"{about}; {row.top1:g} % {row.about.measure}"


def _load(data, architecture, source, variant, image_size, **settings):
    name = variant or source.name
    known = None if source.mean is None else (source.mean, source.std)
    recipe = find_recipe("finetune", weights=source.name)
    data = load_suitable_data(
        data,
        architecture,
        name,
        image_size=image_size,
        largest_default=LARGEST_DEFAULT,
        crop=recipe.eval_crop,
        smallest_cut=SMALLEST_TEST,
        normalization=known,
        # Each file is read once, and not at all if its features are in the cache.
        in_memory=False,
        **settings,
    )
    data, _ = match_weights(data, recipe, source)
    if source.mean is None:
        note = (
            "the weights do not tell how images are normalized: they are by their own "
            "mean and deviation"
        )
        data = dataclasses.replace(data, notes=(*data.notes, note))
    return data


# === Model ===


def _build(data, source, variant, features):
    """A model with a head for the data, and in words what the head reads."""
    architecture = source.architecture
    _check_features(features, architecture)
    family = architecture.row
    arguments = {"num_classes": data.num_classes}
    if family.token_heads:
        # The fitted head reads the class token alone.
        arguments["distillation_head"] = False
    if features is not None and "top_pooling" in family.defaults:
        arguments["top_pooling"] = features
        arguments["class_token"] = "class_token" in architecture.prefix_tokens
        arguments["representation_size"] = None
    if variant is None:
        build = functools.partial(build_architecture, architecture)
    else:
        build = functools.partial(create_model, variant)
    model = build(
        input_tensor=normalized_images(data),
        weights=source,
        data_format="channels_last",
        dtype=DTYPE,
        **arguments,
    )
    # A body that came without its pooling must not be pooled at random.
    lacks_pool = "pool/attention/kernel" not in source.arrays
    if architecture.top_pooling == "seq" and (lacks_pool or features == "avg"):
        # Equal weights for all tokens.
        pool = model.get_layer("pool")
        pool.set_weights([np.zeros_like(array) for array in pool.get_weights()])
        return model, READINGS["avg"]
    if features is not None:
        return model, READINGS[features]
    read = READINGS[architecture.top_pooling]
    if architecture.get("representation_size"):
        read += " after `pre_logits`"
    if architecture.get("projection_dim"):
        read += " before the projection"
    verb = "reads" if architecture.num_classes else "would read"
    return model, f"{read}, which is what a head of these weights {verb}"


def _check_features(features, architecture):
    if architecture.top_pooling == "seq":
        choices = ("avg",)
    elif "top_pooling" not in architecture.row.defaults:
        choices = (architecture.top_pooling,)
    elif "class_token" in architecture.prefix_tokens:
        choices = FEATURES
    else:
        choices = ("avg",)
    if features is not None and features not in choices:
        raise RecipeError(
            f"`features` must be one of {', '.join(choices)} for these weights. "
            f"Received: features={features!r}"
        )


# === Measuring ===


def _check_classes(labels, data: Dataset):
    present = np.unique(labels)
    if len(present) < 2:
        names = [data.class_names[label] for label in present]
        raise DataError(
            f"{data.name}: a probe needs images of two classes or more to fit on. "
            f"Received: {len(labels)} images of {', '.join(names) or 'no class'}"
        )


def _estimate(test, fitted, labels, data, head, neighbors, penalties):
    """What was measured on, and the probabilities there."""
    if len(test):
        regression = head_probabilities(test, *head)
        votes = neighbor_probabilities(
            test, fitted, labels, data.num_classes, neighbors
        )
        return "test", Estimate(np.arange(len(test)), regression, votes)
    folds, name = len(labels), "leave-one-out"
    if len(labels) > MOST_ONE_BY_ONE:
        folds, name = 10, "10-fold cross-validation"
    found = cross_validate(fitted, labels, data.num_classes, penalties, folds)
    return (None, None) if found is None else (name, found)
