"""Schedulers that wait for a plateau of a metric in the wrong direction.

ReduceLROnPlateau takes a metric for a loss unless it is told otherwise (mode="min"): an
accuracy that rises is no improvement to it, and it lowers the rate until nothing is
trained any more. What a metric is, its name in the code says, or the expression that
gives it: what a variable was given, the key of an entry, what is averaged or turned.
"""

from __future__ import annotations

import ast
import linecache
import re
import sys
from typing import TYPE_CHECKING

import torch

from _traincheck.frame_scopes import Scope, users_frame
from _traincheck.metric_values import direction
from _traincheck.sources import is_of_user

if TYPE_CHECKING:
    import types
    from typing import Any

# Name of the scalar.
NAME = "schedule.against_metric"
_RISES = frozenset(
    "acc accuracy auc auroc auprc f1 iou miou dice bleu rouge ndcg recall r2 reward "
    "psnr ssim pearson spearman kappa mcc".split()
)
_FALLS = frozenset(
    "loss losses err error rmse mse mae nll ppl perplexity wer cer fid".split()
)
_TURNED = frozenset("neg negative minus inv inverse inverted one".split())
# A squared residual, and a sum that was accumulated, have these names, too.
_UNSURE = (frozenset(["r2"]), frozenset(["acc"]))
_TIMES = 2
_MAX_LINES = 8  # of a call
_MOST = 8  # calls whose expression is followed


class MetricDirection:
    """Of one scheduler."""

    def __init__(self) -> None:
        # The first value of a metric whose name has two meanings, and how often it has
        # been above that in a row.
        self._first: float | None = None
        self._above = 0
        # Does what these lines give rise or fall as it gets better?
        self._followed: dict[tuple[str, int], bool | None] = {}

    def is_against(self, scheduler: Any, metric: Any) -> bool | None:
        """Called in the scheduler's step. None: the name of the metric does not say."""
        mode = getattr(scheduler, "mode", None)
        frame = users_frame(sys._getframe())
        if mode not in ("min", "max") or frame is None:
            return None
        given = _given(frame.f_code.co_filename, frame.f_lineno)
        words = _words_of(given)
        rises = _rises(words)
        is_followed = rises is None and given is not None
        if given is not None and is_followed:
            rises = self._follow(given, frame)
        if rises is None or (rises and not _is_positive(metric)):
            return None
        if (words in _UNSURE or (is_followed and rises)) and mode == "min":
            return True if self._has_risen(float(metric)) else None
        return bool(rises == (mode == "min"))

    def _follow(self, given: ast.expr, frame: types.FrameType) -> bool | None:
        place = (frame.f_code.co_filename, frame.f_lineno)
        if place in self._followed:
            return self._followed[place]
        if len(self._followed) == _MOST or not is_of_user(place[0]):
            return None
        found = direction(given, Scope(frame))
        self._followed[place] = found > 0 if found else None
        return self._followed[place]

    def _has_risen(self, metric: float) -> bool:
        if self._first is None:
            self._first = metric
        self._above = self._above + 1 if metric > self._first else 0
        return self._above >= _TIMES


def _is_positive(metric: Any) -> bool:
    """An accuracy below zero was turned around. False, too, of one on a device."""
    number = metric.item() if type(metric) is torch.Tensor and metric.is_cpu else metric
    return isinstance(number, (int, float)) and number >= 0


def _rises(words: frozenset[str]) -> bool | None:
    rises, falls = bool(words & _RISES), bool(words & _FALLS)
    return None if rises == falls or words & _TURNED else rises


def _given(filename: str, line: int) -> ast.expr | None:
    """What the call in this line is given first."""
    text = ""
    for number in range(line, line + _MAX_LINES):
        text += linecache.getline(filename, number)
        try:
            tree = ast.parse(text.strip())
        except SyntaxError:
            continue
        return _first_of(tree)
    return None


def _first_of(tree: ast.Module) -> ast.expr | None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "step":
            given = [*node.args, *(word.value for word in node.keywords)]
            return given[0] if given else None
    return None


def _words_of(given: ast.expr | None) -> frozenset[str]:
    name = "" if given is None else _name(given)
    parts = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return frozenset(re.split(r"[^a-z0-9]+", parts.lower()))


def _name(value: ast.expr) -> str:
    """Empty: it is more than a name, an entry, or one of them read (.item())."""
    if isinstance(value, ast.Name):
        return value.id
    if isinstance(value, ast.Attribute):
        return value.attr
    if isinstance(value, ast.Subscript):
        key = value.slice
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            return key.value
        return _name(value.value)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return _name(value.func.value) if value.func.attr == "item" else ""
    return ""
