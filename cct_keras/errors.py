"""The errors of the package; they share one base class."""

# Of a message, whatever a file says or is called.
LONGEST_MESSAGE = 500


class CCTKerasError(Exception):
    """Base class of every error that is special to this package."""


class DataError(CCTKerasError, ValueError):
    """A data set or an image that is refused."""


class RecipeError(CCTKerasError, ValueError):
    """A recipe, a recipe field or a value that does not exist."""


class CheckpointError(CCTKerasError, ValueError):
    """A file that cannot be read as a checkpoint.

    Its message is one printable line of at most 500 characters, for the names and texts
    in it are often the file's own.
    """

    def __init__(self, message: str = ""):
        super().__init__(shorten(message, LONGEST_MESSAGE))


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


class DivergedError(RunError):
    """A training run whose loss is not a number any more."""


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


def shorten(message: str, most: int) -> str:
    """The message in one printable line, whose middle is left out if it is long.

    Args:
        message: A message, or a name out of a file.
        most: How many characters it may have.

    Example:

    >>> shorten("a" * 100 + "b" * 100, 20)
    'aaaaaaaaaaaa ... bbb'
    """
    # No more of a long text is worth looking at.
    if len(message) > 8 * most:
        message = message[: 4 * most] + message[-4 * most :]
    line = one_line(message)
    if len(line) <= most:
        return line
    end = most // 5 - 1
    return f"{line[: most - end - 5]} ... {line[-end:]}"
