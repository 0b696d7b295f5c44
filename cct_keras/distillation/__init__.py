"""Learning from a teacher: losses, teachers, and their answers kept on disk."""

# Importing Keras registers the layers, which must not meet a half-imported module.
import keras  # noqa: F401
