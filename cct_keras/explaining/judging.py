"""`judge_explanations`: how far the maps of each method can be trusted."""

import dataclasses
import random
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence

import keras
import numpy as np

from cct_keras.errors import ModelError
from cct_keras.explaining.explain import explain_trained
from cct_keras.explaining.figures import judgement_bars
from cct_keras.explaining.images import draw_images
from cct_keras.explaining.methods import METHODS
from cct_keras.explaining.methods import find_method
from cct_keras.explaining.methods import usable_methods
from cct_keras.explaining.tracing import PREDICTED
from cct_keras.explaining.tracing import open_tracer
from cct_keras.inference.trained import open_trained
from cct_keras.models.features import with_input_shape

# Pictures are uncovered, or covered, in so many steps.
STEPS = 16
BATCH = 128
# Maps that agree so much with those of random weights do not depend on the weights.
SAME_MAP = 0.5
# What any method has to beat: no map at all, and the habit of photographers.
BASELINES = ("random", "center")
# The columns that decide, and whether more is better.
DECIDING = {"deletion": False, "insertion": True, "pointing": True, "apart": True}


@dataclasses.dataclass(frozen=True, eq=False)
class Judgement:
    """How the methods did.

    Attributes:
        rows: By method, and for `"random"` and `"center"`, which no method should lose
            to, means over the images:
            `deletion`, the probability of the class while the tokens are covered, those
            first that the map calls most important (area under the curve: less is
            better);
            `insertion`, the same while they are uncovered (more is better);
            `pointing`, how often the largest value is on a picture that was pasted at a
            random place of a canvas four times as large;
            `apart`, how often a map for one of two pasted pictures of different classes
            has more of its values on that one than on the other (0.5 by chance);
            `randomized`, the rank correlation with the maps of the same model with
            random weights, where 1 means that the map ignores what was learned; not
            known of quantized models, whose integers are not drawn at random;
            `seconds`, for one image.
            A value is `None` where it cannot be measured.
        errors: By method and column, half of the 95 % interval.
        counts: How many images each column was measured on.
        warnings: What to know before these maps are believed.
    """

    rows: Mapping[str, Mapping[str, float | None]]
    errors: Mapping[str, Mapping[str, float | None]]
    counts: Mapping[str, int]
    warnings: tuple[str, ...]

    @property
    def best(self) -> str:
        """The fast method with the best mean rank.

        `"occlusion"`, the slow referee, is left out.
        """
        names = [n for n in self.rows if n not in (*BASELINES, "occlusion")]
        if not names:
            raise ModelError("no fast method was judged")
        return min(names, key=self._mean_rank)

    def _mean_rank(self, name):
        names = [n for n in self.rows if n not in (*BASELINES, "occlusion")]
        ranks = []
        for column, more in DECIDING.items():
            values = {n: self.rows[n][column] for n in names}
            if None in values.values():
                continue
            ours = values[name]
            ranks.append(
                sum((v > ours) if more else (v < ours) for v in values.values())
                + 0.5 * sum(v == ours for v in values.values())
            )
        return float(np.mean(ranks)) if ranks else 0.0

    def plot(self):
        """Draws the methods side by side.

        Returns:
            A `matplotlib.figure.Figure`.
        """
        return judgement_bars(self)

    def __str__(self):
        """A table, the best methods first."""
        columns = ("deletion", "insertion", "pointing", "apart", "randomized")
        wide = max(len(name) for name in ("method", *self.rows))
        head = "".join(f"{c:>18}" for c in columns)
        lines = [f"{'method':<{wide}}{head}   ms/image"]
        for name, row in self.rows.items():
            cells = "".join(
                f"{'-':>18}"
                if row[c] is None
                else f"{row[c]:>10.3f} ± {self.errors[name][c]:.3f}"
                for c in columns
            )
            speed = row["seconds"]
            speed = f"{'-':>11}" if speed is None else f"{1000 * speed:>11.1f}"
            lines.append(f"{name:<{wide}}{cells}{speed}")
        # An interval says little where a few canvases were left.
        cells = "".join(f"{self.counts[c]:>10,}{'':8}" for c in columns)
        lines.append(f"{'images':<{wide}}{cells}".rstrip())
        return "\n".join(lines)


def judge_explanations(
    model,
    data,
    methods: Sequence[str] | None = None,
    *,
    split: str = "test",
    count: int = 100,
    seed: int = 0,
    data_dir=None,
    verbose: bool = False,
) -> Judgement:
    """Measures how far maps can be trusted, on images and by questions with answers.

    Args:
        model: As for `explain`.
        data: What `load_data` takes, or what it returned.
        methods: Names of methods; by default all that the model can be explained by.
        split: Images to judge on: `"test"`, `"validation"` or `"train"`.
        count: How many images, drawn at random.
        seed: Seed of all that is drawn.
        data_dir: Where tensorflow-datasets keeps prepared data.
        verbose: Whether to print a line before each method.

    Returns:
        A `Judgement`.

    Example:

    >>> judgement = judge_explanations(
    ...     "cct_2_3x2_32.digits", "digits", ["rollout", "gradient"], count=20
    ... )
    >>> list(judgement.rows)
    ['rollout', 'gradient', 'random', 'center']
    """
    trained = open_trained(model)
    readout = open_tracer(trained.model).readout(trained.model.input_shape)
    if None in trained.preprocessing["image_size"]:
        raise ModelError("a model for images of any size cannot be judged")
    if methods is None:
        methods = usable_methods(readout)
    if isinstance(methods, str):
        methods = [methods]
    for name in methods:
        find_method(name, readout)
    state = random.getstate()
    try:
        return _judge(
            trained, data, methods, split, count, seed, data_dir, verbose=verbose
        )
    finally:
        # Keras draws the seeds of layers from these numbers, which are the user's.
        random.setstate(state)


def _judge(trained, data, methods, split, count, seed, data_dir, *, verbose):
    images, labels = draw_images(trained, data, split, count, seed, data_dir)
    scenes = _Scenes(trained, images, labels, seed)
    rows, errors = {}, {}
    contestants = {name: _method_maps(name) for name in methods}
    contestants["random"] = _random_maps(seed)
    contestants["center"] = _center_maps()
    untrained = None
    if not any(layer.quantization_mode for layer in trained.model._flatten_layers()):
        untrained = dataclasses.replace(
            trained, model=_with_random_weights(trained.model, seed)
        )
    for name, make in contestants.items():
        if verbose:
            print(f"judging {name}", flush=True)
        measured = scenes.judge(make)
        measured["randomized"] = None
        if name in METHODS and untrained is not None:
            other = _method_maps(name)
            measured["randomized"] = _rank_correlations(
                make(trained, images, scenes.targets),
                other(untrained, images, scenes.targets),
            )
        rows[name], errors[name] = _summarize(measured)
        rows[name]["seconds"] = None
        if name in METHODS:
            rows[name]["seconds"] = _seconds(make, trained, images, scenes.targets)
    counts = {
        "deletion": len(images),
        "insertion": len(images),
        "pointing": len(scenes.pasted.images),
        "apart": len(scenes.paired.images),
        "randomized": len(images),
    }
    return Judgement(rows, errors, counts, tuple(_warnings(rows)))


# === Who is judged: functions of a model, images and targets ===


def _method_maps(name):
    def make(trained, images, targets):
        found = explain_trained(trained, images, name, list(targets), verbose=False)
        return found.token_maps

    return make


def _random_maps(seed):
    def make(trained, images, targets):
        generator = np.random.default_rng(seed)
        return generator.random((len(images), *_grid_of(trained)))

    return make


def _center_maps():
    """The nearer to the center, the larger."""

    def make(trained, images, targets):
        rows, columns = _grid_of(trained)
        y, x = np.mgrid[:rows, :columns]
        distance = ((y + 0.5) / rows - 0.5) ** 2 + ((x + 0.5) / columns - 0.5) ** 2
        return np.repeat(-distance[None], len(images), axis=0)

    return make


def _grid_of(trained):
    return open_tracer(trained.model).readout(trained.model.input_shape).grid


def _with_random_weights(model, seed):
    """A copy of the model as it could have been before training.

    The numbers come from a generator of their own: those of the user are left alone.
    """
    clone = keras.models.clone_model(model, clone_function=_unfrozen)
    generator = np.random.default_rng(seed)
    for weight in clone.weights:
        # The kernels beside adapters are frozen for good.
        if not (weight.trainable or weight.path.endswith("/kernel")):
            continue
        if np.ptp(keras.ops.convert_to_numpy(weight)) == 0 and len(weight.shape) < 2:
            # Most biases, and normalizations, begin with a constant.
            continue
        deviation = 0.02
        if "position_embedding" in weight.path:
            deviation = 0.2
        elif len(weight.shape) == 4:
            deviation = np.sqrt(2 / np.prod(weight.shape[:3]))
        weight.assign(generator.normal(0, deviation, weight.shape))
    return clone


def _unfrozen(layer):
    """The layer anew: what was frozen in training was learned nevertheless."""
    return type(layer).from_config({**layer.get_config(), "trainable": True})


# === The questions ===


@dataclasses.dataclass(frozen=True, eq=False)
class _Canvases:
    """Canvases with pasted pictures, in the order of `images`.

    Attributes:
        images: uint8 `(count, height, width, channels)`.
        boxes: Top, left, bottom and right of the picture that is asked for.
        others: The same of another picture, or `None`.
        targets: The class that is asked for.
    """

    images: np.ndarray
    boxes: np.ndarray
    others: np.ndarray | None
    targets: np.ndarray


NO_CANVASES = _Canvases(*(np.zeros((0, 4), int),) * 4)


class _Scenes:
    """Everything that methods are asked about a model, made once for all of them."""

    def __init__(self, trained, images, labels, seed):
        self.trained = trained
        self.images = images
        self.predict = _predictor(trained)
        probabilities = self.predict(images)
        # Maps explain what the model says, be it right or wrong.
        self.targets = probabilities.argmax(-1)
        self.fill = np.rint(255 * np.array(trained.preprocessing["mean"]))
        height, width = trained.preprocessing["image_size"]
        self.large = dataclasses.replace(
            trained,
            model=_of_size(trained, (2 * height, 2 * width)),
            architecture=dataclasses.replace(
                trained.architecture,
                arguments={
                    **trained.architecture.arguments,
                    "input_shape": (2 * height, 2 * width, trained.channels),
                },
                grid=None,
            ),
            preprocessing={
                **trained.preprocessing,
                "image_size": (2 * height, 2 * width),
            },
        )
        generator = np.random.default_rng(seed)
        truths = self.targets if labels is None else labels
        sure = np.flatnonzero(self.targets == truths)
        images, truths = images[sure], truths[sure]
        # What the model does not recognize on the canvas says nothing about maps.
        predict = _predictor(self.large)
        self.pasted = _paste_one(images, truths, generator, predict)
        self.paired = _paste_two(images, truths, generator, predict)

    def judge(self, make: Callable) -> dict[str, np.ndarray | None]:
        """One value for each image and question."""
        maps = make(self.trained, self.images, self.targets)
        deletion, insertion = self._cover_and_uncover(maps)
        return {
            "deletion": deletion,
            "insertion": insertion,
            "pointing": self._point(make),
            "apart": self._tell_apart(make),
        }

    def _cover_and_uncover(self, maps):
        maps = np.asarray(maps)
        count, grid = len(maps), maps.shape[1:]
        # Equal values are ordered at random, not from the top left.
        ties = np.random.default_rng(0).random((count, grid[0] * grid[1]))
        order = np.lexsort((ties, -maps.reshape(count, -1)), axis=-1)
        ranks = np.empty_like(order)
        np.put_along_axis(ranks, order, np.arange(order.shape[1])[None], axis=1)
        ranks = ranks.reshape(maps.shape)
        edges = np.rint(np.linspace(0, grid[0] * grid[1], STEPS + 1)).astype(int)
        curves = {True: [], False: []}
        for edge in edges:
            first = _enlarge(ranks < edge, self.images.shape[1:3])[..., None]
            for covered in (True, False):
                hidden = first if covered else ~first
                images = np.where(hidden, self.fill, self.images).astype(np.uint8)
                probabilities = self.predict(images)
                curves[covered].append(probabilities[np.arange(count), self.targets])
        # Area under a curve from 0 to 1.
        return (
            np.trapezoid(np.stack(curves[covered]), edges / edges[-1], axis=0)
            for covered in (True, False)
        )

    def _point(self, make):
        canvases = self.pasted
        if not len(canvases.images):
            return None
        maps = np.asarray(make(self.large, canvases.images, canvases.targets))
        maps = _enlarge(maps, canvases.images.shape[1:3])
        hits = []
        for values, (top, left, bottom, right) in zip(
            maps, canvases.boxes, strict=True
        ):
            inside = values[top:bottom, left:right] >= values.max()
            hits.append(inside.sum() / (values >= values.max()).sum())
        return np.array(hits)

    def _tell_apart(self, make):
        canvases = self.paired
        if not len(canvases.images):
            return None
        maps = np.asarray(make(self.large, canvases.images, canvases.targets))
        maps = _enlarge(maps, canvases.images.shape[1:3])
        own, other = (
            np.array(
                [
                    values[top:bottom, left:right].sum()
                    for values, (top, left, bottom, right) in zip(
                        maps, boxes, strict=True
                    )
                ]
            )
            for boxes in (canvases.boxes, canvases.others)
        )
        return np.where(own == other, 0.5, own > other)


def _of_size(trained, size):
    shape = (*size, trained.channels)
    if trained.channels_first:
        shape = (trained.channels, *size)
    return with_input_shape(trained.model, shape)


def _paste_one(images, labels, generator, predict):
    """Each picture at a random place of a canvas; kept if the model recognizes it."""
    canvases, boxes = [], []
    for image in images:
        canvas = _canvas(image)
        height, width = image.shape[:2]
        top, left = generator.integers(height + 1), generator.integers(width + 1)
        canvas[top : top + height, left : left + width] = image
        canvases.append(canvas)
        boxes.append((top, left, top + height, left + width))
    if not canvases:
        return _Canvases(
            np.zeros((0, 1, 1, 1), "uint8"), np.zeros((0, 4)), None, labels
        )
    canvases, boxes = np.stack(canvases), np.array(boxes)
    kept = predict(canvases).argmax(-1) == labels
    return _Canvases(canvases[kept], boxes[kept], None, labels[kept])


def _paste_two(images, labels, generator, predict):
    """Two pictures of different classes, in different corners of a canvas.

    Kept if both classes are the two that the model finds likeliest.
    """
    canvases, boxes, others, pairs = [], [], [], []
    for index, image in enumerate(images):
        choices = np.flatnonzero(labels != labels[index])
        if not len(choices):
            continue
        second = int(generator.choice(choices))
        height, width = image.shape[:2]
        canvas = _canvas(image)
        corners = [(y, x) for y in (0, height) for x in (0, width)]
        chosen = generator.permutation(4)[:2]
        places = []
        for corner, pixels in zip(chosen, (image, images[second]), strict=True):
            top, left = corners[corner]
            canvas[top : top + height, left : left + width] = pixels
            places.append((top, left, top + height, left + width))
        canvases.append(canvas)
        boxes.append(places[0])
        others.append(places[1])
        pairs.append((labels[index], labels[second]))
    if not canvases:
        return NO_CANVASES
    canvases, pairs = np.stack(canvases), np.array(pairs)
    likeliest = np.argsort(-predict(canvases), axis=-1)[:, :2]
    kept = (np.sort(likeliest, axis=-1) == np.sort(pairs, axis=-1)).all(axis=-1)
    return _Canvases(
        canvases[kept], np.array(boxes)[kept], np.array(others)[kept], pairs[kept, 0]
    )


def _canvas(image):
    """A canvas of twice the side, in the color that the border of the picture has."""
    height, width, channels = image.shape
    border = np.concatenate([image[0], image[-1], image[:, 0], image[:, -1]])
    canvas = np.empty((2 * height, 2 * width, channels), "uint8")
    canvas[:] = np.median(border, axis=0).astype("uint8")
    return canvas


def _predictor(trained):
    tracer = open_tracer(trained.model)

    def predict(pixels):
        parts = [
            tracer.run(
                None,
                (),
                trained.as_input(pixels[start : start + BATCH]),
                np.full(len(pixels[start : start + BATCH]), PREDICTED),
            )[1]
            for start in range(0, len(pixels), BATCH)
        ]
        if not parts:
            return np.zeros((0, trained.num_classes), "float32")
        return np.concatenate(parts)

    return predict


def _enlarge(maps, size):
    """Maps over tokens as maps over pixels of the model's input."""
    rows, columns = (
        np.arange(length) * count // length
        for length, count in zip(size, maps.shape[1:], strict=True)
    )
    return maps[:, rows][:, :, columns]


def _rank_correlations(maps, others):
    """Spearman's rank correlation of each pair of maps; 0 for a map of one value."""
    from scipy.stats import rankdata

    count = len(maps)
    first, second = (
        rankdata(np.asarray(x).reshape(count, -1), axis=1) for x in (maps, others)
    )
    first, second = (x - x.mean(axis=1, keepdims=True) for x in (first, second))
    scale = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
    product = (first * second).sum(axis=1)
    return np.divide(product, scale, out=np.zeros(count), where=scale > 0)


def _seconds(make, trained, images, targets):
    """Of one image, without the time that compiling takes; the best of a few."""
    times = []
    while len(times) < 3 and sum(times) < 1:
        start = time.perf_counter()
        make(trained, images, targets)
        times.append(time.perf_counter() - start)
    return min(times) / len(images)


def _summarize(measured):
    means, errors = {}, {}
    for column, values in measured.items():
        if values is None:
            means[column] = errors[column] = None
            continue
        values = np.asarray(values, "float64")
        means[column] = float(values.mean())
        errors[column] = float(1.96 * values.std() / np.sqrt(len(values)))
    return means, errors


def _warnings(rows):
    for name, row in rows.items():
        if row["randomized"] is not None and row["randomized"] > SAME_MAP:
            yield (
                f"{name}: the maps of random weights are almost the same (rank "
                f"correlation {row['randomized']:.2f}): they show the picture, not "
                "what the model learned"
            )
        lost = [
            other
            for other in BASELINES
            if name not in BASELINES and row["insertion"] <= rows[other]["insertion"]
        ]
        if lost:
            yield (
                f"{name}: what it calls important helps the model no more than a "
                f"{lost[0]} map (insertion {row['insertion']:.3f} against "
                f"{rows[lost[0]]['insertion']:.3f})"
            )
