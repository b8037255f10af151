"""Which files of this tree include which, found by reading, without a compiler."""

import functools
import pathlib
import re

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)
# What a source sees of these is a promise about locks.
_MUTEX = re.compile(r"^absl/(base/thread_annotations|synchronization/)")


class IncludeGraph:
    """Paths are relative to the root, as includes are written here."""

    def __init__(self, root: pathlib.Path, built: str):
        """built: the folder below the root where the build puts its headers."""
        self._root = root
        self._built = built

    @functools.lru_cache(maxsize=None)
    def includes(self, name: str) -> tuple:
        """All that the file includes itself, as written; () for no file here."""
        path = self._root / name
        if not path.is_file():
            return ()
        text = path.read_text(encoding="utf-8", errors="replace")
        return tuple(_INCLUDE.findall(text))

    def is_ours(self, name: str) -> bool:
        return (self._root / name).is_file()

    @functools.lru_cache(maxsize=None)
    def reached(self, name: str) -> frozenset:
        """All that is included from the file on, itself too, as written."""
        found, waiting = set(), [name]
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += self.includes(one)
        return frozenset(found)

    def sees_locks(self, name: str) -> bool:
        return any(_MUTEX.match(path) for path in self.reached(name))

    def generated(self, name: str) -> list:
        """Headers in folders of this tree that the build makes, sorted."""
        return sorted(
            path
            for path in self.reached(name)
            if not self.is_ours(path)
            and (self._root / path).parent.is_dir()
            and "/" in path
        )

    def is_built(self, generated: str) -> bool:
        return self.is_ours(f"{self._built}/{generated}")

    def contents(self, name: str) -> list:
        """Files that decide how the source reads, but for the system's; sorted."""
        built = [f"{self._built}/{path}" for path in self.generated(name)]
        return sorted(filter(self.is_ours, [*self.reached(name), *built]))
