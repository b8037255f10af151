"""Best values that a checkpoint carries, and that a resume does not take over.

The best value so far belongs to the state of a training: who keeps the best weights asks
it at each evaluation. Where it begins anew after a resume, the first evaluation writes
over the best weights, however bad it is. Seen in the next files: the count of epochs or
steps goes on from the loaded one, and the best value is worse than the loaded one. A stage
that counts anew has a best value of its own, and so has a training that goes on from
weights alone.
"""

from __future__ import annotations

import math
import re
from itertools import islice
from typing import TYPE_CHECKING

from _traincheck.file_entries import entries_of
from _traincheck.hyper_parameters import number_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from _traincheck.awake import Awake

    _Numbers = dict[tuple[str, ...], float]  # by the keys that lead to them

NAME = "opt.best_forgotten"  # of the scalar

_FILES = 4  # that were read last
_SAVES = 16  # after a resume
_ENTRIES = 64  # of a dictionary
_GREATER = frozenset(
    "acc acc1 acc5 accuracy auc auroc bleu dice f1 iou miou mrr ndcg precision psnr "
    "recall rouge ssim top1 top5".split()
)
_SMALLER = frozenset(
    "cer err error fid loss mae mse nll perplexity ppl rmse wer".split()
)
_COUNTS = frozenset("epoch epochs iter iteration iterations step steps".split())


class _File:
    def __init__(self, content: dict[Any, Any]) -> None:
        self.states = set(map(_mark_of, filter(_is_of_optimizer, entries_of(content))))
        self.numbers = _numbers(content)


class ForgottenBests:
    def __init__(self, awake: Awake) -> None:
        self._awake = awake
        self._read: list[_File] = []
        self._loaded: _Numbers = {}  # with the state that an optimizer took over
        self._saves = 0  # since then
        self._said: float | None = None

    def loaded(self, content: Any) -> None:
        """Called with what torch.load has given."""
        if issubclass(type(content), dict):
            file = _File(content)
            if file.states and any(map(_sign_of, file.numbers)):
                self._read = [*self._read, file][-_FILES:]

    def takes(self, state: Any) -> None:
        """Called when an optimizer is about to take over a state."""
        if not self._read or not _is_of_optimizer(state):
            return
        mark = _mark_of(state)
        for file in self._read:
            if mark in file.states:
                self._loaded, self._saves = file.numbers, 0
                self._read = []  # what lies there later may be another state
                return

    def saves(self, content: Any) -> None:
        """Called before torch.save writes."""
        if not self._loaded or not issubclass(type(content), dict):
            return
        now = _numbers(content)
        if not _goes_on(self._loaded, now):
            return
        worse = [
            sign * (now[keys] - best) < 0
            for keys, best in self._loaded.items()
            if (sign := _sign_of(keys)) and keys in now
        ]
        if worse:
            self._said = max(self._said or 0.0, float(any(worse)))
            self._awake.add(NAME)
            self._saves += 1
        if self._saves == _SAVES:
            self._loaded = {}

    def optimizer_steps(self) -> float | None:
        """1: a file was written whose best value is worse than the loaded one; None: no
        best value was loaded, or written since."""
        return self._said


def _goes_on(loaded: _Numbers, now: _Numbers) -> bool:
    """Has a count gone on from where it was, and does none begin anew?"""
    counts = [keys for keys in loaded if keys in now and keys[-1] in _COUNTS]
    ahead = [now[keys] - loaded[keys] for keys in counts]
    return bool(ahead) and min(ahead) >= 0 and max(ahead) > 0


def _sign_of(keys: tuple[str, ...]) -> int:
    """1: the best one is the greatest; -1: the smallest; 0: it is no best value, or
    nothing says which."""
    words = set(re.split("[^a-z0-9]+", keys[-1]))
    greater, smaller = bool(words & _GREATER), bool(words & _SMALLER)
    if greater == smaller or words & _COUNTS:
        return 0
    if "best" in words or ("max" if greater else "min") in words:
        return 1 if greater else -1
    return 0


def _numbers(content: dict[Any, Any]) -> _Numbers:
    """Best values and counts of a file: its own, and those of its dictionaries."""
    found = dict(_numbers_in(content, ()))
    for name, inner in islice(dict.items(content), _ENTRIES):
        if type(name) is str and issubclass(type(inner), dict):
            found.update(_numbers_in(inner, (name.lower(),)))
    return found


def _numbers_in(
    content: dict[Any, Any], keys: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], float]]:
    for name, value in islice(dict.items(content), _ENTRIES):
        if type(name) is not str or type(value) is bool:
            continue
        path = (*keys, name.lower())
        if path[-1] in _COUNTS or _sign_of(path):
            number = number_of(value)
            if number is not None and not math.isnan(number):
                yield path, number


def _is_of_optimizer(state: Any) -> bool:
    return issubclass(type(state), dict) and "param_groups" in state


def _mark_of(state: Any) -> tuple[int, int]:
    """Where it lies, as long as it lives, and how large it is."""
    groups = state["param_groups"]
    return id(state), len(groups) if issubclass(type(groups), list) else 0
