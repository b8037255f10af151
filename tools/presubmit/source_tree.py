"""The files that are checked and what a check reports."""

import dataclasses
import functools
import os
import pathlib
import subprocess


@dataclasses.dataclass(frozen=True, order=True)
class Problem:
    """One finding; line 0 stands for the whole file."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class SourceTree:
    """All text files below a root that git does not ignore."""

    def __init__(self, root: pathlib.Path):
        self.root = pathlib.Path(root)

    @functools.cached_property
    def files(self) -> list:
        """Paths relative to the root, sorted; symbolic links left out."""
        names = self._names_from_git() or self._names_from_disk()
        paths = (self.root / name for name in names)
        kept = [p for p in paths if p.is_file() and not p.is_symlink()]
        return sorted(str(p.relative_to(self.root)) for p in kept)

    def with_suffix(self, *suffixes: str) -> list:
        return [name for name in self.files if name.endswith(suffixes)]

    @functools.lru_cache(maxsize=None)
    def text(self, name: str) -> str:
        return (self.root / name).read_text(encoding="utf-8", errors="replace")

    def _names_from_git(self) -> list:
        if not (self.root / ".git").exists():
            return []
        command = ["git", "ls-files", "-z", "--cached", "--others"]
        done = subprocess.run(
            command + ["--exclude-standard"],
            cwd=self.root,
            stdout=subprocess.PIPE,
        )
        if done.returncode != 0:
            return []
        return [name for name in done.stdout.decode().split("\0") if name]

    def _names_from_disk(self) -> list:
        names = []
        for folder, folders, files in os.walk(self.root):
            folders[:] = [f for f in folders if f not in (".git", "__pycache__")]
            relative = os.path.relpath(folder, self.root)
            names += [os.path.normpath(os.path.join(relative, f)) for f in files]
        return names
