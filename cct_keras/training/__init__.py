"""Training a model, from the data to the report."""

# Importing Keras registers the layers, which must not meet a half-imported module.
import keras  # noqa: F401
