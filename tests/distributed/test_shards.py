"""The pipelines of several machines and devices, compared with those of one."""

import numpy as np
import pytest
from machines import FIELDS

import cct_keras
from cct_keras.recipes.rows import find_recipe


@pytest.fixture(scope="module")
def data(source):
    return cct_keras.load_data(source)


def test_parts_of_the_training_batches_make_the_whole(data):
    recipe = find_recipe(**FIELDS)
    whole = list(data.training_pipeline(recipe, epochs=1).as_numpy_iterator())
    parts = [
        list(data.training_pipeline(recipe, epochs=1, shard=(i, 2)).as_numpy_iterator())
        for i in range(2)
    ]
    assert len(whole) == len(parts[0]) == len(parts[1])
    for (x, y), (x0, y0), (x1, y1) in zip(whole, *parts, strict=True):
        np.testing.assert_array_equal(np.concatenate([x0, x1]), x)
        np.testing.assert_array_equal(np.concatenate([y0, y1]), y)


def test_machines_draw_apart(data):
    recipe = find_recipe(**{**FIELDS, "erase_prob": 1.0, "batch_size": 2})
    twice = cct_keras.load_data((np.zeros((40, 8, 8), "uint8"), np.arange(40) % 2))
    first, second = (
        next(twice.training_pipeline(recipe, shard=(i, 2)).as_numpy_iterator())[0]
        for i in range(2)
    )
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(("multiple", "hosts"), [(2, 1), (4, 2), (6, 3)])
@pytest.mark.parametrize("batch_size", [4, 7, 256])
def test_padding_changes_no_mean(data, multiple, hosts, batch_size):
    parts = [
        list(
            data.padded_pipeline(
                "validation", batch_size, multiple=multiple, shard=(host, hosts)
            ).as_numpy_iterator()
        )
        for host in range(hosts)
    ]
    value = 0.0
    seen = []
    for batches in zip(*parts, strict=True):
        sizes = {len(weights) for _, _, weights in batches}
        assert len(sizes) == 1
        assert hosts * sizes.pop() % multiple == 0
        for images, _, weights in batches:
            value += (images.mean(axis=(1, 2, 3)) * weights).sum()
            seen += [image for image, w in zip(images, weights, strict=True) if w]
    count = sum(len(weights) for part in parts for _, _, weights in part)
    truth = np.stack(seen).mean()
    assert len(seen) == len(data.validation) == 15
    # What Keras computes: divided by all, padding included.
    assert value / count == pytest.approx(truth, rel=1e-5)
    expected = np.stack([data.validation.images[i] for i in range(15)]).mean()
    assert truth == pytest.approx(expected, rel=1e-5)
