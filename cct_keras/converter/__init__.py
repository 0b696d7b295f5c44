"""Foreign checkpoints into Keras models, and back."""
