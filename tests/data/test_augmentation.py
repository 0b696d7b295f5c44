"""Augmentation against Pillow, explicit references and known distributions."""

import itertools
import math
import random

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from PIL import ImageEnhance
from PIL import ImageOps
from scipy import stats

from cct_keras.data import operations
from cct_keras.data.crops import padded_crop
from cct_keras.data.crops import random_resized_crop
from cct_keras.data.mixing import mix
from cct_keras.data.mixing import random_erasing
from cct_keras.data.policies import CIFAR_POLICY
from cct_keras.data.policies import NAMES
from cct_keras.data.policies import auto_augment
from cct_keras.data.policies import parse_rand_augment
from cct_keras.data.policies import rand_augment

SEED = (3, 7)
MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)
FILL = (10, 20, 30)
AFFINE = {
    "shear_x": lambda s, w, h: (1, s, 0, 0, 1, 0),
    "shear_y": lambda s, w, h: (1, 0, 0, s, 1, 0),
    "translate_x": lambda s, w, h: (1, 0, s * w, 0, 1, 0),
    "translate_y": lambda s, w, h: (1, 0, 0, 0, 1, s * h),
}
PILLOW = {
    "auto_contrast": lambda image, s: ImageOps.autocontrast(image),
    "equalize": lambda image, s: ImageOps.equalize(image),
    "invert": lambda image, s: ImageOps.invert(image),
    # This Pillow refuses to keep no bit at all; timm asks for it.
    "posterize": lambda image, s: (
        ImageOps.posterize(image, s) if s else image.point(lambda value: 0)
    ),
    "solarize": lambda image, s: ImageOps.solarize(image, s),
    "solarize_add": lambda image, s: image.point(
        [min(255, i + int(s)) if i < 128 else i for i in range(256)]
        * len(image.getbands())
    ),
    "color": lambda image, s: ImageEnhance.Color(image).enhance(s),
    "contrast": lambda image, s: ImageEnhance.Contrast(image).enhance(s),
    "brightness": lambda image, s: ImageEnhance.Brightness(image).enhance(s),
    "sharpness": lambda image, s: ImageEnhance.Sharpness(image).enhance(s),
}
ENHANCEMENTS = (0.1, 0.19, 0.6, 0.95, 1.0, 1.3, 1.81, 1.9)
STRENGTHS = {
    "posterize": (0, 1, 2, 3, 4, 6, 7, 8),
    "solarize": (0, 26, 64, 100, 128, 200, 255, 256),
    "solarize_add": (0, 10, 50, 60, 90, 99, 110, 128),
    "color": ENHANCEMENTS,
    "contrast": ENHANCEMENTS,
    "brightness": ENHANCEMENTS,
    "sharpness": ENHANCEMENTS,
    "rotate": (-30.0, -27.0, -12.3, -1.0, 0.0, 4.2, 19.0, 29.9),
    "shear_x": (-0.3, -0.27, -0.1, 0.0, 0.01, 0.123, 0.2, 0.29),
    "shear_y": (-0.3, -0.27, -0.1, 0.0, 0.01, 0.123, 0.2, 0.29),
    "translate_x": (-0.45, -0.41, -0.25, 0.0, 0.01, 0.1, 0.33, 0.44),
    "translate_y": (-0.45, -0.41, -0.25, 0.0, 0.01, 0.1, 0.33, 0.44),
}
# Each as a function of images and a seed
FUNCTIONS = {
    "rand_augment": rand_augment,
    "auto_augment": auto_augment,
    "padded_crop": padded_crop,
    "random_resized_crop": lambda images, seed: random_resized_crop(
        images, seed, size=(20, 28), scale=(0.2, 1.0)
    ),
    "random_erasing": lambda images, seed: random_erasing(
        images,
        seed,
        probability=0.7,
        mean=MEAN[: images.shape[-1]],
        std=STD[: images.shape[-1]],
    ),
    "mix": lambda images, seed: mix(
        images, tf.zeros((tf.shape(images)[0], 2)), seed, mixup=0.8, cutmix=1.0
    )[0],
}


def noise_images(channels=3, count=8, height=24, width=32):
    shape = (count, height, width, channels)
    return np.random.default_rng(0).integers(0, 256, shape).astype("uint8")


def natural_images(channels=3, count=8, height=24, width=32):
    """Waves in few levels; one image is flat, one has a flat channel."""
    generator = np.random.default_rng(1)
    wave = generator.uniform(0.03, 0.2, (2, count, 1, 1, channels))
    x, y = np.arange(width)[:, None], np.arange(height)[:, None, None]
    base, depth = generator.uniform(60, 120, (2, count, 1, 1, channels))
    images = base + depth * np.sin(wave[0] * x) * np.cos(wave[1] * y)
    images += generator.normal(0, 4, images.shape)
    images[0], images[1, ..., 0] = 77, 200
    return np.clip(images, 0, 255).astype("uint8")


def with_pillow(name, image, strength):
    height, width, channels = image.shape
    fill = FILL if channels == 3 else round(np.mean(FILL))
    image = Image.fromarray(image if channels == 3 else image[..., 0])
    if name == "rotate":
        image = image.rotate(strength, Image.Resampling.BILINEAR, fillcolor=fill)
    elif name in AFFINE:
        image = image.transform(
            image.size,
            Image.Transform.AFFINE,
            AFFINE[name](strength, width, height),
            Image.Resampling.BILINEAR,
            fillcolor=fill,
        )
    else:
        image = PILLOW[name](image, strength)
    return np.asarray(image, "float32").reshape(height, width, channels)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("make", [noise_images, natural_images])
@pytest.mark.parametrize("name", NAMES)
def test_operation_equals_pillow(name, make, channels):
    images = make(channels)
    strength = STRENGTHS.get(name, (0.0,) * len(images))
    more = {} if name in PILLOW else {"fill": FILL}
    result = getattr(operations, name)(
        tf.constant(images, tf.float32), tf.constant(strength, tf.float32), **more
    ).numpy()
    expected = [with_pillow(name, *pair) for pair in zip(images, strength, strict=True)]
    # Pillow rounds the grey image or the smoothed one, and then the result.
    exact = ("equalize", "invert", "posterize", "solarize", "solarize_add")
    assert np.abs(result - expected).max() <= (0 if name in exact else 2)
    assert result.min() >= 0
    assert result.max() <= 255.001


def test_color_needs_three_channels():
    images = tf.constant(noise_images(channels=2), tf.float32)
    result = operations.color(images, tf.fill((8,), 0.1))
    np.testing.assert_array_equal(result, images)


def test_tiny_images_have_no_inside_to_sharpen():
    images = tf.constant(noise_images(height=2), tf.float32)
    np.testing.assert_array_equal(
        operations.sharpness(images, tf.fill((8,), 0.1)), images
    )


def operate(name, image, strength):
    """One operation on one image; None stands for no operation."""
    if name is None:
        return image
    return getattr(operations, name)(image, tf.constant([strength], tf.float32))


def rand_strengths(name, magnitude):
    """timm's, with both signs."""
    level = magnitude / 10
    for sign in (-1, 1):
        yield {
            "rotate": sign * 30 * level,
            "shear_x": sign * 0.3 * level,
            "shear_y": sign * 0.3 * level,
            "translate_x": sign * 0.45 * level,
            "translate_y": sign * 0.45 * level,
            "posterize": 4 - int(4 * level),
            "solarize": 256 - int(256 * level),
            "solarize_add": min(128, int(110 * level)),
        }.get(name, max(0.1, 1 + sign * 0.9 * level))


def auto_strengths(name, magnitude):
    """Those of the paper, with both signs."""
    for sign in (-1, 1):
        yield {
            "rotate": sign * np.linspace(0, 30, 10)[magnitude],
            "shear_y": sign * np.linspace(0, 0.3, 10)[magnitude],
            "translate_x": sign * np.linspace(0, 150 / 331, 10)[magnitude],
            "translate_y": sign * np.linspace(0, 150 / 331, 10)[magnitude],
            "posterize": np.round(np.linspace(8, 4, 10))[magnitude],
            "solarize": np.linspace(256, 0, 10)[magnitude],
        }.get(name, 1 + sign * np.linspace(0, 0.9, 10)[magnitude])


def check_outcomes(outcomes, results):
    """Compares the images that came out with those expected and how often.

    A random projection stands for an image.
    """
    direction = np.random.default_rng(0).normal(size=results[0].size)
    keys = np.array([np.ravel(image) @ direction for image, _ in outcomes])
    order = np.argsort(keys)
    starts = np.flatnonzero(np.diff(keys[order], prepend=-np.inf) > 0.05)
    share = np.add.reduceat(np.array([share for _, share in outcomes])[order], starts)
    keys = keys[order][starts]
    found = results.reshape(len(results), -1) @ direction
    nearest = np.abs(found[:, None] - keys).argmin(1)
    assert np.abs(found - keys[nearest]).max() < 0.1
    count = np.bincount(nearest, minlength=len(keys))
    error = np.sqrt(len(results) * share * (1 - share))
    assert (np.abs(count - len(results) * share) <= 5 * error + 3).all()
    return len(keys)


@pytest.mark.parametrize("magnitude", [3.0, 9.0, 15.0])
def test_rand_augment_draws_timms_operations(magnitude):
    image = tf.constant(natural_images(count=3, height=16, width=16)[2:], tf.float32)
    results = rand_augment(
        tf.repeat(image, 3000, 0),
        SEED,
        magnitude=magnitude,
        noise=0.0,
        operations=1,
        probability=0.75,
    ).numpy()
    outcomes = [(image, 0.25)]
    for name in NAMES:
        for strength in rand_strengths(name, min(magnitude, 10)):
            outcomes.append((operate(name, image, strength), 0.75 / 15 / 2))
    # Six have no sign, and a low threshold makes one the same as another.
    assert check_outcomes(outcomes, results) >= 1 + 2 * 15 - 6 - 1


def test_rand_augment_noise():
    images = tf.fill((4000, 4, 4, 1), 100.0)
    arguments = {"operations": 1, "probability": 1.0, "magnitude": 5.0, "noise": 1.0}
    results = rand_augment(images, SEED, **arguments).numpy()[:, 0, 0, 0]
    # On a flat image only less brightness gives such values, and broken ones.
    results = results[(results < 100) & (results % 1 != 0)]
    assert abs(len(results) - 4000 / 30) < 60
    levels = (1 - results / 100) / 0.09
    assert stats.kstest(levels, "norm", (5, 1)).pvalue > 1e-3


def test_rand_augment_repeats_with_replacement():
    image = tf.constant(natural_images(count=3)[2:], tf.float32)
    results = rand_augment(tf.repeat(image, 400, 0), SEED, probability=1.0).numpy()
    # Inverted twice is as before: one of 225.
    same = np.abs(results - image).max((1, 2, 3)) < 1e-3
    assert 0 < same.sum() < 12
    assert rand_augment(image, SEED, operations=0) is image


def test_auto_augment_draws_the_policy():
    image = tf.constant(natural_images(count=3, height=16, width=16)[2:], tf.float32)
    results = auto_augment(tf.repeat(image, 4000, 0), SEED).numpy()
    outcomes = []
    for first, p, m, second, q, k in CIFAR_POLICY:
        left = [(first, strength, p / 2) for strength in auto_strengths(first, m)]
        right = [(second, strength, q / 2) for strength in auto_strengths(second, k)]
        left.append((None, 0, 1 - p))
        right.append((None, 0, 1 - q))
        for one, two in itertools.product(left, right):
            if one[2] * two[2]:
                result = operate(two[0], operate(one[0], image, one[1]), two[1])
                outcomes.append((result, one[2] * two[2] / 25))
    assert math.isclose(sum(share for _, share in outcomes), 1)
    assert check_outcomes(outcomes, results) > 90


def test_cifar_policy_is_the_papers():
    assert len(CIFAR_POLICY) == 25
    names = [name for row in CIFAR_POLICY for name in (row[0], row[3])]
    assert set(names) <= set(NAMES)
    counts = {"equalize": 9, "auto_contrast": 7, "translate_y": 5, "sharpness": 5}
    assert {name: names.count(name) for name in counts} == counts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rand-m9-mstd0.5-inc1", (9.0, 0.5, 2, 0.5)),
        ("rand-m15-n2-mstd0.5-p0.3-inc1", (15.0, 0.5, 2, 0.3)),
        ("rand-inc1-n3-m7.5-p1", (7.5, 0.0, 3, 1.0)),
        ("rand-inc1", (10.0, 0.0, 2, 0.5)),
    ],
)
def test_parse_rand_augment(text, expected):
    names = ("magnitude", "noise", "operations", "probability")
    parsed = parse_rand_augment(text)
    assert parsed == dict(zip(names, expected, strict=True))
    rand_augment(tf.zeros((1, 4, 4, 3)), SEED, **parsed)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "''"),
        ("augmix-m9-inc1", "'augmix'"),
        ("rand-m9-mstd0.5", "'inc1'"),
        ("rand-m9-inc0", "'inc0'"),
        ("rand-m9-inc1-mmax10", "'mmax10'"),
        ("rand-m9-w0-inc1", "'w0'"),
        ("rand-m-inc1", "'m'"),
        ("rand-m9-m8-inc1", "'m8'"),
        ("rand-m9.5.1-inc1", "'m9.5.1'"),
        ("rand-n0-inc1", "'n0'"),
        ("rand-n1.5-inc1", "'n1.5'"),
        ("rand-p1.5-inc1", "'p1.5'"),
        ("rand-mstd101-inc1", "'mstd101'"),
        ("rand-m-9-inc1", "'m'"),
        ("rand--inc1", "''"),
    ],
)
def test_parse_rand_augment_names_the_part(text, part):
    with pytest.raises(ValueError, match=part):
        parse_rand_augment(text)


def ramps(count, height, width):
    """Images that hold the coordinates of their pixels."""
    y, x = np.mgrid[:height, :width].astype("float32")
    return np.repeat(np.stack([y, x, y * 0], -1)[None], count, 0)


def torchvision_box(generator, height, width, scale, ratio):
    for _ in range(10):
        area = height * width * generator.uniform(*scale)
        aspect = math.exp(generator.uniform(*map(math.log, ratio)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            top = generator.randint(0, height - h)
            left = generator.randint(0, width - w)
            return top, left, h, w
    if width / height < min(ratio):
        w, h = width, round(width / min(ratio))
    elif width / height > max(ratio):
        w, h = round(height * max(ratio)), height
    else:
        w, h = width, height
    return (height - h) // 2, (width - w) // 2, h, w


@pytest.mark.parametrize(
    ("size", "scale"),
    [((40, 40), (0.3, 1.0)), ((30, 60), (0.05, 0.9)), ((20, 80), (0.95, 1.0))],
)
def test_random_resized_crop_boxes(size, scale):
    count = 2000
    result = random_resized_crop(
        ramps(count, *size), SEED, size=4, scale=scale, flip=0.3
    ).numpy()
    # The sampling points of pixel centres give the box back.
    flipped = result[:, 0, 0, 1] > result[:, 0, 3, 1]
    result[flipped] = result[flipped, :, ::-1]
    slope_y = (result[:, 3, 0, 0] - result[:, 0, 0, 0]) / 3
    slope_x = (result[:, 0, 3, 1] - result[:, 0, 0, 1]) / 3
    top = result[:, 0, 0, 0] + 0.5 - slope_y / 2
    left = result[:, 0, 0, 1] + 0.5 - slope_x / 2
    boxes = np.stack([top, left, 4 * slope_y, 4 * slope_x], 1)
    np.testing.assert_allclose(boxes, np.round(boxes), atol=2e-3)
    boxes = np.round(boxes)
    assert boxes.min() >= 0
    for start, length, full in zip(boxes.T[:2], boxes.T[2:], size, strict=True):
        assert (start + length).max() <= full
        # Small boxes reach the end; the widest image has only one in the middle.
        small = length < full
        assert size == (20, 80) or (start + length)[small].max() == full
    generator = random.Random(0)
    expected = np.array(
        [torchvision_box(generator, *size, scale, (3 / 4, 4 / 3)) for _ in boxes]
    )
    for index in range(4):
        assert stats.ks_2samp(boxes[:, index], expected[:, index]).pvalue > 1e-3
    areas = boxes[:, 2] * boxes[:, 3], expected[:, 2] * expected[:, 3]
    assert stats.ks_2samp(*areas).pvalue > 1e-3
    assert abs(flipped.mean() - 0.3) < 5 * math.sqrt(0.21 / count)


@pytest.mark.parametrize("size", [(24, 32), (1, 1), (50, 7)])
def test_random_resized_crop_of_everything(size):
    images = tf.constant(noise_images(), tf.float32)
    crop = {"size": size, "scale": (1.0, 1.0), "ratio": (4 / 3, 4 / 3)}
    result = random_resized_crop(images, SEED, **crop, flip=0.0)
    expected = tf.image.resize(images, size)
    np.testing.assert_allclose(result, expected, atol=0.02)
    flipped = random_resized_crop(images, SEED, **crop, flip=1.0)
    np.testing.assert_allclose(flipped, expected[:, :, ::-1], atol=0.02)
    if size == (24, 32):
        np.testing.assert_allclose(result, images, atol=0.02)


def test_random_resized_crop_is_a_resized_crop():
    images = noise_images(count=1).astype("float32").repeat(30, 0)
    marked = np.concatenate([images, ramps(30, 24, 32)[..., :2]], -1)
    result = random_resized_crop(marked, SEED, size=48, scale=(0.3, 0.9), flip=0.0)
    result = result.numpy()
    # The coordinates tell where each pixel was taken.
    y, x = result[..., 3], result[..., 4]
    y0, x0 = np.floor(y).astype(int), np.floor(x).astype(int)
    y1, x1 = np.minimum(y0 + 1, 23), np.minimum(x0 + 1, 31)
    dy, dx = (y - y0)[..., None], (x - x0)[..., None]
    image = images[0]
    expected = (image[y0, x0] * (1 - dx) + image[y0, x1] * dx) * (1 - dy)
    expected += (image[y1, x0] * (1 - dx) + image[y1, x1] * dx) * dy
    np.testing.assert_allclose(result[..., :3], expected, atol=0.05)
    assert len({tuple(place) for place in y[:, :2, 0].round(3).tolist()}) > 15


def test_padded_crop_cuts_windows():
    image = noise_images(count=1).astype("float32")
    result = padded_crop(np.repeat(image, 3000, 0), SEED, padding=2, flip=0.25).numpy()
    padded = np.pad(image[0], ((2, 2), (2, 2), (0, 0)))
    windows = {}
    for top, left in itertools.product(range(5), range(5)):
        window = padded[top : top + 24, left : left + 32]
        windows[window.tobytes()] = (top, left, 0)
        windows[window[:, ::-1].tobytes()] = (top, left, 1)
    places = np.array([windows[window.tobytes()] for window in result])
    for axis in (0, 1):
        assert stats.chisquare(np.bincount(places[:, axis])).pvalue > 1e-3
    assert abs(places[:, 2].mean() - 0.25) < 5 * math.sqrt(0.1875 / 3000)
    assert abs(np.corrcoef(places[:, 0], places[:, 1])[0, 1]) < 0.1


def timm_box(generator, height, width):
    for _ in range(10):
        area = generator.uniform(0.02, 1 / 3) * height * width
        aspect = math.exp(generator.uniform(math.log(0.3), math.log(10 / 3)))
        h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if w < width and h < height:
            return h, w
    return 0, 0


@pytest.mark.parametrize("probability", [0.0, 0.25, 1.0])
def test_random_erasing(probability):
    count, height, width = 3000, 20, 16
    images = tf.fill((count, height, width, 3), -1000.0)
    result = random_erasing(
        images, SEED, probability=probability, mean=MEAN, std=STD
    ).numpy()
    erased = result != -1000
    assert (erased.all(-1) == erased.any(-1)).all()
    erased = erased[..., 0]
    happened = erased.any((1, 2))
    error = math.sqrt(probability * (1 - probability) / count)
    assert abs(happened.mean() - probability) <= 5 * error
    if not probability:
        return
    rows, columns = erased.any(2).sum(1)[happened], erased.any(1).sum(1)[happened]
    np.testing.assert_array_equal(erased.sum((1, 2))[happened], rows * columns)
    # Never the full height or width
    assert rows.max() < height
    assert columns.max() < width
    generator = random.Random(0)
    expected = np.array([timm_box(generator, height, width) for _ in range(3000)])
    assert stats.ks_2samp(rows, expected[:, 0]).pvalue > 1e-3
    assert stats.ks_2samp(columns, expected[:, 1]).pvalue > 1e-3
    assert stats.ks_2samp(rows * columns, expected.prod(1)).pvalue > 1e-3
    # All places are reached, the corners too.
    assert erased.any(0).all()
    values = (result[erased] / 255 - MEAN) / STD
    np.testing.assert_allclose(values.mean(0), 0, atol=0.02)
    np.testing.assert_allclose(values.std(0), 1, atol=0.02)
    assert len(np.unique(values)) > 0.95 * values.size


def test_random_erasing_gives_up_if_no_box_fits():
    images = tf.constant(noise_images(), tf.float32)
    result = random_erasing(
        images, SEED, probability=1.0, mean=MEAN, std=STD, area=(2.0, 3.0)
    )
    np.testing.assert_array_equal(result, images)


def mixed(count=600, **arguments):
    """Batches of a white square of class 0 and a black one of class 1."""
    images = tf.constant([[[[1.0]]], [[[0.0]]]]) * tf.ones((2, 16, 16, 1))
    pairs = tf.data.Dataset.range(count).map(
        lambda i: mix(images, tf.eye(2), tf.stack([i, 5]), **arguments)
    )
    images, labels = zip(*pairs.as_numpy_iterator(), strict=True)
    images, labels = np.stack(images), np.stack(labels)
    np.testing.assert_allclose(labels.sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(labels[:, 0], labels[:, 1, ::-1], atol=1e-6)
    # A label's share is that of the pixels.
    np.testing.assert_allclose(images[:, 0].mean((1, 2, 3)), labels[:, 0, 0], atol=1e-5)
    return images[:, 0, ..., 0], labels[:, 0, 0]


@pytest.mark.parametrize("alpha", [0.2, 0.8, 3.0])
def test_mixup(alpha):
    images, share = mixed(mixup=alpha, cutmix=0.0)
    assert np.ptp(images, (1, 2)).max() < 1e-6
    assert stats.kstest(share, "beta", (alpha, alpha)).pvalue > 1e-3


def test_cutmix():
    images, share = mixed(mixup=0.0, cutmix=1.0)
    assert set(np.unique(images)) == {0.0, 1.0}
    # The original is the reference: 16 pixels, a side of int(16 sqrt(1 - share))
    generator = np.random.default_rng(0)
    half = (16 * np.sqrt(1 - generator.uniform(size=20000))).astype(int) // 2
    sides = []
    for _ in range(2):
        centre = generator.integers(0, 16, half.size)
        sides.append(np.minimum(centre + half, 16) - np.maximum(centre - half, 0))
    expected = 1 - sides[0] * sides[1] / 256
    assert stats.ks_2samp(share, expected).pvalue > 1e-3
    cut = images == 0
    area = cut.any(1).sum(1) * cut.any(2).sum(1)
    np.testing.assert_array_equal(area, cut.sum((1, 2)))


def test_mix_switches():
    images, share = mixed(
        mixup=0.8, cutmix=1.0, probability=0.6, switch_probability=0.3, count=1000
    )
    # A box without an area counts as unmixed here.
    untouched = (images == 1).all((1, 2))
    mixup = ((images > 0) & (images < 1)).any((1, 2))
    assert abs(mixup.mean() - 0.6 * 0.7) < 5 * math.sqrt(0.42 * 0.58 / 1000)
    assert abs(untouched.mean() - 0.4) < 0.09
    assert (share[untouched] == 1).all()


def test_mix_off():
    images, labels = tf.ones((2, 4, 4, 1)), tf.eye(2)
    result = mix(images, labels, SEED, mixup=0.0, cutmix=0.0)
    assert result[0] is images
    assert result[1] is labels
    result = mix(images, labels, SEED, mixup=1.0, cutmix=1.0, probability=0.0)
    np.testing.assert_array_equal(result[1], labels)


def test_mix_survives_a_tiny_alpha():
    _, share = mixed(mixup=1e-4, cutmix=0.0, count=20)
    assert np.isfinite(share).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_seed_same_images(name):
    images, function = natural_images(count=13).astype("float32"), FUNCTIONS[name]
    np.testing.assert_array_equal(function(images, SEED), function(images, SEED))
    assert np.abs(function(images, SEED) - function(images, (3, 8))).max() > 1

    def augment(index, batch):
        return function(batch, tf.stack([index, 11]))

    batches = tf.data.Dataset.from_tensor_slices(images).batch(5).repeat(4).enumerate()
    many = batches.map(augment, num_parallel_calls=4, deterministic=True)
    assert many.element_spec.shape[1:] == function(images, SEED).shape[1:]
    first, second = [list(many.as_numpy_iterator()) for _ in range(2)]
    assert [len(batch) for batch in first[:3]] == [5, 5, 3]
    for one, two in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, two)
    assert np.abs(first[0] - first[3]).max() > 1


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "mix"])
def test_each_image_draws_its_own(name):
    images = natural_images(count=3).astype("float32")[2:].repeat(40, 0)
    result = FUNCTIONS[name](images, SEED).numpy()
    assert len({image.tobytes() for image in result}) > 15


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_batch_and_channels(name, count, channels):
    images = tf.constant(noise_images(channels)[:count], tf.float32)
    for dtype in (tf.int32, tf.int64):
        result = FUNCTIONS[name](images, tf.constant(SEED, dtype))
        assert result.dtype == tf.float32
        assert result.shape[0] == count
        assert result.shape[-1] == channels
        assert np.isfinite(result).all()
        if name != "random_erasing":
            assert ((result >= -0.01) & (result <= 255.01)).numpy().all()
