"""Several runs side by side: seeds, folds and settings."""
