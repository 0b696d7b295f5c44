"""Runs a function once another package has been imported, whoever imports it.

`wrapt.when_imported` does the first half of this, but takes 60 ms to import, and it
calls the function in the middle of an import: if one of our own modules is the first to
say `import keras`, the function would import modules that need that unfinished one.
"""

import sys
import threading
from collections.abc import Callable


def when_imported(name: str, function: Callable[[], None], *, package: str) -> None:
    """Calls a function as soon as a package has been imported.

    It is called at once if that has happened already, and later if a module of our own
    `package` is only half imported at that moment: as soon as that module is complete.
    If the import or the function fails, the next import tries again.

    Args:
        name: Name of the package that is waited for, such as `"keras"`.
        function: What to call. It may run again if it failed before.
        package: Name of our own package, whose modules must be complete before.

    Example:

    >>> when_imported("sys", lambda: print("here"), package="cct_keras")
    here
    """
    if name in sys.modules:
        function()
        return
    for finder in sys.meta_path:
        # The package was reloaded: its finder is there already.
        if isinstance(finder, _Finder) and finder.package == package:
            return
    sys.meta_path.insert(0, _Finder(name, function, package))


class _Finder:
    """Lets the other finders find a module, and watches its import."""

    def __init__(self, name, function, package):
        self.name = name
        self.function = function
        self.package = package
        self.searches = set()
        self.lock = threading.Lock()
        self.unfinished = 0
        self.is_imported = False

    def find_spec(self, fullname, path=None, target=None):
        is_ours = fullname.startswith(f"{self.package}.")
        if not is_ours and fullname != self.name:
            return None
        # Another finder of this kind, such as wrapt's, asks all finders again.
        search = (threading.get_ident(), fullname)
        if search in self.searches:
            return None
        self.searches.add(search)
        try:
            spec = self._ask_the_others(fullname, path, target)
        finally:
            self.searches.remove(search)
        if hasattr(getattr(spec, "loader", None), "exec_module"):
            spec.loader = _Loader(spec.loader, self, is_ours)
        return spec

    def _ask_the_others(self, fullname, path, target):
        for finder in list(sys.meta_path):
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    return spec
        return None

    def begin(self):
        """A module of our own begins to be imported, in whatever thread."""
        with self.lock:
            self.unfinished += 1

    def end(self, *, is_ours):
        """An import has ended, be it by an error.

        The function runs in the thread that sees both conditions fulfilled first.
        """
        with self.lock:
            if is_ours:
                self.unfinished -= 1
            else:
                self.is_imported = True
            is_due = self.is_imported and not self.unfinished and self in sys.meta_path
            if is_due:
                sys.meta_path.remove(self)
        if is_due:
            try:
                self.function()
            except BaseException:
                sys.meta_path.insert(0, self)
                raise


class _Loader:
    """Tells the finder when a module begins and ends to be imported."""

    def __init__(self, loader, finder, is_ours):
        self.loader = loader
        self.finder = finder
        self.is_ours = is_ours

    def __getattr__(self, name):
        # `get_source`, `get_data`, `get_resource_reader` and the like.
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        # The module has its ordinary loader from here on.
        module.__spec__.loader = module.__loader__ = self.loader
        if not self.is_ours:
            self.loader.exec_module(module)
            # It is complete. A thread that imports one of our modules meanwhile must
            # not wait for this one, which may have to wait for that module.
            module.__spec__._initializing = False
            self.finder.end(is_ours=False)
            return
        self.finder.begin()
        try:
            self.loader.exec_module(module)
        finally:
            self.finder.end(is_ours=True)
