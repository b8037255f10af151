"""The programs of this package as commands. Each takes the place of the
interpreter, so that signals and exit codes are the program's own."""

import os
import signal
import sys

# Python ignores these; a training that was started so would ignore them too.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def _become(name: str) -> None:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(path, [name, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: cannot execute {path}: {error.strerror}")


def traincheckctl() -> None:
    _become("traincheckctl")


def traincheckd() -> None:
    _become("traincheckd")
