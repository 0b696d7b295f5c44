"""`linear_probe`: what frozen features are worth, in seconds."""

import dataclasses
import time

import keras
import numpy as np

from cct_keras.notes import collected_notes
from cct_keras.training.answers import answer
from cct_keras.training.evaluation import measure
from cct_keras.training.recipe import RecipeError
from cct_keras.training.recipes import find_recipe
from cct_keras.training.trainer import Run
from cct_keras.training.trainer import build_model
from cct_keras.training.trainer import load_for
from cct_keras.training.trainer import take_from_weights

# Inverse strengths of the penalty, for features of unit variance.
PENALTIES = tuple(10.0**k for k in range(-4, 3))
# Validation images from which on they choose the penalty alone.
ENOUGH = 200


def linear_probe(
    data,
    variant: str | None = None,
    *,
    weights,
    image_size: int | tuple[int, int] | None = None,
    data_dir=None,
    seed: int = 0,
    penalties: tuple[float, ...] = PENALTIES,
) -> Run:
    """Puts a logistic regression on the features of trained weights.

    The images go through the model once, without augmentation. The penalty is
    chosen on the validation images or, if these are few, by cross-validation; in the
    end all but the test images are fitted.

    Args:
        data: What `load_data` takes, or what it returned.
        variant: One of `list_models()`, if the weights do not tell.
        weights: A tag or a file, as for `train`.
        image_size: Side, or height and width, of the model's images.
        data_dir: Where tensorflow-datasets keeps prepared data.
        seed: Seed of the splits.
        penalties: Inverse strengths of the penalty to choose from.

    Returns:
        A `Run` with the model, raw images in and probabilities out, and its
        metrics; there is no history.

    Example:

    >>> run = linear_probe("digits", weights="runs/mnist")  # doctest: +SKIP
    >>> run.metrics["test"]["top1"]  # doctest: +SKIP
    0.961
    """
    started = time.perf_counter()
    if weights is None:
        raise RecipeError("a probe needs weights: a tag, a file or the folder of a run")
    fields = {} if variant is None else {"variant": variant}
    recipe = find_recipe("finetune", weights=weights, **fields)
    data = load_for(data, recipe, image_size=image_size, data_dir=data_dir, seed=seed)
    data, recipe = take_from_weights(data, recipe, {})
    # Whatever head the weights have, it makes room.
    recipe = dataclasses.replace(recipe, fresh_head=True)
    with collected_notes() as notes:
        model = build_model(data, recipe)
    notes = [note for note in dict.fromkeys(notes) if "head" not in note]
    data = dataclasses.replace(data, notes=(*data.notes, *notes))
    body = keras.Model(model.input, model.get_layer("pool").output)
    features = {name: _features(body, data, name) for name in ("train", "validation")}
    labels = {name: getattr(data, name).labels for name in features}
    penalty, accuracy = _choose(features, labels, penalties)
    kernel, bias = _fit(_joined(features), _joined(labels), penalty)
    model.get_layer("head").set_weights([kernel, bias])
    metrics = {
        "test": measure(model, data, "test")[1],
        "validation": {"top1": accuracy},
        "penalty": penalty,
        "seconds": time.perf_counter() - started,
        "trained_parameters": kernel.size + bias.size,
        "variant": recipe.variant,
        "data": data.name,
        "fingerprint": data.fingerprint,
    }
    return Run(model, [], metrics, data)


def _features(body, data, split):
    return np.concatenate(
        [
            answer(body, images)
            for images, _ in data.pipeline(split, 256).as_numpy_iterator()
        ]
    )


def _choose(features, labels, penalties):
    """The penalty with the lowest validation loss, and the accuracy with it."""
    from scipy.special import logsumexp

    inputs, answers = _joined(features), _joined(labels)
    turns = _turns(labels, answers)
    found = {}
    for penalty in penalties:
        losses, hits = [], []
        for train, held_out in turns:
            kernel, bias = _fit(inputs[train], answers[train], penalty)
            logits = inputs[held_out] @ kernel + bias
            truth = np.take_along_axis(logits, answers[held_out, None], 1)[:, 0]
            losses.append(logsumexp(logits, axis=1) - truth)
            hits.append(logits.argmax(1) == answers[held_out])
        found[penalty] = np.concatenate(losses).mean(), np.concatenate(hits).mean()
    best = min(found, key=found.get)
    return best, float(found[best][1])


def _turns(labels, answers):
    """Indices to fit on and to hold out.

    A small validation split cannot tell penalties apart: then all images take turns.
    """
    from sklearn.model_selection import StratifiedKFold

    count, smallest = len(labels["train"]), np.bincount(answers).min()
    if len(labels["validation"]) >= ENOUGH or smallest < 2:
        everything = np.arange(len(answers))
        return [(everything[:count], everything[count:])]
    folds = StratifiedKFold(min(5, smallest), shuffle=True, random_state=0)
    return list(folds.split(answers, answers))


def _joined(parts):
    return np.concatenate([parts["train"], parts["validation"]])


def _fit(features, labels, penalty):
    """Kernel and bias of a softmax head."""
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    mean, std = features.mean(0), features.std(0) + 1e-6
    fit = LogisticRegression(C=penalty, max_iter=2000)
    # On a busy machine the threads of BLAS wait for each other most of the time.
    with threadpool_limits(1):
        fit.fit((features - mean) / std, labels)
    weights, intercepts = fit.coef_, fit.intercept_
    if len(fit.classes_) == 2:
        # One row of logits, of the second class against the first.
        weights = np.concatenate([-weights, weights]) / 2
        intercepts = np.concatenate([-intercepts, intercepts]) / 2
    kernel = weights.T / std[:, None]
    return kernel.astype("float32"), (intercepts - mean @ kernel).astype("float32")
