"""`linear_probe`: a logistic regression on frozen features, in seconds."""

import dataclasses
import time
from functools import partial

import keras
import numpy as np

from cct_keras.errors import RecipeError
from cct_keras.inference.evaluate import measure
from cct_keras.inference.forward import run_on_batch
from cct_keras.notes import collected_notes
from cct_keras.training.build import build_model
from cct_keras.training.load import load_job
from cct_keras.training.load import resolve_recipe
from cct_keras.training.train import Run

# Inverse strengths of the penalty, for features of unit variance.
PENALTIES = tuple(10.0**k for k in range(-4, 3))
# With so many validation images, these alone choose the penalty.
ENOUGH_VALIDATION = 200


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
    """Fits a logistic regression on the features of trained weights.

    It shows in seconds how much the features of some weights are worth for a data set.
    The images pass through the model once, without augmentation. The penalty is chosen
    on the validation images or, if these are few, by cross-validation. The final fit
    uses all images but those of the test split.

    Args:
        data: What `load_data` takes, or what it returned.
        variant: One of `list_models()`. By default that of the file of weights.
        weights: What `train` takes as `weights`.
        image_size: Side, or height and width, of the model's images.
        data_dir: Where tensorflow-datasets keeps prepared data.
        seed: Seed of the splits.
        penalties: Inverse strengths of the penalty to choose from.

    Returns:
        A `Run` with the model, which takes raw images and returns probabilities, and
        its metrics. The history is empty.

    Example:

    >>> run = linear_probe("digits", weights="mnist", penalties=(1.0,))
    >>> run.metrics["test"]["top1"] > 0.8
    True
    """
    started = time.perf_counter()
    if weights is None:
        raise RecipeError(
            "a probe needs `weights`: a tag, a file or the folder of a run. "
            "Received: weights=None"
        )
    recipe, source = resolve_recipe("finetune", variant=variant, weights=weights)
    job = load_job(
        data,
        # The head is fitted here, whatever head the weights have.
        dataclasses.replace(recipe, fresh_head=True),
        source=source,
        image_size=image_size,
        data_dir=data_dir,
        seed=seed,
    )
    with collected_notes() as notes:
        # The fitted head reads the class token alone.
        model = build_model(job.data, job.recipe, job.source, distillation_head=False)
    notes = [note for note in dict.fromkeys(notes) if "head" not in note]
    data = dataclasses.replace(job.data, notes=(*job.data.notes, *notes))
    body = keras.Model(model.input, model.get_layer("pool").output)
    features = {name: _features(body, data, name) for name in ("train", "validation")}
    labels = {name: getattr(data, name).labels for name in features}
    penalty, accuracy = _choose_penalty(features, labels, penalties)
    kernel, bias = _fit_head(_joined(features), _joined(labels), penalty)
    model.get_layer("head").set_weights([kernel, bias])
    metrics = {
        "test": measure(partial(run_on_batch, model), data, "test")[1],
        "validation": {"top1": accuracy},
        "penalty": penalty,
        "seconds": time.perf_counter() - started,
        "trained_parameters": kernel.size + bias.size,
        "variant": job.recipe.variant,
        "data": data.name,
        "fingerprint": data.fingerprint,
    }
    return Run(model, [], metrics, data)


def _features(body, data, split):
    batches = data.pipeline(split, 256).as_numpy_iterator()
    return np.concatenate([run_on_batch(body, images) for images, _ in batches])


def _choose_penalty(features, labels, penalties):
    """The penalty with the lowest loss on held-out images, and the accuracy with it."""
    from scipy.special import logsumexp

    inputs, targets = _joined(features), _joined(labels)
    folds = _folds(labels, targets)
    results = {}
    for penalty in penalties:
        losses, hits = [], []
        for fitted, held_out in folds:
            kernel, bias = _fit_head(inputs[fitted], targets[fitted], penalty)
            logits = inputs[held_out] @ kernel + bias
            truth = np.take_along_axis(logits, targets[held_out, None], 1)[:, 0]
            losses.append(logsumexp(logits, axis=1) - truth)
            hits.append(logits.argmax(1) == targets[held_out])
        results[penalty] = np.concatenate(losses).mean(), np.concatenate(hits).mean()
    best = min(results, key=results.get)
    return best, float(results[best][1])


def _folds(labels, targets):
    """Pairs of indices: images to fit on, and images to hold out.

    A small validation split cannot tell penalties apart. Then every image is held out
    once.
    """
    from sklearn.model_selection import StratifiedKFold

    count, smallest_class = len(labels["train"]), np.bincount(targets).min()
    if len(labels["validation"]) >= ENOUGH_VALIDATION or smallest_class < 2:
        everything = np.arange(len(targets))
        return [(everything[:count], everything[count:])]
    folds = StratifiedKFold(min(5, smallest_class), shuffle=True, random_state=0)
    return list(folds.split(targets, targets))


def _joined(splits):
    return np.concatenate([splits["train"], splits["validation"]])


def _fit_head(features, labels, penalty):
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
        # scikit-learn has one row of logits, of the second class against the first.
        weights = np.concatenate([-weights, weights]) / 2
        intercepts = np.concatenate([-intercepts, intercepts]) / 2
    kernel = weights.T / std[:, None]
    return kernel.astype("float32"), (intercepts - mean @ kernel).astype("float32")
