"""NumPy has no bfloat16: its 16 bits are the upper half of a float32."""

import numpy as np


def widen_bfloat16(bits: np.ndarray) -> np.ndarray:
    """float32 of the 16 bits of a bfloat16."""
    return (bits.astype("<u4") << 16).view("<f4")
