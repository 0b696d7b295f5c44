"""Files from the web into the Keras cache: resumed, verified, atomic."""

import contextlib
import hashlib
import http.client
import os
import pathlib
import urllib.parse
import urllib.request
from collections.abc import Iterator

from cct_keras.cache import cache_folder
from cct_keras.cache import file_hash
from cct_keras.cache import only_one_process
from cct_keras.errors import DownloadError

CHUNK = 2**20
ATTEMPTS = 3
TIMEOUT = 30


def is_url(source) -> bool:
    """Whether a source is an address, of the web or of the hub; see `hub.is_hub`."""
    return isinstance(source, str) and source.startswith(
        ("http://", "https://", "hf://")
    )


def download(*urls: str, sha256: str | None = None) -> pathlib.Path:
    """Brings a file into the cache, or finds it there.

    An interrupted download goes on where it stopped. The SHA-256 is compared
    with `sha256` or, where none is known, with that of the first download.

    Args:
        *urls: The address and its mirrors, tried in this order.
        sha256: The known hash, or the first digits of it, if any.

    Returns:
        The path of the file.
    """
    target = cached_file(urls[0])
    folder = target.parent
    folder.mkdir(parents=True, exist_ok=True)
    with only_one_process(folder):
        expected = sha256 or recorded_hash(target)
        if target.is_file():
            found = _verify(target, expected, str(target))
        else:
            partial = _fetch_any(urls, target)
            found = _verify(partial, expected, target.name)
            os.replace(partial, target)
        _record(target).write_text(found + "\n")
    return target


def cached_file(url: str) -> pathlib.Path:
    """Where the file of an address is in the cache, once it has been downloaded."""
    # One folder an address: two hosts may use one name for two files.
    folder = cache_folder() / hashlib.sha256(url.encode()).hexdigest()[:12]
    name = pathlib.PurePosixPath(urllib.parse.urlsplit(url).path).name
    return folder / (name or "download")


@contextlib.contextmanager
def forget_on_error(path: pathlib.Path) -> Iterator[None]:
    """Takes a file out of the cache if it is not what it should be.

    A host that moved answers with a page; it is not to be kept as weights.
    """
    try:
        yield
    except ValueError:
        path.unlink(missing_ok=True)
        _record(path).unlink(missing_ok=True)
        raise


def recorded_hash(path: pathlib.Path) -> str | None:
    """SHA-256 of a downloaded file, as it was when last verified."""
    record = _record(path)
    return record.read_text().strip() if record.is_file() else None


def _record(path):
    return path.with_name(path.name + ".sha256")


def _verify(path, expected, name):
    found = file_hash(path)
    if expected is not None and not found.startswith(expected):
        if path.name.endswith(".part"):
            path.unlink()
        raise DownloadError(
            f"{name} has SHA-256 {found}, expected {expected}: refused. If the new "
            f"file is the right one, remove {path.parent} and try again"
        )
    return found


def _fetch_any(urls, target):
    failures = []
    for url in urls:
        for attempt in range(ATTEMPTS):
            try:
                return _fetch(url, target)
            except (OSError, http.client.HTTPException, ValueError) as error:
                status = getattr(error, "code", None)
                if status == 416:  # The partial file is as long as the whole.
                    _partial(target).unlink(missing_ok=True)
                refused = isinstance(error, ValueError) or status not in (None, 416)
                if refused or attempt == ATTEMPTS - 1:
                    failures.append(f"{url}: {error}")
                    break
    raise DownloadError(
        f"cannot download {target.name} ({'; '.join(failures)}). With a local copy "
        f"pass its path instead: weights='path/to/{target.name}'"
    )


def _partial(target):
    return target.with_name(target.name + ".part")


def _fetch(url, target):
    import keras

    partial = _partial(target)
    tag_file = target.with_name(target.name + ".etag")
    headers = {"User-Agent": "cct-keras"}
    have = partial.stat().st_size if partial.is_file() else 0
    tag = tag_file.read_text() if tag_file.is_file() else ""
    if have and tag.startswith(url + "\n"):
        headers["Range"] = f"bytes={have}-"
        # Only if the file is still the one that was begun.
        headers["If-Range"] = tag.removeprefix(url + "\n")
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        asked = f"bytes {have}-"
        resumed = response.status == 206 and (
            response.headers.get("Content-Range", asked).startswith(asked)
        )
        if response.status == 206 and not resumed:
            raise OSError("the server sent another part than was asked for")
        have = have if resumed else 0
        mark = response.headers.get("ETag") or response.headers.get("Last-Modified")
        tag_file.write_text(f"{url}\n{mark}" if mark else "")
        length = response.headers.get("Content-Length")
        total = have + int(length) if length is not None else None
        bar = keras.utils.Progbar(total, unit_name="byte")
        with partial.open("ab" if resumed else "wb") as file:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                have += len(chunk)
                bar.update(have)
    if total is not None and have != total:
        raise OSError(f"connection lost after {have} of {total} bytes")
    tag_file.unlink(missing_ok=True)
    return partial
