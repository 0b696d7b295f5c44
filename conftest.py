"""What the examples in docstrings may use without importing it."""

import pytest


@pytest.fixture(autouse=True)
def names_of_examples(request):
    """Keras, NumPy and the public names, for doctests alone."""
    if not hasattr(request.node, "dtest"):
        return
    import keras
    import numpy as np

    import cct_keras

    keras.utils.set_random_seed(0)
    names = {"keras": keras, "np": np, "cct_keras": cct_keras}
    names |= {name: getattr(cct_keras, name) for name in cct_keras.__all__}
    for name, value in names.items():
        request.node.dtest.globs.setdefault(name, value)
