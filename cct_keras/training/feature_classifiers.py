"""Two classifiers of frozen features: a logistic regression and nearest neighbors.

Both take few images, classes of a single image and classes without any.
"""

import functools
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cct_keras.data.splits import deal_folds

# Inverse strengths of the penalty, for features of unit variance.
PENALTIES = tuple(10.0**k for k in range(-4, 3))
# How many neighbors may vote, and the temperature of their votes, as DINO has it.
NEIGHBORS = (1, 3, 5, 10, 20, 50, 100, 200)
TEMPERATURE = 0.07
# With so many validation images, these alone choose the penalty.
ENOUGH_VALIDATION = 200
# How often images are held out to choose a penalty.
FOLDS = 5
# How often, where all of this is done again without each of the images.
INNER_FOLDS = 3
# Logits of a class without images, to which nothing belongs.
NEVER = -1e4
# So many images are enough to choose the number of neighbors by.
ENOUGH_QUERIES = 2000
# How many images look for their neighbors at once.
CHUNK = 1024


class Choice(NamedTuple):
    """A value that was chosen on images that were held out.

    Attributes:
        value: The penalty, or the number of neighbors.
        accuracy: Share of the images held out that are classified rightly with it;
            `None` if none could be held out.
    """

    value: float
    accuracy: float | None


def make_folds(labels: np.ndarray, folds: int, seed: int = 0) -> list[tuple]:
    """Pairs of indices: images to fit on, and images to hold out.

    Every image is held out once, class by class, but for those that are alone in their
    class: without them nothing would be known of it.

    Args:
        labels: Classes of the images.
        folds: Number of pairs at most.
        seed: Seed of the order.

    Returns:
        The pairs; none if no image can be held out.

    Example:

    >>> [held_out.tolist() for _, held_out in make_folds(np.array([0, 1, 0]), 5)]
    [[0], [2]]
    """
    fold = deal_folds(labels, folds, seed)
    return [
        (np.flatnonzero(fold != number), np.flatnonzero(fold == number))
        for number in range(folds)
        if (fold == number).any()
    ]


# === Logistic regression ===


def choose_penalty(
    features: np.ndarray,
    labels: np.ndarray,
    classes: int,
    penalties: Sequence[float] = PENALTIES,
    *,
    validation: int = 0,
    folds: int = FOLDS,
) -> Choice:
    """The penalty with the lowest loss on images that were held out.

    Args:
        features: A row for each image.
        labels: Their classes.
        classes: Number of classes.
        penalties: What to choose from.
        validation: How many images at the end may be held out alone. A few cannot tell
            penalties apart; then every image is held out once.
        folds: In how many parts.

    Returns:
        A `Choice`.
    """
    from scipy.special import logsumexp

    penalties = sorted(penalties)
    pairs = [split_off(len(labels), validation)]
    if validation < ENOUGH_VALIDATION:
        pairs = make_folds(labels, folds)
    if not pairs:
        return Choice(penalties[len(penalties) // 2], None)
    losses = np.zeros(len(penalties))
    hits = np.zeros(len(penalties))
    for fitted, held_out in pairs:
        truth, rows = labels[held_out], np.arange(len(held_out))
        heads = fit_heads(features[fitted], labels[fitted], classes, penalties)
        for number, (kernel, bias) in enumerate(heads):
            logits = features[held_out] @ kernel + bias
            losses[number] += (logsumexp(logits, axis=1) - logits[rows, truth]).sum()
            hits[number] += (logits.argmax(1) == truth).sum()
    best = int(losses.argmin())
    count = sum(len(held_out) for _, held_out in pairs)
    return Choice(penalties[best], float(hits[best] / count))


def fit_heads(
    features: np.ndarray, labels: np.ndarray, classes: int, penalties: Sequence[float]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Logistic regressions with several penalties, as heads of a model.

    Args:
        features: A row for each image.
        labels: Their classes, at least two different ones.
        classes: Number of classes.
        penalties: Inverse strengths of the penalty, for features of unit variance; in
            rising order each fit starts where the one before ended.

    Returns:
        For each penalty the kernel and the bias of a softmax head.

    Example:

    >>> x, y = np.array([[0.0], [1.0]]), np.array([0, 2])
    >>> (kernel, bias), = fit_heads(x, y, 3, [1.0])
    >>> (x @ kernel + bias).argmax(1)
    array([0, 2])
    """
    from sklearn.linear_model import LogisticRegression

    features = features.astype("float64")
    mean, std = features.mean(0), features.std(0)
    # What rounding alone moves tells nothing.
    std[std <= 1e-6 * np.maximum(np.abs(mean), 1e-6)] = np.inf
    present = np.unique(labels)
    heads = []
    fit = LogisticRegression(max_iter=2000, warm_start=True)
    # On a busy machine the threads of BLAS wait for each other most of the time.
    with _thread_pools().limit(limits=1), warnings.catch_warnings():
        # That there are few images a class is known.
        warnings.filterwarnings("ignore", "The number of unique classes")
        inputs, axes = _fewest_columns((features - mean) / std)
        for penalty in penalties:
            fit.C = penalty
            fit.fit(inputs, labels)
            weights, intercepts = fit.coef_, fit.intercept_
            if len(present) == 2:
                # scikit-learn has one row of logits, of the second class against the
                # first.
                weights = np.concatenate([-weights, weights]) / 2
                intercepts = np.concatenate([-intercepts, intercepts]) / 2
            kernel = np.zeros((features.shape[1], classes))
            bias = np.full(classes, NEVER)
            kernel[:, present] = (weights @ axes).T / std[:, None]
            bias[present] = intercepts - mean @ kernel[:, present]
            heads.append((kernel.astype("float32"), bias.astype("float32")))
    return heads


def _fewest_columns(inputs):
    """The rows in the space that they span, and the axes of it.

    A penalized fit stays in that space, so that with few images it is the same in
    fewer columns.
    """
    if len(inputs) >= inputs.shape[1]:
        return inputs, np.eye(inputs.shape[1])
    axes, columns = np.linalg.qr(inputs.T)
    return columns.T, axes.T


@functools.cache
def _thread_pools():
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def head_probabilities(
    features: np.ndarray, kernel: np.ndarray, bias: np.ndarray
) -> np.ndarray:
    """What a softmax head makes of features.

    Example:

    >>> head_probabilities(np.zeros((1, 3)), np.ones((3, 2)), np.zeros(2))
    array([[0.5, 0.5]])
    """
    from scipy.special import softmax

    return softmax(features @ kernel + bias, axis=1)


# === Nearest neighbors ===


def choose_neighbors(
    features: np.ndarray, labels: np.ndarray, classes: int, *, validation: int = 0
) -> Choice:
    """How many neighbors should vote, by the accuracy on images that were held out.

    Args:
        features: A row for each image.
        labels: Their classes.
        classes: Number of classes.
        validation: How many images at the end may be held out alone. If they are few,
            every image is classified by all others.

    Returns:
        A `Choice`.
    """
    if validation >= ENOUGH_VALIDATION:
        fitted, queries = split_off(len(labels), validation)
        own = None
    else:
        fitted = np.arange(len(labels))
        # Nobody votes for the only image of its class.
        queries = np.flatnonzero(np.bincount(labels, minlength=classes)[labels] > 1)
        if len(queries) > ENOUGH_QUERIES:
            chosen = np.random.default_rng(0).permutation(len(queries))
            queries = queries[np.sort(chosen[:ENOUGH_QUERIES])]
        own = queries
    voters = len(fitted) - (own is not None)
    sizes = [k for k in NEIGHBORS if k <= voters]
    if not len(queries) or not sizes:
        return Choice(1, None)
    votes = _votes(
        features[queries], features[fitted], labels[fitted], classes, sizes, own
    )
    truth, rows = labels[queries], np.arange(len(queries))
    scores = []
    for size in sizes:
        shares = votes[size]
        hits = (shares.argmax(1) == truth).mean()
        loss = -np.log(shares[rows, truth].clip(1e-7)).mean()
        scores.append((-hits, loss, size))
    hits, _, best = min(scores)
    return Choice(best, float(-hits))


def neighbor_probabilities(
    queries: np.ndarray,
    features: np.ndarray,
    labels: np.ndarray,
    classes: int,
    neighbors: int,
) -> np.ndarray:
    """The shares of the votes of the nearest neighbors.

    Neighbors are those with the highest cosine similarity; their votes weigh
    `exp(similarity / 0.07)`.

    Args:
        queries: Features of the images to classify.
        features: Features of the images that vote.
        labels: Their classes.
        classes: Number of classes.
        neighbors: How many vote.

    Returns:
        A row for each query.

    Example:

    >>> x = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> neighbor_probabilities(np.array([[3.0, 0.1]]), x, np.array([1, 0]), 2, 1)
    array([[0., 1.]])
    """
    return _votes(queries, features, labels, classes, [neighbors], None)[neighbors]


def _votes(queries, features, labels, classes, sizes, own):
    """By the number of neighbors, the shares of the votes.

    Args:
        queries: Features of the images to classify.
        features: Features of the images that vote.
        labels: Their classes.
        classes: Number of classes.
        sizes: Numbers of neighbors.
        own: The index of each query among the images that vote, which it does not for
            itself; `None` if it is not among them.
    """
    queries, features = _unit(queries), _unit(features)
    most = min(max(sizes), len(features))
    shares = {size: np.zeros((len(queries), classes)) for size in sizes}
    for start in range(0, len(queries), CHUNK):
        rows = np.arange(start, min(start + CHUNK, len(queries)))
        similarities = queries[rows] @ features.T
        if own is not None:
            similarities[np.arange(len(rows)), own[rows]] = -np.inf
        # Of equally near ones the first count, so that the result is always the same.
        nearest = np.argsort(-similarities, axis=1, kind="stable")[:, :most]
        near = np.take_along_axis(similarities, nearest, 1).astype("float64")
        weights = np.exp((near - near[:, :1]) / TEMPERATURE)
        for size in sizes:
            for rank in range(min(size, most)):
                voted = labels[nearest[:, rank]]
                shares[size][rows, voted] += weights[:, rank]
    for votes in shares.values():
        votes /= votes.sum(axis=1, keepdims=True)
    return shares


def _unit(features):
    features = features.astype("float32")
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.maximum(lengths, 1e-12)


# === Both ===


def split_off(count: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the images before the last ones, and of the last ones.

    Example:

    >>> split_off(5, 2)
    (array([0, 1, 2]), array([3, 4]))
    """
    return np.arange(count - last), np.arange(count - last, count)


class Estimate(NamedTuple):
    """What both classifiers make of images that they were not fitted on.

    Attributes:
        images: Indices of the images.
        regression: Probabilities of the logistic regression, a row for each.
        neighbors: Those of the nearest neighbors.
    """

    images: np.ndarray
    regression: np.ndarray
    neighbors: np.ndarray


def cross_validate(
    features: np.ndarray,
    labels: np.ndarray,
    classes: int,
    penalties: Sequence[float],
    folds: int,
) -> Estimate | None:
    """Classifies every image by all others, or by those outside of its fold.

    Penalty and number of neighbors are chosen anew without the images held out.

    Args:
        features: A row for each image.
        labels: Their classes.
        classes: Number of classes.
        penalties: Penalties to choose from.
        folds: How many parts are held out in turn.

    Returns:
        An `Estimate`; `None` if every image is alone in its class.
    """
    pairs = make_folds(labels, folds)
    if not pairs:
        return None
    found = {}
    for fitted, held_out in pairs:
        x, y, queries = features[fitted], labels[fitted], features[held_out]
        penalty = penalties[0]
        if len(penalties) > 1:
            penalty = choose_penalty(x, y, classes, penalties, folds=INNER_FOLDS).value
        (head,) = fit_heads(x, y, classes, [penalty])
        neighbors = choose_neighbors(x, y, classes).value
        rows = zip(
            held_out,
            head_probabilities(queries, *head),
            neighbor_probabilities(queries, x, y, classes, neighbors),
            strict=True,
        )
        found |= {image: both for image, *both in rows}
    images = np.array(sorted(found))
    regression, votes = (np.stack([found[i][n] for i in images]) for n in (0, 1))
    return Estimate(images, regression, votes)
