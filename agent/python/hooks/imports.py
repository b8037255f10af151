"""Tells when modules that are waited for have been imported.

The import finder that waits for torch has gone by now. This one stays, before
all others: a set lookup for each module that is imported later.
"""

import importlib.abc
import sys

from _traincheck.wrapping import quietly


class Imports(importlib.abc.MetaPathFinder):
    """Calls imported(module) after each of these modules was executed.

    wanted: names of modules, a container that may change.
    """

    def __init__(self, core, wanted, imported):
        self._core = core
        self._wanted = wanted
        self._imported = imported
        self._finding = set()

    def install(self):
        sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        if name not in self._wanted or name in self._finding:
            return None
        self._finding.add(name)
        try:
            spec = self._others_find(name, path, target)
        finally:
            self._finding.discard(name)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._stand_before(spec.loader)
        return spec

    def _others_find(self, name, path, target):
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None

    def _stand_before(self, loader):
        execute = loader.exec_module

        def exec_module(module):
            # Loaders are seldom shared by modules; this is of one module.
            loader.exec_module = execute
            execute(module)
            quietly(self._core, self._imported, module)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            pass  # a loader without attributes: its module stays as it is
