"""States that are kept for the worst value so far, as if it were the best.

Who keeps the weights of the best evaluation asks whether a value is above or below the
best one until then. What the value is, its name says: in the source, or as the text that
an object holds (`monitor="val_loss"`). A greatest loss and a smallest accuracy are the
worst. Where a name does not say it, or the value may have been turned around, nothing is
said.
"""

from __future__ import annotations

import sys
from typing import NamedTuple
from typing import TYPE_CHECKING

from _traincheck.frame_scopes import Scope
from _traincheck.frame_scopes import users_frame
from _traincheck.frame_scopes import users_frames
from _traincheck.metric_names import direction_of_name
from _traincheck.metric_names import words_of
from _traincheck.metric_values import direction
from _traincheck.patience_counters import PatienceCounters
from _traincheck.running_extremes import branches
from _traincheck.running_extremes import extreme_of
from _traincheck.sources import site_of
from _traincheck.standing_bests import StandingBests

if TYPE_CHECKING:
    from types import CodeType
    from types import FrameType
    from typing import Any

    from traincheck_core import Core

    from _traincheck.awake import Awake

NAME = "opt.keeps_the_worst"  # of the scalar
SITE = f"{NAME}.site"

_LOOKS = 8  # at keeps of one place
_PLACES = 32
_FRAMES = 32  # around a keep
# Whose functions look for the worst on purpose.
_ADVERSE = frozenset(
    "adversarial adversary attack hard hardest mine miner mining worst".split()
)


class _Found(NamedTuple):
    is_worst: bool
    site: int  # 0: not known


class KeptBests:
    def __init__(self, core: Core, awake: Awake) -> None:
        self._core = core
        self._awake = awake
        self._places: dict[tuple[str, int, str, int], int] = {}  # looks at each
        self._said: _Found | None = None
        self.standing = StandingBests(awake)
        self.patience = PatienceCounters(awake)

    def keeps(self, steps: int) -> None:
        """Called when the state of a module was given, or is saved, after so many
        steps."""
        frame = users_frame(sys._getframe(1))
        if frame is None or not self._looks(frame):
            return
        for look in (self.standing.keeps, self.patience.keeps):
            any(look(around, steps) for around in users_frames(frame))
        found = self._of_monitor(frame) or self._of_condition(frame)
        if found is not None:
            if self._said is None or not self._said.is_worst:
                self._said = found
            self._awake.update((NAME, SITE))

    def optimizer_steps(self) -> float | None:
        """1: the state was kept for the worst value; 0: for the best one; None: none was
        kept since the last step, or nothing says which it is."""
        self._awake.discard(NAME)
        found = self._said
        if found is None or not found.is_worst:
            self._said = None
            self._awake.discard(SITE)
        return None if found is None else float(found.is_worst)

    def site(self) -> float | None:
        found, self._said = self._said, None
        self._awake.discard(SITE)
        return None if found is None else float(found.site) or None

    def _looks(self, frame: FrameType) -> bool:
        back = users_frame(frame.f_back)
        place = (
            *(frame.f_code.co_filename, frame.f_lineno),
            *(("", 0) if back is None else (back.f_code.co_filename, back.f_lineno)),
        )
        looks = self._places.get(place, 0)
        if looks == _LOOKS or (looks == 0 and len(self._places) == _PLACES):
            return False
        self._places[place] = looks + 1
        return True

    def _of_monitor(self, frame: FrameType) -> _Found | None:
        """Of an object that says what it monitors, and which is the best."""
        around: FrameType | None = frame
        for _ in range(_FRAMES):
            if around is None:
                break
            code = around.f_code
            if "monitor" in code.co_names and code.co_varnames[:1] == ("self",):
                return _by_mode(Scope(around).owner())
            around = around.f_back
        return None

    def _of_condition(self, frame: FrameType) -> _Found | None:
        for around in users_frames(frame):
            if _is_adverse(around.f_code):
                return None
            found = self._in(around)
            if found is not None:
                return found
        return None

    def _in(self, frame: FrameType) -> _Found | None:
        scope = Scope(frame)
        for branch in branches(scope):
            extreme = extreme_of(branch, scope)
            better = direction(extreme.value, scope) if extreme else None
            if extreme and better:
                site = site_of(self._core, frame.f_globals, extreme.line)
                return _Found(extreme.greatest == (better < 0), site)
        return None


def _is_adverse(code: CodeType) -> bool:
    return not words_of(code.co_qualname).isdisjoint(_ADVERSE)


def _by_mode(owner: Any) -> _Found | None:
    """As of Lightning's ModelCheckpoint, and of many classes that are written like it."""
    try:
        own = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return None
    monitor, mode = own.get("monitor"), own.get("mode")
    # All are kept, or none.
    if type(monitor) is not str or own.get("save_top_k") in (-1, 0):
        return None
    better = direction_of_name(monitor)
    if mode not in ("min", "max") or not better:
        return None
    return _Found((mode == "max") == (better < 0), 0)
