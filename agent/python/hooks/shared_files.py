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

    from _traincheck.clock import Clock
    from _traincheck.topology import Topology

# Name of the scalar of a save.
NAME = "save.shared_by_ranks"

_MOST = 64  # saves that ranks compare


class SharedFiles:
    def __init__(self, core: Core, clock: Clock, topology: Topology) -> None:
        self._core = core
        self._clock = clock
        self._topology = topology
        self._shared: set[str] = set()  # files of which it was said
        self._compared = 0

    def saves(self, path: Any) -> float | None:
        """Called as torch.save begins. 1: another rank of this host saves to the file,
        too; None: it is not a file, nobody else trains, or there were too many saves.
        """
        if not isinstance(path, (str, os.PathLike)) or not _has_other_ranks():
            return None
        file = os.path.realpath(path)
        if file in self._shared:
            return 1.0
        if self._compared == _MOST or _is_special(file):
            return None
        self._compared += 1
        said = self._compare(file)
        if said == 1:
            self._shared.add(file)
        return said

    def _compare(self, file: str) -> float | None:
        # Ranks may hand a file on. Those that save at once have made as many steps and
        # called as many collectives.
        moment = f"{self._clock.steps_begun()} {self._topology.collectives()}"
        # One path may be several files on several hosts, and in several containers.
        place = f"{socket.gethostname()} {_mounts()} {moment} {file}"
        digest = hashlib.blake2b(place.encode("utf-8", "replace"), digest_size=16)
        what = "the files that ranks save to"
        rank = str(torch.distributed.get_rank())
        key = f"saved {digest.hexdigest()}"
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
