"""Starts a training and says what it and the relays that it left behind have used.

This process adopts orphans, so that the end of a relay is seen here and the
kernel's books of it are exact. Nothing is sampled while a training runs.
"""

import ctypes
import dataclasses
import os
import pathlib
import subprocess
import time

_PR_SET_CHILD_SUBREAPER = 36
_PAUSE_S = 0.02
PATIENCE_S = 600


@dataclasses.dataclass
class Usage:
    code: int = 0
    cpu_s: float = 0.0  # the training and the processes that it waited for
    relay_cpu_s: float = 0.0
    max_rss_mib: float = 0.0  # the largest of the training's processes


def adopt_orphans() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _children() -> set[int]:
    text = ""
    for thread in pathlib.Path("/proc/self/task").iterdir():
        text += (thread / "children").read_text()
    return {int(pid) for pid in text.split()}


def _cpu_s(usage) -> float:
    return usage.ru_utime + usage.ru_stime


def run(command: list, environment: dict, log: pathlib.Path) -> Usage:
    """Runs a training to its end and waits for its relays."""
    others = _children()
    result = Usage()
    with open(log, "wb") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = result.code = os.waitstatus_to_exitcode(status)
    result.cpu_s = _cpu_s(usage)
    result.max_rss_mib = usage.ru_maxrss / 1024
    deadline = time.monotonic() + PATIENCE_S
    while orphans := _children() - others:
        for pid in orphans:
            ended, _, usage = os.wait4(pid, os.WNOHANG)
            if ended:
                result.relay_cpu_s += _cpu_s(usage)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{orphans} did not end: {log}")
        time.sleep(_PAUSE_S)
    return result
