"""Where a model looks, what it learned, and how far such pictures can be trusted."""
