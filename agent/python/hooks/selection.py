"""Reads the catalogue: which entry a name falls under."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from _traincheck import catalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable


class Row:
    """One entry of a table, its names ready to be compared."""

    def __init__(self, head: str, names: list[str]) -> None:
        facts, _, self.reason = head.partition("  # ")
        self.namespace, self.mode, self.category, role = facts.split()
        self.module, _, self.cls = self.namespace.partition(":")
        self.roles = () if role == "-" else (role,)
        self.names = names
        self._exact = {name for name in names if "*" not in name}
        self._like = like(name for name in names if "*" in name)

    def fits(self, name: str) -> bool:
        if name in self._exact:
            return True
        return not name.startswith("_") and self._like(name) is not None


def like(patterns: Iterable[str]) -> Callable[[str], object]:
    """A function that says whether a name is like one of the patterns."""
    text = "|".join(map(fnmatch.translate, patterns))
    if not text:
        return lambda name: None
    return re.compile(text).match


def read(table: str) -> list[Row]:
    """The entries of a table, in their order."""
    heads: list[tuple[str, list[str]]] = []
    for line in table.splitlines():
        if line.startswith(" "):
            heads[-1][1].extend(line.split())
        elif line:
            heads.append((line, []))
    return [Row(head, names) for head, names in heads]


class Catalogue:
    """The table of what is wrapped, by namespace."""

    def __init__(self, table: str = catalogue.TABLE) -> None:
        self._rows: dict[tuple[str, str], list[Row]] = {}
        self._take(read(table))

    def _take(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._rows.setdefault((row.module, row.cls), []).append(row)

    def add_named(self, names: Iterable[str], modules: Container[str]) -> list[str]:
        """Takes functions that no entry is about, by their qualified names.

        modules: the names of those that there are. Returns those that the
        functions are in. What the table leaves out stays out; a module's forward
        is recorded by its call.
        """
        found: dict[str, None] = {}
        for name in names:
            module, _, member = name.rpartition(".")
            cls = ""
            if module not in modules:
                module, _, cls = module.rpartition(".")
            if module in modules and member != "forward":
                namespace = f"{module}:{cls}" if cls else module
                head = f"{namespace}  full  operation  -  # named by the plan"
                self._take([Row(head, [member])])
                found[module] = None
        return list(found)

    def classes(self, module: str) -> list[str]:
        """The classes of this module that entries name; "" for itself."""
        return [cls for name, cls in self._rows if name == module]

    def modules(self) -> dict[str, None]:
        return dict.fromkeys(module for module, _ in self._rows)

    def find(self, module: str, cls: str, name: str) -> Row | None:
        """The first entry that fits the name; None where it is not wrapped in
        full collection, or by the skeleton."""
        for row in self._rows.get((module, cls), ()):
            if row.fits(name):
                return row if row.mode == "full" else None
        return None
