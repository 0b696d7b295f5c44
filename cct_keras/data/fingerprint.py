"""What identifies a data set: hashes of its images and labels."""

import hashlib
import json
import pathlib

from cct_keras.data.raw import RawData

# Of files with more bytes in total, only names and sizes are hashed.
HASHED_BYTES = 4 * 2**30


def digest_images(raw: RawData) -> dict[str, list[bytes]]:
    """Computes a hash of each image of each split.

    Args:
        raw: The data set.

    Returns:
        By the name of the split, a hash of each image as it is stored. Files of very
        many bytes in total are hashed by their names and sizes.

    Example:

    >>> from cct_keras.data.readers.digits import read_digits
    >>> len(digest_images(read_digits())["test"])
    360
    """
    files = (split.images for split in raw.splits.values() if split.has_files)
    total = sum(path.stat().st_size for paths in files for path in paths)

    def digest(image):
        if not isinstance(image, pathlib.Path):
            content = image.tobytes()
        elif total <= HASHED_BYTES:
            content = image.read_bytes()
        else:
            name = f"{image.parent.name}/{image.name}"
            content = f"{name} {image.stat().st_size}".encode()
        return hashlib.blake2b(content, digest_size=12).digest()

    return {
        name: [digest(image) for image in split.images]
        for name, split in raw.splits.items()
    }


def fingerprint(
    raw: RawData,
    digests: dict[str, list[bytes]],
    splits: tuple[str, ...] = ("train", "validation", "test"),
) -> str:
    """Computes one hash of the names of the classes, all images and all labels.

    Args:
        raw: A data set with all three splits.
        digests: What `digest_images` returned for it.
        splits: Names of the splits whose images and labels count.
    """
    total = hashlib.sha256(json.dumps(raw.class_names).encode())
    for name in splits:
        total.update(b"".join(digests[name]))
        total.update(raw.splits[name].labels.astype("<i8").tobytes())
    return total.hexdigest()
