"""The bytes of an exported file, and the hash by which damage is known."""

import hashlib
import os
import pathlib

from cct_keras.errors import DataError

DIGITS = 64


def read_model_file(path: str | os.PathLike) -> bytes:
    """Reads a file, or says in one line why it cannot be read.

    Args:
        path: The file.

    Returns:
        Its bytes.
    """
    try:
        content = pathlib.Path(path).read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"no such model file: {path}") from error
    except IsADirectoryError as error:
        raise DataError(f"{path} is a folder, and a file is expected") from error
    # A null byte in a name is a ValueError.
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read: {reason}") from error
    if not content:
        raise DataError(f"{path} is empty")
    return content


def seal(
    content: bytes, before: bytes, after: bytes = b"", others: bytes = b""
) -> bytes:
    """Puts a hash at the end of a file.

    Runtimes trust what is written in a file; a damaged one can end the whole process,
    or answer nonsense. The hash tells it before the runtime reads it.

    Args:
        content: The file.
        before: What makes a comment of the hash in this kind of file: what comes
            before it, of bytes that are nowhere else.
        after: What comes after it.
        others: Files that belong to this one.

    Returns:
        The file with its hash.

    Example:

    >>> sealed = seal(b"model", b"#")
    >>> check_seal("model.txt", sealed, b"#")
    >>> check_seal("model.txt", sealed.replace(b"model", b"muddle"), b"#")
    Traceback (most recent call last):
    cct_keras.errors.DataError: model.txt is damaged, or was changed since its \
export: export the model again
    """
    return content + before + _digest(content, others) + after


def check_seal(
    path: str | os.PathLike,
    content: bytes,
    before: bytes,
    after: bytes = b"",
    others: bytes = b"",
) -> None:
    """Refuses a file that is not as `seal` made it.

    Args:
        path: What the error calls the file.
        content: The file.
        before: As for `seal`.
        after: As for `seal`.
        others: As for `seal`.
    """
    length = len(before) + DIGITS + len(after)
    rest, end = content[:-length], content[-length:]
    if not end.startswith(before) or not end.endswith(after):
        raise DataError(f"{path} is cut off, or was not written by `cct_keras.export`")
    if end != before + _digest(rest, others) + after:
        raise DataError(
            f"{path} is damaged, or was changed since its export: export the model "
            "again"
        )


def _digest(content, others):
    hashed = hashlib.sha256(content)
    hashed.update(others)
    return hashed.hexdigest().encode()
