import keras
import pytest
from keras import ops

from cct_keras.kernels.attention import attention
from cct_keras.kernels.device import pretend_accelerator
from cct_keras.kernels.device import tuned_for_cpu
from cct_keras.kernels.gelu import gelu
from cct_keras.kernels.layer_norm import layer_norm
from cct_keras.kernels.max_pool import max_pool

pytestmark = pytest.mark.backend


def test_a_cpu_is_known():
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        expected = not tf.config.list_logical_devices("GPU")
    elif keras.config.backend() == "jax":
        import jax

        expected = jax.devices()[0].platform == "cpu"
    else:
        import torch

        expected = not torch.cuda.is_available()
    assert tuned_for_cpu(ops.ones(3)) is expected


@pytest.mark.skipif(keras.config.backend() != "torch", reason="of torch")
def test_on_torch_the_tensor_decides():
    import torch

    assert tuned_for_cpu(torch.ones(3, device="cpu"))
    assert not tuned_for_cpu(torch.ones(3, device="meta"))


def test_pretending_ends():
    x = ops.ones(3)
    before = tuned_for_cpu(x)
    with pretend_accelerator():
        with pretend_accelerator():
            assert not tuned_for_cpu(x)
        assert not tuned_for_cpu(x)
    assert tuned_for_cpu(x) is before


def test_pretending_ends_after_an_error():
    before = tuned_for_cpu(ops.ones(3))
    with pytest.raises(RuntimeError, match="inside"), pretend_accelerator():
        raise RuntimeError("inside")
    assert tuned_for_cpu(ops.ones(3)) is before


# operation of Keras: (a call of our kernel, backends that do without it on a CPU)
OPERATIONS = {
    "dot_product_attention": (
        lambda: attention(*[ops.ones((2, 3, 4, 5))] * 3),
        {"tensorflow", "jax", "torch"},
    ),
    "gelu": (lambda: gelu(ops.ones((4, 5)), training=True), {"tensorflow"}),
    "layer_normalization": (
        lambda: layer_norm(ops.ones((4, 5)), ops.ones(5), ops.ones(5), 1e-5),
        {"tensorflow"},
    ),
    "max_pool": (
        lambda: max_pool(ops.ones((1, 4, 4, 2)), 3, 2, 1, training=True),
        {"jax", "torch"},
    ),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_who_uses_the_operation_of_the_backend(name, device, monkeypatch):
    call, avoided_on_cpu = OPERATIONS[name]
    used = []
    original = getattr(keras.ops, name)

    def remember(*arguments, **options):
        used.append(name)
        return original(*arguments, **options)

    monkeypatch.setattr(keras.ops, name, remember)
    call()
    backend = keras.config.backend()
    if device == "cpu":
        assert bool(used) == (backend not in avoided_on_cpu)
    else:
        # torch's own pooling pads without a copy, Keras' operation does not.
        assert bool(used) == ((name, backend) != ("max_pool", "torch"))
