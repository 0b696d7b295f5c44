"""What is taken of a repository of the hub: one checkpoint, and what describes it."""

import contextlib
import logging
import pathlib
import posixpath
import re
from collections.abc import Iterator
from typing import NamedTuple

from cct_keras.converter import hub_config
from cct_keras.converter.hub_config import NOTHING
from cct_keras.converter.hub_config import Told
from cct_keras.converter.sharded_file import INDEX_SUFFIX
from cct_keras.converter.sharded_file import read_index
from cct_keras.errors import CheckpointError
from cct_keras.hub import Repository
from cct_keras.hub import list_names
from cct_keras.hub import read_document

logger = logging.getLogger("cct_keras")
# The file that is taken, the first of these that is there.
CHOICES = (
    r"model\.keras",
    r".+\.weights\.h5",
    r"model\.safetensors",
    r"model\.safetensors\.index\.json",
    r"pytorch_model\.bin",
    r"pytorch_model\.bin\.index\.json",
    r".+\.npz",
    r"open_clip_model\.safetensors",
    r"open_clip_pytorch_model\.bin",
)
KERAS_SUFFIXES = (".keras", ".weights.h5")
# What may be named, if nothing is taken unasked.
READABLE = (
    *KERAS_SUFFIXES,
    INDEX_SUFFIX,
    ".safetensors",
    ".bin",
    ".pth",
    ".pt",
    ".ckpt",
    ".npz",
    ".pth.tar",
    ".pth.zip",
)


class HubModel(NamedTuple):
    """A checkpoint from the hub, in the cache.

    Attributes:
        address: As it was given.
        name: The file in the repository.
        path: The file in the cache.
        told: What the repository tells of it beside its tensors.
        origin: Where exactly it comes from, in words.
    """

    address: str
    name: str
    path: pathlib.Path
    told: Told
    origin: str = ""

    @property
    def is_keras(self) -> bool:
        """Whether it is a file of Keras, and not a foreign checkpoint."""
        return self.name.endswith(KERAS_SUFFIXES)


def open_hub_model(address: str) -> HubModel:
    """Chooses the checkpoint of a repository, and brings it into the cache.

    Args:
        address: Such as `hf://user/repo`; see `hub.parse_address`.
    """
    repository = Repository(address)
    name = choose_file(repository)
    path = repository.get(name)
    folder = posixpath.dirname(name)
    if name.endswith(INDEX_SUFFIX):
        with named_after(address, path):
            shards = sorted(set(read_index(path).values()))
        for shard in shards:
            repository.get(posixpath.join(folder, shard))
    origin = f"{name} of {address}, commit {(repository.commit or 'unknown')[:8]}"
    if repository.is_from_cache:
        origin += ", from the cache, for the hub cannot be reached"
    logger.info("the weights are %s", origin)
    try:
        documents = {
            document: repository.read_document(posixpath.join(folder, document))
            for document in hub_config.DOCUMENTS
            if posixpath.join(folder, document) in repository.files
        }
        told = hub_config.read_documents(documents, posixpath.basename(name))
    except CheckpointError as error:
        raise CheckpointError(f"{address}: {error}") from error
    return HubModel(address, name, path, told, origin)


def read_folder(path: pathlib.Path) -> HubModel:
    """The same for a folder on the disk, such as one that is about to be published.

    Args:
        path: A file in the folder.
    """
    documents = {
        name: read_document(path.with_name(name), name)
        for name in hub_config.DOCUMENTS
        if path.with_name(name).is_file()
    }
    told = hub_config.read_documents(documents, path.name)
    return HubModel(str(path), path.name, path, told)


def checkpoint_in(folder: pathlib.Path) -> pathlib.Path | None:
    """The checkpoint in a folder that `save_pretrained` wrote, or that was downloaded.

    Args:
        folder: A folder. What Keras wrote there is for others to find.

    Returns:
        The first of the files that would be taken of a repository; `None` if there is
        none, or if there are several of the same kind.
    """
    names = [x.name for x in folder.iterdir() if not x.name.endswith(KERAS_SUFFIXES)]
    for pattern in CHOICES:
        found = [name for name in names if re.fullmatch(pattern, name)]
        if found:
            return folder / found[0] if len(found) == 1 else None
    return None


def read_neighbors(path: pathlib.Path) -> Told:
    """What stands beside a file that `save_pretrained` of `transformers` wrote.

    Args:
        path: A file; by another name than theirs, it has nothing beside it.
    """
    names_of_theirs = (name for name in CHOICES if re.fullmatch(name, path.name))
    if path.name.endswith((*KERAS_SUFFIXES, ".npz")) or not any(names_of_theirs):
        return NOTHING
    try:
        return read_folder(path).told
    except CheckpointError as error:
        raise CheckpointError(f"beside {path}: {error}") from error


@contextlib.contextmanager
def named_after(address: str, path: pathlib.Path) -> Iterator[None]:
    """Lets errors call a file by its address, not by its place in the cache."""
    try:
        yield
    except CheckpointError as error:
        message = str(error).replace(str(path), address)
        raise CheckpointError(message) from error


def choose_file(repository: Repository) -> str:
    """The file that is asked for, or the first of `CHOICES` that is there.

    Args:
        repository: The repository.

    Raises:
        CheckpointError: There is none, or more than one; it says what there is.
    """
    asked, files = repository.address.path, repository.files
    if asked in files:
        return asked
    inside = {name for name in files if posixpath.dirname(name) == asked}
    if asked and not any(name.startswith(f"{asked}/") for name in files):
        raise CheckpointError(
            f"{repository.address.repo} has no file or folder {asked}; it holds "
            f"{list_names(files)}"
        )
    for pattern in CHOICES:
        found = [x for x in inside if re.fullmatch(pattern, posixpath.basename(x))]
        if len(found) == 1:
            return found[0]
        if found:
            raise CheckpointError(
                f"{repository.address} has several such files: {list_names(found)}; "
                "give the address of one, hf://user/repo/FILE"
            )
    readable = [name for name in files if name.endswith(READABLE)]
    if readable:
        raise CheckpointError(
            f"{repository.address} has no checkpoint by a name that is known; give the "
            f"address of a file, hf://user/repo/FILE: {list_names(readable)}"
        )
    raise CheckpointError(
        f"{repository.address} has no checkpoint that can be read; it holds "
        f"{list_names(files)}"
    )
