"""The errors of the package; they share one base class."""


class CCTKerasError(Exception):
    """Base class of every error that is special to this package."""


class DataError(CCTKerasError, ValueError):
    """A data set or an image that is refused."""


class RecipeError(CCTKerasError, ValueError):
    """A recipe, a recipe field or a value that does not exist."""


class CheckpointError(CCTKerasError, ValueError):
    """A file that cannot be read as a checkpoint."""


class QuantizedModelError(CCTKerasError, ValueError):
    """A quantized model where one with float weights is needed."""


class ModelError(CCTKerasError, ValueError):
    """A model that is missing, or not one that can do what is asked of it."""


class ExportError(CCTKerasError, ValueError):
    """A model that cannot be exported as asked."""


class DownloadError(CCTKerasError, ValueError):
    """A file that could not be downloaded."""


class PublishError(CCTKerasError, ValueError):
    """A model that cannot be published as asked."""


class RunError(CCTKerasError, RuntimeError):
    """A training run that cannot go on."""


class MissingPackageError(CCTKerasError, ImportError):
    """A package that is needed here and not installed."""


def one_line(message: str) -> str:
    """The message in one line, in which a hostile file name cannot control a terminal.

    Example:

    >>> one_line("no such file:\\n \\x1b[2Jphoto.jpg")
    'no such file: ?[2Jphoto.jpg'
    """
    text = " ".join(message.split())
    return "".join(char if char.isprintable() else "?" for char in text)
