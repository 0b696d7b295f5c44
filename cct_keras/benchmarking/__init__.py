"""How fast the models are on this machine."""
