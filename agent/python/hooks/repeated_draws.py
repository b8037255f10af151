"""Steps that draw the random numbers of the step before.

Who seeds in each iteration, or puts a generator's state back, drops out the same
elements and adds the same noise in every step. Seen by the state of torch's
generators: one was drawn from during a step, and they are at the next one's
beginning what they were at its beginning. Generators of the user's own are seen by the
noise that they made (repeated_noise.py).
"""

from __future__ import annotations

from _traincheck.generators import drawn_state
from _traincheck.repeated_noise import RepeatedNoise

_FIRST = 32  # steps that are looked at
_EVERY = 64  # afterwards two of so many
_HABIT = 2


class RepeatedDraws:
    def __init__(self) -> None:
        self._steps = 0
        self._begin: int | None = None  # hash of the state at this step's forward
        self._former: int | None = None  # at the last one's
        self._moved = False  # during the last one
        self._habit = 0
        self._judged = False
        self.noise = RepeatedNoise()

    def forward_begins(self) -> None:
        """Called at outermost forwards that train."""
        if self._begin is None and self._looks():
            self._begin = _state()
            if self._moved and self._former is not None:
                self._judged = True
                same = self._former == self._begin
                self._habit = self._habit + 1 if same else 0

    def optimizer_steps(self) -> float | None:
        """1: this step and the last ones repeat; None: nothing was drawn yet."""
        self._moved = self._begin is not None and _state() != self._begin
        self._former, self._begin = self._begin, None
        self._steps += 1
        repeats = self.noise.optimizer_steps()
        if self._judged:
            repeats = bool(repeats) or self._habit >= _HABIT
        return None if repeats is None else float(repeats)

    def _looks(self) -> bool:
        return self._steps < _FIRST or self._steps % _EVERY < _HABIT + 1


def _state() -> int:
    return hash(drawn_state())
