import keras
import numpy as np
import pytest

from cct_keras.kernels.adam import FusedUpdate

pytestmark = pytest.mark.backend


class FusedAdam(FusedUpdate, keras.optimizers.Adam):
    pass


@pytest.mark.parametrize("amsgrad", [False, True])
def test_adam(amsgrad):
    rng = np.random.default_rng(0)
    value = rng.standard_normal((5, 3))
    gradients = rng.standard_normal((4, 5, 3))
    variable = keras.Variable(value.astype("float32"))
    optimizer = FusedAdam(0.1, beta_1=0.8, beta_2=0.9, epsilon=1e-3, amsgrad=amsgrad)
    optimizer.build([variable])

    mean, square, largest = (np.zeros_like(value) for _ in range(3))
    for step, gradient in enumerate(gradients, start=1):
        optimizer.apply([keras.ops.convert_to_tensor(gradient, "float32")])
        mean = 0.8 * mean + 0.2 * gradient
        square = 0.9 * square + 0.1 * gradient**2
        largest = np.maximum(largest, square) if amsgrad else square
        # Keras and TensorFlow add epsilon after the correction of the root.
        rate = 0.1 * np.sqrt(1 - 0.9**step) / (1 - 0.8**step)
        value = value - rate * mean / (np.sqrt(largest) + 1e-3)
        np.testing.assert_allclose(variable.numpy(), value, atol=1e-5)
