"""`model.fit` on a plain model."""

import keras
import numpy as np
import pytest
from small import images
from small import small_model

pytestmark = pytest.mark.backend


# On JAX a step without jit is slow, elsewhere a few steps do not pay for it.
JIT = keras.config.backend() == "jax"


def fit(model, epochs=1, jit_compile=JIT, learning_rate=1e-3):
    x, y = images(32, 16, 16, 3), np.arange(32) % 5
    model.compile(
        optimizer=keras.optimizers.AdamW(learning_rate),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=jit_compile,
    )
    history = model.fit(x, y, batch_size=16, epochs=epochs, verbose=0, shuffle=False)
    return history.history


def jit_choices():
    # Compiling takes its time, on torch half a minute.
    families = ["CCT"] if keras.config.backend() == "torch" else ["CCT", "ViTLite"]
    marks = pytest.mark.integration
    later = [pytest.param(family, True, marks=marks) for family in families]
    later += [pytest.param(family, False, marks=marks) for family in families[1:]]
    return [(families[0], False), *later]


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("family", "jit_compile"), jit_choices())
def test_fit_with_and_without_jit(family, jit_compile):
    model = small_model(family, dropout_rate=0.1)
    history = fit(model, epochs=2, jit_compile=jit_compile)
    assert np.isfinite(history["loss"]).all()


@pytest.mark.integration
def test_overfits_32_images():
    model = small_model("CCT", attention_dropout=0.0, stochastic_depth=0.0)
    history = fit(model, epochs=60, learning_rate=3e-3)
    assert max(history["accuracy"]) == 1.0


@pytest.mark.integration
def test_one_seed_gives_the_same_weights():
    def run(seed):
        keras.utils.set_random_seed(seed)
        model = small_model("CCT", dropout_rate=0.1, stochastic_depth=0.5)
        fit(model, epochs=2)
        return model.get_weights()

    first, second, other = run(1), run(1), run(2)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(not np.array_equal(a, c) for a, c in zip(first, other, strict=True))


@pytest.mark.integration
def test_mixed_precision_trains():
    model = small_model("ViTLite", dtype="mixed_bfloat16")
    history = fit(model, epochs=10, learning_rate=3e-3)
    assert history["loss"][-1] < history["loss"][0]


@pytest.mark.integration
def test_frozen_sine_positions_stay():
    model = small_model("CCT", positional_embedding="sine")
    before = model.get_layer("position_embedding").embeddings.numpy().copy()
    fit(model, epochs=2)
    after = model.get_layer("position_embedding").embeddings.numpy()
    np.testing.assert_array_equal(after, before)
