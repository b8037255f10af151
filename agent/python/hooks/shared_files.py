"""Files that several ranks save to.

Each rank runs the same script: what stands under no condition on the rank, every one of
them does. Ranks that save to one file at the same time write over each other, and who
reads it meanwhile, or after a crash, may find parts of several.
"""

from __future__ import annotations

import hashlib
import os
import socket
import stat
from typing import TYPE_CHECKING

import torch

from _traincheck import run_agreement

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Core

# Name of the scalar of a save.
NAME = "save.shared_by_ranks"

_MOST = 64  # files that ranks compare


class SharedFiles:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._said: dict[str, float] = {}  # by file

    def saves(self, path: Any) -> float | None:
        """Called as torch.save begins. 1: another rank of this host saves to the file,
        too; None: it is no file, nobody else trains, or there are too many files."""
        if not isinstance(path, (str, os.PathLike)) or not _has_other_ranks():
            return None
        file = os.path.realpath(path)
        said = self._said.get(file)
        if said is None and len(self._said) < _MOST and not _is_special(file):
            said = self._compare(file)
            if said is not None:
                self._said[file] = said
        return said

    def _compare(self, file: str) -> float | None:
        # One path may be several files on several hosts, and in several containers.
        place = f"{socket.gethostname()} {_mounts()} {file}".encode("utf-8", "replace")
        key = f"saved {hashlib.blake2b(place, digest_size=16).hexdigest()}"
        rank = str(torch.distributed.get_rank())
        what = "the files that ranks save to"
        return run_agreement.differs(self._core, what, key, rank)


def _has_other_ranks() -> bool:
    known = torch.distributed.is_available() and torch.distributed.is_initialized()
    return known and bool(torch.distributed.get_world_size() > 1)


def _is_special(file: str) -> bool:
    """A device, a pipe and the like: /dev/null."""
    try:
        return not stat.S_ISREG(os.stat(file).st_mode)
    except OSError:  # it is not there yet
        return False


def _mounts() -> int:
    try:
        return os.stat("/proc/self/ns/mnt").st_ino
    except OSError:
        return 0
