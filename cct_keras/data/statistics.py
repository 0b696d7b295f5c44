"""Mean and standard deviation of the pixels of a data set."""

import json
import re

import numpy as np

from cct_keras.cache import cache_folder

# How many pixels are counted at a time.
CHUNK = 2**22


def cached_statistics(store, key: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Computes mean and standard deviation of the pixels, or takes them from the cache.

    Args:
        store: Images; see `cct_keras.data.store`.
        key: Name in the cache. It must tell these images, in this size and with
            these channels, from all others: reduced images vary less.

    Returns:
        Mean and standard deviation of each channel, for pixels scaled to 0..1.
    """
    name = re.sub(r"\W+", "-", key)
    file = cache_folder() / "statistics" / f"{name}.json"
    try:
        values = json.loads(file.read_text())
        return tuple(values["mean"]), tuple(values["std"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    mean, std = channel_statistics(store.pixels())
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"mean": mean, "std": std}))
    except OSError:
        pass  # Without a cache the next run only takes longer.
    return mean, std


def channel_statistics(
    pixels: np.ndarray,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Computes the exact mean and standard deviation of each channel.

    Args:
        pixels: uint8 array `(count, channels)`.

    Returns:
        Mean and standard deviation of each channel, for pixels scaled to 0..1,
        rounded to four decimals.

    Example:

    >>> channel_statistics(np.array([[0], [255]], "uint8"))
    ((0.5,), (0.5,))
    """
    values = np.arange(256) / 255
    means, deviations = [], []
    for channel in range(pixels.shape[-1]):
        # `pixels.mean()` and `pixels.std()` would make eight bytes of every byte at
        # once; counting the 256 values needs no memory and is exact.
        counts = np.zeros(256, np.int64)
        for start in range(0, len(pixels), CHUNK):
            chunk = pixels[start : start + CHUNK, channel]
            counts += np.bincount(chunk, minlength=256)
        mean = np.average(values, weights=counts)
        variance = np.average((values - mean) ** 2, weights=counts)
        means.append(round(float(mean), 4))
        # Images of a single color have no deviation, but are still divided by it.
        deviations.append(max(round(float(variance**0.5), 4), 1 / 255))
    return tuple(means), tuple(deviations)
