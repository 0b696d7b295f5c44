"""The judge: numbers with known truths, and an independent judge beside it."""

import random

import keras
import numpy as np
import pytest
from keras import ops
from raw_model import raw_model
from small import small_model
from small import stripes

import cct_keras
from cct_keras.errors import DataError
from cct_keras.errors import ModelError
from cct_keras.explaining.methods import METHODS
from cct_keras.explaining.methods import Method

DIGITS = "cct_2_3x2_32.digits"
SHARES = ("deletion", "insertion", "pointing", "apart")


def center_of(trace):
    """A map that looks at neither the picture nor the weights."""
    rows, columns = trace.readout.grid
    y, x = np.mgrid[:rows, :columns]
    distance = ((y + 0.5) / rows - 0.5) ** 2 + ((x + 0.5) / columns - 0.5) ** 2
    values = ops.convert_to_tensor((1 - distance).reshape(1, -1).astype("float32"))
    return ops.broadcast_to(values, (ops.shape(trace.tokens)[0], rows * columns))


@pytest.fixture(scope="module")
def judgement():
    """Of the shipped model of digits, with a method that ignores everything."""
    with pytest.MonkeyPatch.context() as context:
        context.setitem(METHODS, "blind", Method("blind", "nearness", center_of))
        methods = ["occlusion", "blind"]
        return cct_keras.judge_explanations(DIGITS, "digits", methods, count=16)


@pytest.fixture(scope="module")
def stripe_data():
    pixels, labels = stripes(16)
    pixels = np.repeat(pixels[..., None], 3, axis=-1)
    return cct_keras.load_data((pixels, labels))


@pytest.mark.integration
def test_rows_and_columns(judgement):
    names = ["occlusion", "blind", "random", "center"]
    assert list(judgement.rows) == names
    for name, row in judgement.rows.items():
        for column in SHARES:
            assert 0 <= row[column] <= 1, (name, column)
            assert judgement.errors[name][column] >= 0
        if name in ("random", "center"):
            assert row["randomized"] is None
            assert row["seconds"] is None
        else:
            assert -1 <= row["randomized"] <= 1 + 1e-9
            assert row["seconds"] > 0
    assert judgement.counts["deletion"] == judgement.counts["insertion"] == 16
    assert 0 < judgement.counts["pointing"] <= 16
    assert 0 < judgement.counts["apart"] <= 16


@pytest.mark.integration
def test_what_asks_the_model_itself_beats_no_map(judgement):
    """Occlusion measures what deletion and insertion ask for."""
    right, random = judgement.rows["occlusion"], judgement.rows["random"]
    margin = judgement.errors["occlusion"]["deletion"]
    assert right["deletion"] < random["deletion"] - margin
    margin = judgement.errors["occlusion"]["insertion"]
    assert right["insertion"] > random["insertion"] + margin


@pytest.mark.integration
def test_a_map_that_ignores_the_weights_is_found_out(judgement):
    blind = judgement.rows["blind"]
    assert blind["randomized"] == pytest.approx(1)
    warnings = [line for line in judgement.warnings if line.startswith("blind:")]
    assert any("random weights are almost the same" in line for line in warnings)
    assert any("no more than a center map" in line for line in warnings)
    center = judgement.rows["center"]
    # It is the center, and so are its numbers; sums over boxes differ in sign alone.
    for column in ("deletion", "insertion", "pointing"):
        assert blind[column] == pytest.approx(center[column], abs=1e-6)
    assert not [line for line in judgement.warnings if line.startswith("occlusion:")]


@pytest.mark.integration
def test_the_best_is_a_fast_method(judgement):
    assert judgement.best == "blind"


def test_table_and_figure(unseeing):
    judgement = unseeing["judgement"]
    lines = str(judgement).splitlines()
    assert [line.split()[0] for line in lines] == ["method", *judgement.rows, "images"]
    counts = [judgement.counts[column] for column in (*SHARES, "randomized")]
    assert [int(word) for word in lines[-1].split()[1:]] == counts
    assert f"{judgement.rows['blind']['deletion']:.3f}" in lines[2]
    figure = judgement.plot()
    assert len(figure.axes) == 5
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == list(judgement.rows)
    width = figure.axes[0].patches[0].get_width()
    assert width == pytest.approx(judgement.rows["rollout"]["deletion"])


@pytest.fixture(scope="module")
def unseeing(stripe_data):
    """A model whose answer is the same for all pictures, its judgement, its truth."""
    model = raw_model()
    head = model.get_layer("head")
    head.kernel.assign(np.zeros(head.kernel.shape))
    head.bias.assign([3.0, 1.0, 0.0, 0.0, 0.0])
    odds = np.exp([3.0, 1.0, 0.0, 0.0, 0.0])
    before = [x.copy() for x in model.get_weights()]
    keras.utils.set_random_seed(123)
    states = [(*np.random.get_state()[1], random.getstate())]
    with pytest.MonkeyPatch.context() as context:
        context.setitem(METHODS, "blind", Method("blind", "nearness", center_of))
        methods = ["rollout", "blind"]
        found = cct_keras.judge_explanations(model, stripe_data, methods, count=4)
    states.append((*np.random.get_state()[1], random.getstate()))
    return {
        "judgement": found,
        "probability": odds[0] / odds.sum(),
        "weights": (before, model.get_weights()),
        "states": states,
    }


def test_a_model_that_sees_nothing(unseeing):
    """Whatever is covered, its answer is the same, and no map is right."""
    found, probability = unseeing["judgement"], unseeing["probability"]
    for row in found.rows.values():
        assert row["deletion"] == pytest.approx(probability, abs=1e-5)
        assert row["insertion"] == pytest.approx(probability, abs=1e-5)
    assert [
        line for line in found.warnings if line.startswith("rollout: what it calls")
    ]
    # Nothing but the first class is ever told, so there is no pair to tell apart.
    assert found.counts["apart"] == 0
    assert found.rows["rollout"]["apart"] is None
    for old, new in zip(*unseeing["weights"], strict=True):
        np.testing.assert_array_equal(old, new)


def test_the_blind_method_is_found_out_there_too(unseeing):
    found = unseeing["judgement"]
    assert found.rows["blind"]["randomized"] == pytest.approx(1)
    start = "blind: the maps of random weights are almost the same"
    assert [line for line in found.warnings if line.startswith(start)]
    assert found.best in ("rollout", "blind")


def test_random_numbers_of_others_are_left_alone(unseeing):
    """Whoever draws random numbers draws the same as without a judge between."""
    before, after = unseeing["states"]
    assert before == after


@pytest.mark.integration
def test_frozen_weights_are_drawn_by_the_same_seed(stripe_data):
    """Also those that adapters freeze; a frozen model has the numbers of before."""

    def judge(model, seed):
        keras.utils.set_random_seed(seed)
        judged = cct_keras.judge_explanations(model, stripe_data, "rollout", count=2)
        return judged.rows["rollout"]["randomized"]

    model = raw_model()
    before = judge(model, 1)
    model.trainable = False
    assert judge(model, 2) == pytest.approx(before, abs=1e-4)
    adapted = cct_keras.add_lora(raw_model(), 2)
    assert judge(adapted, 3) == pytest.approx(judge(adapted, 4), abs=1e-4)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_the_integers_of_a_quantized_model_are_not_random(stripe_data):
    model = raw_model()
    model.quantize("int8")
    judged = cct_keras.judge_explanations(model, stripe_data, "rollout", count=4)
    assert judged.rows["rollout"]["randomized"] is None
    assert judged.rows["rollout"]["deletion"] is not None
    judged.plot()


def test_refusals(stripe_data):
    with pytest.raises(ModelError, match="Did you mean: rollout"):
        cct_keras.judge_explanations(raw_model(), stripe_data, ["rolout"])
    any_size = small_model(
        "CCT", input_shape=(None, None, 3), positional_embedding=None
    )
    with pytest.raises(ModelError, match="any size cannot be judged"):
        cct_keras.judge_explanations(any_size, stripe_data)
    # One name alone is not the list of its letters.
    with pytest.raises(ModelError, match="unknown `method` 'rolout'"):
        cct_keras.judge_explanations(raw_model(), stripe_data, "rolout")
    with pytest.raises(DataError, match="`split` must be one of: train, validation"):
        cct_keras.judge_explanations(raw_model(), stripe_data, split="dev")
    with pytest.raises(DataError, match="`count` must be 1 or more"):
        cct_keras.judge_explanations(raw_model(), stripe_data, count=2.5)


@pytest.mark.integration
@pytest.mark.backend
@pytest.mark.parametrize("family", ["CVT", "ViTLite", "DeiT"])
def test_every_family(family, stripe_data):
    """All methods that it has, and the same numbers for the same seed."""
    model = small_model(family, num_classes=2)
    first, second = (
        cct_keras.judge_explanations(model, stripe_data, count=5, seed=3)
        for _ in range(2)
    )
    assert ("seqpool" in first.rows) == (family == "CVT")
    assert len(first.rows) == (9 if family == "CVT" else 8)
    for name, row in first.rows.items():
        for column in (*SHARES, "randomized"):
            expected = second.rows[name][column]
            if row[column] is None:
                assert expected is None
            else:
                assert row[column] == pytest.approx(expected, abs=1e-4)


@pytest.mark.integration
@pytest.mark.backend
def test_channels_first(stripe_data):
    last = small_model("ViT", num_classes=2)
    first = small_model(
        "ViT", num_classes=2, input_shape=(3, 16, 16), data_format="channels_first"
    )
    first.set_weights(last.get_weights())
    found, expected = (
        cct_keras.judge_explanations(model, stripe_data, ["rollout"], count=5).rows
        for model in (first, last)
    )
    for name, row in expected.items():
        for column in ("deletion", "insertion"):
            assert found[name][column] == pytest.approx(row[column], abs=1e-4)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(
    keras.config.backend() != "tensorflow", reason="xplique is for TensorFlow"
)
@pytest.mark.parametrize("method", ["rollout", "occlusion"])
def test_an_independent_judge_measures_the_same(method):
    """`xplique`, on maps of pixels: one of sixteen tokens a step."""
    metrics = pytest.importorskip("xplique.metrics")
    model = cct_keras.load_classifier(DIGITS)
    split = cct_keras.load_data("digits").test
    pixels = np.stack([split.images[i] for i in range(len(split))])
    ours = cct_keras.judge_explanations(DIGITS, "digits", [method], count=len(split))
    explanation = cct_keras.explain(model, pixels, method, verbose=False)
    maps = explanation.token_maps.astype("float64")
    # No two tokens are equal, and the pixels of a token are next to each other.
    ordered = np.sort(maps.reshape(len(maps), -1), axis=1)
    assert np.diff(ordered, axis=1).min() > 0
    ranks = maps.reshape(len(maps), -1).argsort(axis=1).argsort(axis=1)
    maps = np.kron(ranks.reshape(maps.shape), np.ones((4, 4)))
    maps += np.arange(256).reshape(16, 16) / 1000
    fill = float(np.rint(255 * model.get_layer("preprocessing").mean[0]))
    arguments = {
        "inputs": pixels.astype("float32"),
        "targets": np.eye(10, dtype="float32")[explanation.targets],
        "batch_size": 64,
        "baseline_mode": fill,
        "steps": 16,
    }
    for column, judge in (
        ("deletion", metrics.Deletion),
        ("insertion", metrics.Insertion),
    ):
        theirs = float(judge(model, **arguments)(maps))
        assert ours.rows[method][column] == pytest.approx(theirs, abs=1e-3)
