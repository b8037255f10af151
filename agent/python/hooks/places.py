"""Where the user's code is just now: a few lines, cheaper than a traceback."""

from __future__ import annotations

import os
import sys

import torch

_DEPTH = 4  # lines of the user's, the innermost first
_MOST = 32  # frames that are looked at
_TORCH = os.path.dirname(torch.__file__)
_OURS = __package__

Place = tuple[tuple[str, int], ...]


def place() -> Place:
    """(file, line) of the innermost frames that are neither ours nor torch's."""
    found = []
    frame = sys._getframe(1)
    for _ in range(_MOST):
        name = frame.f_code.co_filename
        ours = frame.f_globals.get("__package__") == _OURS
        if not ours and not name.startswith(_TORCH):
            found.append((name, frame.f_lineno))
        if len(found) == _DEPTH or frame.f_back is None:
            break
        frame = frame.f_back
    return tuple(found)
