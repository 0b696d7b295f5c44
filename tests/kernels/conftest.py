import contextlib

import keras
import pytest

from cct_keras.kernels.device import pretend_accelerator


@pytest.fixture(params=["cpu", "accelerator"])
def device(request):
    """Kernels as they compute on a CPU, and as on an accelerator."""
    accelerator = request.param == "accelerator"
    with pretend_accelerator() if accelerator else contextlib.nullcontext():
        yield request.param


@pytest.fixture(
    params=["float32", "float64"]
    # Elsewhere some of Keras' operations compute in float32 whatever they are given.
    if keras.config.backend() == "tensorflow"
    else ["float32"]
)
def dtype(request):
    """In which type the kernels compute."""
    return request.param


@pytest.fixture(params=[False, True], ids=["inference", "training"])
def training(request):
    return request.param
