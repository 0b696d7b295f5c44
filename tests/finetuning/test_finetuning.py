"""Training a part of a model: what learns, and how fast."""

import json

import keras
import numpy as np
import pytest
from runs import StopAfter
from runs import assert_same_weights
from runs import eager
from runs import no_report
from runs import tiny_variants
from runs import weights_of
from small import small_model
from small import stripes

import cct_keras
from cct_keras.finetuning.layer_rates import layer_rates
from cct_keras.finetuning.layerwise import LayerwiseAdamW
from cct_keras.finetuning.layerwise import LayerwiseSGD
from cct_keras.recipes.rows import find_recipe
from cct_keras.training.build import build_model
from cct_keras.training.compile import compile_model

PLAIN = {"variant": "tiny_2", "batch_size": 16}


@pytest.fixture(scope="module", autouse=True)
def quick():
    with tiny_variants(), eager():
        yield


@pytest.fixture(autouse=True)
def quick_report(monkeypatch):
    monkeypatch.setattr("cct_keras.training.results.write_report", no_report)


@pytest.fixture(scope="module")
def source():
    return cct_keras.load_data(stripes(60))


@pytest.fixture(scope="module")
def trained(source, tmp_path_factory):
    """The folder of a run; random weights are as good as trained ones here."""
    out = tmp_path_factory.mktemp("runs") / "trained"
    out.mkdir()
    keras.utils.set_random_seed(0)
    build_model(source, find_recipe("small", **PLAIN)).save(out / "model.keras")
    return out


def tune(data, weights, **fields):
    fields = {"epochs": 1, "batch_size": 16, "verbose": False, **fields}
    return cct_keras.train(data, weights=weights, **fields)


# === What learns ===


@pytest.mark.parametrize(
    ("fields", "frozen"),
    [
        ({"freeze": 1}, ("tokenizer", "position_embedding", "block_0")),
        ({"freeze": "body"}, ("tokenizer", "position", "block", "norm", "pool")),
    ],
)
def test_frozen_layers_do_not_move(fields, frozen, trained, source):
    run = tune(source, trained, **fields)
    start = weights_of(keras.models.load_model(trained / "model.keras"))
    end = weights_of(run.model)
    for path, value in end.items():
        if path == "pool/attention/bias":
            continue  # A softmax does not see it: its gradient is rounding.
        same = np.array_equal(value, start[path])
        assert same == path.startswith(frozen), path
    # Whoever goes on with the file can train all of it.
    assert len(run.model.trainable_weights) == len(start)
    trainable = sum(v.size for k, v in end.items() if not k.startswith(frozen))
    assert run.metrics["trained_parameters"] == trainable


@pytest.mark.integration
@pytest.mark.parametrize("accumulate", [1, 2])
def test_gradual_unfreezing(accumulate, trained, source):
    """Seen from outside: which layers moved in which epoch."""
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(weights_of(self.model))

    fields = {"epochs": 4, "unfreeze_epochs": 1, "warmup_epochs": 0}
    tune(source, trained, **fields, accumulate=accumulate, callbacks=[Watch()])
    start = weights_of(keras.models.load_model(trained / "model.keras"))
    moved = [
        {
            path.split("/")[0]
            for path, value in now.items()
            if not np.array_equal(value, before[path])
        }
        for before, now in zip([start, *seen], seen, strict=False)
    ]
    top = {"norm", "pool", "head"}
    assert moved[0] == top
    assert moved[1] == top | {"block_1"}
    assert moved[2] == top | {"block_1", "block_0"}
    assert moved[3] == top | {"block_1", "block_0", "tokenizer", "position_embedding"}


LORA = {"lora_rank": 2, "epochs": 2, "attention_dropout": 0.1}


@pytest.fixture(scope="module")
def lora_run(trained, source, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "lora"
    with pytest.MonkeyPatch.context() as context:
        context.setattr("cct_keras.training.results.write_report", no_report)
        return tune(source, trained, **LORA, out=out), out


def test_a_lora_run_saves_a_merged_model(lora_run, trained):
    run, out = lora_run
    stored = keras.models.load_model(out / "model.keras")
    plain = keras.models.load_model(trained / "model.keras")
    assert [w.path for w in stored.weights] == [w.path for w in plain.weights]
    x = stripes(20, 3)[0][..., None].astype("float32")
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(stored(x)),
        keras.ops.convert_to_numpy(run.model(x)),
        atol=1e-6,
    )
    dim, rank, classes = 16, 2, 2
    adapters = 2 * rank * ((dim + 3 * dim) + 3 * (dim + dim))
    assert run.metrics["trained_parameters"] == adapters + (dim + 1) * classes
    start, end = weights_of(plain), weights_of(stored)
    kept = {k for k in end if np.array_equal(end[k], start[k])}
    assert {"tokenizer/conv_0/kernel", "block_0/norm1/gamma"} <= kept
    assert "block_0/attention/qkv/kernel" not in kept


@pytest.mark.integration
def test_a_lora_run_resumes(lora_run, trained, source, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        tune(source, trained, **LORA, out=tmp_path, callbacks=[StopAfter(1)])
    resumed = tune(source, trained, **LORA, out=tmp_path)
    assert_same_weights(resumed.model, lora_run[0].model)


def test_freezing_a_random_start_is_remarked(source, capsys):
    cct_keras.train(source, epochs=1, freeze=1, **PLAIN)
    output = capsys.readouterr().out
    assert "note: frozen layers keep their random values; weights=..." in output


# === How fast ===


def compiled(data, **fields):
    recipe = find_recipe("small", **{**PLAIN, "warmup_epochs": 0, **fields})
    model = build_model(data, recipe, classifier_activation=None)
    compile_model(model, recipe, images=len(data.train), num_classes=data.num_classes)
    return model


EXPECTED = {
    "tokenizer": 0.5**3,
    "position_embedding": 0.5**3,
    "block_0": 0.5**2,
    "block_1": 0.5,
    "norm": 1,
    "pool": 1,
    "head": 1,
}


@pytest.mark.backend
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_layer_decay_scales_the_steps(optimizer, source):
    """From ones, with a gradient of one and no decay of weights."""
    model = compiled(
        source, optimizer=optimizer, layer_decay=0.5, weight_decay=0, clip_norm=None
    )
    variables = model.trainable_variables
    for variable in variables:
        variable.assign(np.ones(variable.shape))
    model.optimizer.apply([keras.ops.ones(v.shape) for v in variables], variables)
    # The first step of Adam is the rate, of SGD with Nesterov 1.9 times the rate.
    step = 2e-3 * (1.0 if optimizer == "adamw" else 1.9)
    for variable in variables:
        factor = EXPECTED[variable.path.split("/")[0]]
        np.testing.assert_allclose(
            1 - keras.ops.convert_to_numpy(variable),
            step * factor,
            rtol=1e-3,
            err_msg=variable.path,
        )


@pytest.mark.backend
def test_layer_decay_scales_the_weight_decay(source):
    model = compiled(source, layer_decay=0.5, weight_decay=0.5, decay_exempt="vectors")
    variables = model.trainable_variables
    for variable in variables:
        variable.assign(np.ones(variable.shape))
    model.optimizer.apply([keras.ops.zeros(v.shape) for v in variables], variables)
    for variable in variables:
        factor = EXPECTED[variable.path.split("/")[0]]
        factor = factor if len(variable.shape) > 1 else 0
        np.testing.assert_allclose(
            1 - keras.ops.convert_to_numpy(variable), 2e-3 * 0.5 * factor, rtol=1e-3
        )


def test_at_full_pace_it_is_adamw(source):
    """Same steps as Keras' own, weight decay and clipping included."""
    fields = {"optimizer": "adamw", "weight_decay": 0.1}
    plain = compiled(source, **fields)
    paced = compiled(source, **fields, unfreeze_epochs=1e-9)
    assert isinstance(paced.optimizer, LayerwiseAdamW)
    assert not isinstance(plain.optimizer, LayerwiseAdamW)
    paced.set_weights(plain.get_weights())
    rng = np.random.default_rng(0)
    for _ in range(4):
        gradients = [rng.standard_normal(v.shape) for v in plain.trainable_variables]
        for model in (plain, paced):
            model.optimizer.apply(
                [keras.ops.convert_to_tensor(g, "float32") for g in gradients],
                model.trainable_variables,
            )
    for a, b in zip(plain.get_weights(), paced.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("kind", [LayerwiseAdamW, LayerwiseSGD])
def test_the_optimizer_loads_back(kind):
    model = small_model("CCT")
    rates = layer_rates(model, layer_decay=0.5, unfreeze_steps=10)
    optimizer = kind(1e-3, layer_rates=rates, decay=0.1)
    again = keras.optimizers.deserialize(
        json.loads(json.dumps(keras.optimizers.serialize(optimizer)))
    )
    assert type(again) is kind
    assert {k: tuple(v) for k, v in again.layer_rates.items()} == rates
    assert rates["block_0"] == (0.25, 20)
