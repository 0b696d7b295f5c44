"""Packages that only some ways to use the runtime need."""

import importlib

from cct_keras.errors import MissingPackageError


def import_package(module: str, package: str):
    """Imports a module, or says how to install what it belongs to.

    Args:
        module: Name of the module, such as `"PIL.Image"`.
        package: What `pip install` calls it, such as `"pillow"`.

    Returns:
        The module.

    Raises:
        MissingPackageError: It is not installed, or its import fails.

    Example:

    >>> import_package("no_such_module", "no-such-package")
    Traceback (most recent call last):
    cct_keras.errors.MissingPackageError: no_such_module is not installed: run `pip \
install no-such-package`
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        name = module.partition(".")[0]
        if error.name and error.name.partition(".")[0] != name:
            name = f"{error.name}, which {name} needs,"
        raise MissingPackageError(
            f"{name} is not installed: run `pip install {package}`"
        ) from error
    except ImportError as error:
        reason = (str(error).splitlines() or [""])[0]
        raise MissingPackageError(
            f"{module} cannot be imported ({reason}): run `pip install --upgrade "
            f"{package}`"
        ) from error
