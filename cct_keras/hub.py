"""Repositories of the Hugging Face Hub, by addresses such as `hf://user/repo`.

`huggingface_hub` does the work, with a token, a cache and an `HF_ENDPOINT` of its own.
Files are only read; nothing of a repository is ever run.
"""

import contextlib
import json
import pathlib
import re
import urllib.parse
from collections.abc import Iterator
from typing import NamedTuple

from cct_keras.errors import CCTKerasError
from cct_keras.errors import CheckpointError
from cct_keras.errors import DownloadError
from cct_keras.errors import MissingPackageError
from cct_keras.errors import one_line

PREFIX = "hf://"
NAME = r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*"
# Names of pull requests and conversions hold a slash; others write it as %2F.
REVISION = r"refs/(?:pr/\d+|convert/[\w.-]+)|[^/]+"
ADDRESS = re.compile(rf"({NAME})(?:@({REVISION}))?((?:/[^/]+)*)/?", re.ASCII)
# A page of the website, as a browser shows its address.
PAGE = re.compile(
    rf"https?://(?:huggingface\.co|hf\.co)/({NAME})(?:/(?:tree|blob)/({REVISION})"
    r"((?:/[^/?#]+)*))?/?(?:[?#].*)?",
    re.ASCII,
)
OTHER_TYPES = ("datasets/", "spaces/", "buckets/", "kernels/")
# The largest JSON file that is read; that of a thousand classes has 70 kB.
LARGEST_DOCUMENT = 2**24
MOST_LISTED = 8
LONGEST_REASON = 200


class Address(NamedTuple):
    """Where something is on the hub.

    Attributes:
        repo: `user/repo`.
        revision: Branch, tag or commit; `None` for the default branch.
        path: A file or folder in the repository; empty for all of it.
    """

    repo: str
    revision: str | None = None
    path: str = ""

    def __str__(self):
        revision = "" if self.revision is None else f"@{self.revision}"
        return f"{PREFIX}{self.repo}{revision}{self.path and '/' + self.path}"


def is_hub(source) -> bool:
    """Whether a source is an address on the hub.

    Args:
        source: Anything. Addresses are `hf://user/repo`, and the pages of a model, of
            its folders and files that a browser shows.

    Example:

    >>> is_hub("hf://user/repo"), is_hub("user/repo")
    (True, False)
    >>> is_hub("https://huggingface.co/user/repo")
    True
    """
    return isinstance(source, str) and (
        source.startswith(PREFIX)
        or (
            PAGE.fullmatch(source) is not None
            and not source.split("/", 3)[3].startswith(OTHER_TYPES)
        )
    )


def is_name(text) -> bool:
    """Whether a text could be the name of a repository.

    Example:

    >>> is_name("user/repo"), is_name("user/repo/folder"), is_name("repo")
    (True, False, False)
    """
    return re.fullmatch(NAME, str(text), re.ASCII) is not None


def parse_address(text: str) -> Address:
    """Reads an address.

    Args:
        text: `hf://user/repo`, `hf://user/repo@revision`, either of them followed by
            `/path/in/repo`, or the address of a page.

    Example:

    >>> parse_address("hf://user/repo@v1/small/model.safetensors")
    Address(repo='user/repo', revision='v1', path='small/model.safetensors')
    """
    body = text.removeprefix(PREFIX).removeprefix("models/")
    match = ADDRESS.fullmatch(body) if text.startswith(PREFIX) else PAGE.fullmatch(text)
    if body.startswith(OTHER_TYPES):
        match = None
    parts = (match[3] or "").strip("/").split("/") if match else ["."]
    if not match or {".", ".."} & set(parts):
        raise DownloadError(
            "an address on the hub is hf://user/repo of a model, perhaps with "
            f"@revision and /path/in/repo behind it. Received: {text}"
        )
    revision = match[2] and urllib.parse.unquote(match[2])
    return Address(match[1], revision, "/".join(parts))


# === Reading ===


class Repository:
    """The files of one commit of a repository.

    Without a network it is what the cache holds of it.

    Args:
        address: What `parse_address` takes.

    Attributes:
        address: Its `Address`.
        commit: The commit.
        files: `{path: bytes}` of all files; the number is `None` where it is not told.
    """

    def __init__(self, address: str):
        self.address = parse_address(address)
        self._api = _client()
        self._cached = {}
        try:
            with _plain_errors(self.address):
                found = self._api.model_info(
                    self.address.repo,
                    revision=self.address.revision,
                    files_metadata=True,
                )
            self.commit = found.sha
            self.files = {x.rfilename: x.size for x in found.siblings or ()}
        except DownloadError as error:
            cached = None
            if _is_unreachable(error.__cause__):
                cached = _find_cached(self.address)
            if cached is None:
                raise
            self.commit, self._cached = cached
            self.files = {
                name: path.stat().st_size for name, path in self._cached.items()
            }

    @property
    def is_from_cache(self) -> bool:
        """Whether the hub could not be reached."""
        return bool(self._cached)

    def get(self, name: str) -> pathlib.Path:
        """Brings a file into the cache, or finds it there.

        Args:
            name: One of `files`.
        """
        if name in self._cached:
            return self._cached[name]
        if name not in self.files:
            raise DownloadError(f"{self.address.repo} has no file {name}")
        with _plain_errors(self.address):
            path = pathlib.Path(
                # By the name of the branch, not of the commit: so the cache learns
                # which commit that is, and knows it without a network, too.
                self._api.hf_hub_download(
                    self.address.repo, name, revision=self.address.revision
                )
            )
        commit = path.parents[name.count("/")].name
        if self.commit is not None and commit != self.commit:
            raise DownloadError(
                f"{self.address.repo} was changed while it was read, from commit "
                f"{self.commit[:8]} to {commit[:8]}: try again"
            )
        return path

    def read_document(self, name: str) -> dict:
        """Reads a JSON file.

        Args:
            name: One of `files`.

        Returns:
            Plain values by their name.
        """
        size = self.files.get(name)
        if size is not None:
            _check_size(name, size)
        return read_document(self.get(name), name)


def read_document(path: pathlib.Path, name: str) -> dict:
    """Reads a JSON file that holds one mapping.

    Args:
        path: The file.
        name: What errors call it.
    """
    _check_size(name, path.stat().st_size)
    try:
        content = json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{name} is not JSON: {one_line(str(error))}") from error
    if not isinstance(content, dict):
        raise CheckpointError(
            f"{name} must hold one mapping. Received: a {type(content).__name__}"
        )
    return content


def list_names(names) -> str:
    """Names for a message, not all of many."""
    names = sorted(names)
    more = len(names) - MOST_LISTED
    shown = ", ".join(one_line(name) for name in names[:MOST_LISTED])
    return shown + (f" and {more} more" if more > 0 else "") if names else "nothing"


def _check_size(name, size):
    if size > LARGEST_DOCUMENT:
        raise CheckpointError(
            f"{name} has {size:,} bytes, more than the {LARGEST_DOCUMENT:,} that a "
            "description may have"
        )


def _refuse_constant(text):
    raise ValueError(f"{text} is not a number of JSON")


def _find_cached(address):
    """The commit and the files of it that the cache holds; `None` if there are none."""
    from huggingface_hub import constants
    from huggingface_hub import scan_cache_dir

    if not pathlib.Path(constants.HF_HUB_CACHE).is_dir():
        return None
    for repo in scan_cache_dir(constants.HF_HUB_CACHE).repos:
        if (repo.repo_type, repo.repo_id) != ("model", address.repo):
            continue
        wanted = address.revision or "main"
        for revision in repo.revisions:
            if wanted not in (*revision.refs, revision.commit_hash):
                continue
            files = {
                file.file_path.relative_to(revision.snapshot_path).as_posix(): (
                    file.file_path
                )
                for file in revision.files
            }
            return (revision.commit_hash, files) if files else None
    return None


# === Writing ===


def upload_folder(
    folder: pathlib.Path, repo: str, *, private: bool, message: str
) -> str:
    """Uploads a folder, and makes the repository if there is none.

    Args:
        folder: The folder.
        repo: `user/repo`.
        private: Whether a new repository is private.
        message: What the commit says.

    Returns:
        The address of its page.
    """
    api = _client()
    with _plain_errors(Address(repo), "written"):
        made = api.create_repo(repo, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=made.repo_id, folder_path=str(folder), commit_message=message
        )
    return str(made)


# === The client ===

# Where errors of the network come from, in the versions of the client.
NETWORK = ("httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3")
LOGIN = "`hf auth login`, or the environment variable HF_TOKEN"


def _client():
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise MissingPackageError(
            "addresses on the hub need huggingface_hub, which is not installed: run "
            '`pip install "cct-keras[hub]"`'
        ) from error
    return HfApi(library_name="cct_keras")


@contextlib.contextmanager
def _plain_errors(address, done="read") -> Iterator[None]:
    """Says in one line what went wrong, and what to do."""
    try:
        yield
    except CCTKerasError:
        raise
    except Exception as error:
        while type(error) is RuntimeError and isinstance(error.__cause__, Exception):
            # So the client says which of several files it was.
            error = error.__cause__
        raise DownloadError(_explained(error, address, done)) from error


def _explained(error, address, done):
    from huggingface_hub import constants
    from huggingface_hub import errors

    repo, endpoint, status = address.repo, constants.ENDPOINT, _status_of(error)
    reason = one_line(str(error).strip().partition("\n")[0]) or type(error).__name__
    if len(reason) > LONGEST_REASON:
        reason = f"{reason[:LONGEST_REASON]}..."
    # The gated one is a kind of the one after it.
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{repo} is gated: accept its terms at {endpoint}/{repo}, and log in "
            f"({LOGIN})"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"{endpoint} has no model {repo}, or shows it to its members only: check "
            f"the name, or log in ({LOGIN})"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return (
            f"{repo} has no revision {address.revision!r}: name a branch, a tag or a "
            "whole commit"
        )
    if status in (401, 403):
        return (
            f"{repo} cannot be {done} ({status}): the token is wrong or has no right "
            f"to it; log in again ({LOGIN})"
        )
    if isinstance(error, errors.OfflineModeIsEnabled):
        return (
            f"{address} is not in the cache, and HF_HUB_OFFLINE forbids to ask for it"
        )
    if _is_unreachable(error):
        return (
            f"{endpoint} cannot be reached ({reason}); with a local copy pass its path "
            "instead"
        )
    return f"{repo} cannot be {done}: {reason}"


def _is_unreachable(error):
    """Whether there was no answer at all; then the cache may have one."""
    from huggingface_hub import errors

    status, source = _status_of(error), type(error).__module__.partition(".")[0]
    network = isinstance(error, OSError) or source in NETWORK
    return (
        isinstance(error, errors.OfflineModeIsEnabled)
        or (network and status is None)
        or (status or 0) >= 500
    )


def _status_of(error):
    return getattr(getattr(error, "response", None), "status_code", None)
