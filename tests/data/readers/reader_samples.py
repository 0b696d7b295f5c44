"""Few small images and their labels, as arrays."""

import numpy as np

X = np.random.default_rng(0).integers(0, 256, (6, 4, 5, 3), np.uint8)
# Both ends of the range are there.
X[0, 0, 0] = 0, 1, 255
Y = np.array([0, 1, 2, 0, 1, 2])
