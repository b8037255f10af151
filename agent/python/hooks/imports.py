"""Tells when modules that are waited for have been imported.

The import finder that waits for torch has gone by now. This one stays, before
all others: a set lookup for each module that is imported later.
"""

from __future__ import annotations

import importlib.abc
import sys
from typing import TYPE_CHECKING

from _traincheck.wrapping import quietly

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence
    from importlib.machinery import ModuleSpec
    import types
    from typing import Any

    from traincheck_core import Core


class Imports(importlib.abc.MetaPathFinder):
    """Calls imported(module) after each of these modules was executed.

    wanted: names of modules, a container that may change.
    """

    def __init__(
        self,
        core: Core,
        wanted: Container[str],
        imported: Callable[[types.ModuleType], None],
    ) -> None:
        self._core = core
        self._wanted = wanted
        self._imported = imported
        self._finding: set[str] = set()

    def install(self) -> None:
        sys.meta_path.insert(0, self)

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> ModuleSpec | None:
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

    def _others_find(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None

    def _stand_before(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            # Loaders are seldom shared by modules; this is of one module.
            loader.exec_module = execute
            execute(module)
            quietly(self._core, self._imported, module)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            pass  # a loader without attributes: its module stays as it is
