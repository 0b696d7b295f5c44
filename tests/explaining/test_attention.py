"""Attention weights are those of `transformers` and of the authors' own code."""

import golden_attention as golden
import keras
import numpy as np
import pytest
import reference

import cct_keras
from cct_keras.kernels.observation import observe

pytestmark = pytest.mark.backend
rows = pytest.mark.parametrize("row", golden.ROWS, ids=lambda row: row["name"])
# One of each family and source; the others take the same way.
FIRST = {(row["name"].split("_")[0], row["family"]): row for row in golden.ROWS}
some_rows = pytest.mark.parametrize(
    "row",
    [
        pytest.param(
            row,
            id=row["name"],
            marks=[] if row in FIRST.values() else pytest.mark.integration,
        )
        for row in golden.ROWS
    ],
)


def watch(model, x):
    """What an observer sees, by kind, and what the model returns meanwhile."""
    seen = {}

    def look(kind, value):
        seen.setdefault(kind, []).append(keras.ops.convert_to_numpy(value)[0])
        return value

    with observe(look):
        outputs = keras.ops.convert_to_numpy(model(x, training=False))
    return seen, outputs


@rows
def test_what_is_observed(row):
    model, x = golden.model_of(row), golden.image_of(row)
    seen, logits = watch(model, x)
    attention = np.stack(seen["attention"])
    np.testing.assert_allclose(attention, golden.attention_of(row), atol=1e-6)
    np.testing.assert_allclose(attention.sum(axis=-1), 1, atol=1e-5)
    assert len(seen["tokens"]) == 1
    if row["pool"] is None:
        assert "pool" not in seen
    else:
        (pool,) = seen["pool"]
        np.testing.assert_allclose(pool, np.ravel(row["pool"]), atol=1e-6)
        np.testing.assert_allclose(pool.sum(), 1, atol=1e-5)
    expected = np.array(row["logits"])
    scale = np.abs(expected).max()
    np.testing.assert_allclose(logits[0], expected.ravel(), atol=1e-5 * scale)


@some_rows
def test_what_the_head_reads_through_each_head(row):
    """A class token's own row, or the rows of all tokens weighted by SeqPool."""
    found = cct_keras.explain(golden.model_of(row), golden.image_of(row), "attention")
    read = golden.reading_of(row) @ golden.attention_of(row)
    expected = golden.on_grid(row, read)
    np.testing.assert_allclose(found.attention_maps[0], expected, atol=1e-6)
    np.testing.assert_allclose(found.token_maps[0], expected[-1].mean(0), atol=1e-6)


def test_one_block_and_one_head():
    row = golden.ROWS[1]
    model, x = golden.model_of(row), golden.image_of(row)
    read = golden.on_grid(row, golden.reading_of(row) @ golden.attention_of(row))
    for block, head in ((0, 1), (1, 3), (-2, -1)):
        found = cct_keras.explain(model, x, "attention", block=block, head=head)
        np.testing.assert_allclose(found.token_maps[0], read[block, head], atol=1e-6)
    found = cct_keras.explain(model, x, "attention", block=0)
    np.testing.assert_allclose(found.token_maps[0], read[0].mean(0), atol=1e-6)


def test_a_distillation_token_without_a_head_is_not_read():
    state = reference.random_vit_state(
        tokens=16,
        num_layers=2,
        embedding_dim=32,
        mlp_ratio=1,
        patch_size=4,
        distilled=True,
        distillation_head=False,
    )
    model = cct_keras.convert(state, num_heads=2, classifier_activation=None)
    x = reference.random_images("one head", (1, 16, 16, 3))
    seen, _ = watch(model, x)
    found = cct_keras.explain(model, x, "attention").attention_maps[0]
    expected = np.stack(seen["attention"])[:, :, 0, 2:].reshape(found.shape)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_nobody_looks_without_being_asked():
    """An observer sees nothing after its time, and leaves no other output behind."""
    row = golden.ROWS[4]
    model, x = golden.model_of(row), golden.image_of(row)
    seen, observed = watch(model, x)
    count = len(seen["attention"])
    plain = keras.ops.convert_to_numpy(model(x, training=False))
    assert len(seen["attention"]) == count == row["num_layers"]
    np.testing.assert_allclose(plain, observed, atol=1e-6)
