"""Whose the user's files are: of the project that trains, or of another one that was
installed from its folder (pip install -e) or is kept beside it (third_party/).

A project is the nearest folder above a file that has what projects have at their root.
It trains if the script, or the folder in which that was started, lies within.
"""

from __future__ import annotations

import functools
import os
import sys

_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
_MOST_LEVELS = 12


def is_of_another_project(path: str) -> bool:
    """No: the file may be of none."""
    root = _root_of(os.path.dirname(_resolved(path)))
    return root is not None and not any(_is_within(one, root) for one in _own_folders())


@functools.lru_cache(maxsize=4096)
def _root_of(folder: str) -> str | None:
    for _ in range(_MOST_LEVELS):
        if any(os.path.lexists(os.path.join(folder, mark)) for mark in _MARKS):
            return folder
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            break
    return None


@functools.lru_cache(maxsize=1)
def _own_folders() -> list[str]:
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    folders = [os.path.dirname(_resolved(script))] if script else []
    try:
        folders.append(_resolved(os.getcwd()))
    except OSError:  # it has been deleted
        pass
    return folders


@functools.lru_cache(maxsize=4096)
def _resolved(path: str) -> str:
    """Python imports from where the script really is, not from a link to it."""
    return os.path.realpath(path)


def _is_within(folder: str, root: str) -> bool:
    return folder == root or folder.startswith(root.rstrip(os.sep) + os.sep)
