"""Full collection, where it is asked for: everything in the catalogue.

Else, of all that, what the plan names at the start. A change of plan finds it
wrapped or cannot have it: user code may hold functions of torch since its
imports, and calls that only some of it records would look like calls left out.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from _traincheck import user_code
from _traincheck.collection import Collection
from _traincheck.collection import reach_into_c
from _traincheck.collection import tell_overrides
from _traincheck.collection import tell_script
from _traincheck.imports import Imports
from _traincheck.selection import Catalogue
from _traincheck import wrapping

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    import types

    from _traincheck.watch import Watch


class _Wanted:
    """Modules to be told of: those of the catalogue, and the user's."""

    def __init__(self, modules: Container[str], asked: Container[str]) -> None:
        self._modules, self._asked = modules, asked

    def __contains__(self, name: object) -> bool:
        return name in self._modules or name in self._asked


def install(watch: Watch) -> None:
    """After all other hooks: what they wrap is wrapped."""
    if not watch.planner.reaches_beyond():
        return
    catalogue = Catalogue()
    collection = Collection(watch, catalogue)
    users = user_code.UserCode(watch)
    collection.add_all()
    user_code.install(watch, users)
    # Last: what is wrapped by now keeps its category.
    for name in catalogue.add_named(_of_torch(watch.planner.named()), sys.modules):
        collection.add(sys.modules[name])

    def imported(module: types.ModuleType) -> None:
        known = set(watch.replaced)
        collection.add(module)
        users.wrap_asked(module)
        added = watch.replaced.keys() - known
        if added:
            wrapping.substitute({key: watch.replaced[key] for key in added})

    Imports(watch.core, _Wanted(collection.modules(), users.asked), imported).install()


def _of_torch(names: Iterable[str]) -> list[str]:
    """What user_code.py does not look after."""
    return [name for name in names if name.startswith("torch.")]


def reach_beyond(watch: Watch) -> None:
    """When torch's namespaces have the wrappers: the places that are none."""
    if watch.planner.reaches_beyond():
        reach_into_c(watch)
        tell_overrides()
        tell_script(watch)
