"""Training a part of a model: adapters, frozen layers, a learning rate per layer."""

# First of all, so that registering the layers never meets a half-imported module.
import keras  # noqa: F401
