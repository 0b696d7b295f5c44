"""How the layers are made fast: one file and one function for every operation.

A kernel decides by backend and device how it computes; what it computes is the same
everywhere. `device.py` says whether that is a formulation tuned for CPUs or the
backend's own operation.
"""

# First of all, so that registering the layers never meets a half-imported module.
import keras  # noqa: F401
