"""Runs one command to its end or its time limit and measures its processes.

Memory is the largest sum, over the command's processes at one moment, of what is
each process's own (anonymous and shared memory), plus the mapped files of the one
that has most of them: libraries that several processes map are counted once.
Looked at every 50 ms, so that the kernel's own peak of the command's processes is
taken where it is higher. This process adopts orphans, so that relays are seen.
"""

import dataclasses
import os
import pathlib
import signal
import subprocess
import time

_LOOK_S = 0.05
_WITHOUT_REAPING = os.WEXITED | os.WNOHANG | os.WNOWAIT
_ORPHANS_S = 60  # patience with processes that a command leaves behind


@dataclasses.dataclass
class Measured:
    """status: "ok", "over N min" or "exit code N"; without "ok" the rest is of no use."""

    status: str
    seconds: float = 0.0
    mib: float = 0.0


def _children(pid: int) -> set:
    """The children of all threads of a process, none if it is gone."""
    found: set = set()
    try:
        for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
            found.update(map(int, (thread / "children").read_text().split()))
    except OSError:
        pass
    return found


def descendants(pid: int, without: set) -> set:
    """All processes below pid, less those in without and what is below them."""
    found, next_ones = set(), _children(pid) - without
    while next_ones:
        found |= next_ones
        next_ones = set().union(*map(_children, next_ones)) - found - without
    return found


def memory_kib(pid: int, *keys: str) -> list:
    """Values of /proc/PID/status, 0 if the process is gone."""
    values = dict.fromkeys(keys, 0)
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, rest = line.partition(":")
        if key in values:
            values[key] = int(rest.split()[0])
    return [values[key] for key in keys]


def forget_peak(pid: int) -> None:
    """Sets VmHWM of a process to what it has now; where the kernel cannot, it stays."""
    try:
        pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        pass


def _tree_mib(pids: set) -> float:
    rows = [memory_kib(pid, "RssAnon", "RssShmem", "RssFile") for pid in pids]
    own = sum(anonymous + shared for anonymous, shared, _ in rows)
    return (own + max((files for *_, files in rows), default=0)) / 1024


def _wait_for_orphans(without: set) -> None:
    deadline = time.monotonic() + _ORPHANS_S
    while left := _children(os.getpid()) - without:
        for pid in left:
            os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {left} did not end")
        time.sleep(_LOOK_S)


def _kill_all(without: set) -> None:
    while left := descendants(os.getpid(), without):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for pid in _children(os.getpid()) - without:
            os.waitpid(pid, os.WNOHANG)
        time.sleep(_LOOK_S)


def run(command: list, limit_s: float, without: set, **options) -> Measured:
    """Runs a command and waits for what it leaves behind.

    Args:
      command: program and arguments.
      limit_s: after so many seconds all its processes are killed.
      without: pids of other children of this process (the daemon).
      **options: of subprocess.Popen: cwd, env, stdout, stderr.
    """
    start = time.monotonic()
    process = subprocess.Popen([*map(str, command)], **options)
    peak, look = 0.0, start
    while not os.waitid(os.P_PID, process.pid, _WITHOUT_REAPING):
        now = time.monotonic()
        if now - start > limit_s:
            _kill_all(without)
            process.returncode = -signal.SIGKILL
            return Measured(f"over {limit_s / 60:g} min")
        if now >= look:
            peak = max(peak, _tree_mib(descendants(os.getpid(), without)))
            look = now + _LOOK_S
        time.sleep(_LOOK_S / 10)  # the end is to be seen in time
    seconds = time.monotonic() - start
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    _wait_for_orphans(without)
    if process.returncode != 0:
        return Measured(f"exit code {process.returncode}", seconds)
    return Measured("ok", seconds, max(peak, usage.ru_maxrss / 1024))
