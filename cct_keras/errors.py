"""The errors of the package; they share one base class."""


class CCTKerasError(Exception):
    """Base class of every error that is special to this package."""


class DataError(CCTKerasError, ValueError):
    """A data set or an image that is refused."""


class RecipeError(CCTKerasError, ValueError):
    """A recipe, a recipe field or a value that does not exist."""


class CheckpointError(CCTKerasError, ValueError):
    """A file that cannot be read as a checkpoint."""


class DownloadError(CCTKerasError, ValueError):
    """A file that could not be downloaded."""


class RunError(CCTKerasError, RuntimeError):
    """A training run that cannot go on."""
