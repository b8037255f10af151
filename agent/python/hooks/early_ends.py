"""Cosines that were over before the first pass over the data was.

T_max counts what the scheduler is stepped with. Where it was given in epochs and the
scheduler is stepped with each batch, the rates go up and down every few batches. A cosine
that was over at the end of a pass, or a little before, may have been laid out for it, and
the training goes on for longer: that is said of it at once. One that ended well before is
said to be wrong once it has gone down, up and down again.
"""

from __future__ import annotations

# Name of the scalar.
NAME = "schedule.ends_in_first_pass"

ALMOST = 0.9  # of a pass
_TIMES = 3
_PATIENCE = 256  # steps beyond its end, of a training whose passes nobody knows


class EarlyEnd:
    """Of one scheduler."""

    def __init__(self) -> None:
        # Did it end well before the first pass did? None: not known yet.
        self.early: bool | None = None
        self.batches: int | None = None  # of the last pass that trained
        self.passed = False  # has its end come?
        self.passes = 0  # that have begun
        # Times that it was stepped before the first pass had ended, or what stands
        # for one.
        self.first_calls: int | None = None

    def pass_begins(self, batches: int | None) -> None:
        """Called before a pass that may train."""
        self.batches = batches
        self.passes += 1

    def waits(self) -> bool:
        """For what stands for a pass?"""
        return self.early is None and self.batches is None

    def pass_ended(self, calls: int, end: float | None) -> None:
        """Called where a pass over the data, or what stands for one, has ended. calls:
        how often it was stepped."""
        if self.first_calls is None and calls > 0:
            self.first_calls = calls
        if self.early is None and calls > 0:
            self.early = self.passed and end is not None and end < ALMOST * calls

    def look(
        self, epoch: float, calls: int, end: float
    ) -> tuple[bool | None, bool | None]:
        """Is it beyond its end; did it end in the first pass? None: not said."""
        if epoch <= end:
            return False, False
        if self.early is None and not self.passed and self._may_be_right(end):
            self.early = False
        if calls <= end:  # it goes on from a file
            self.early = bool(self.early)
        self.passed = True
        if self.waits() and calls > end + _PATIENCE:
            self.early = False
        is_sure = calls > _TIMES * end
        if self.early is None and self.batches is not None and is_sure:
            self.early = True
        if self.early is False:
            return True, None
        return None, True if self.early and is_sure else None

    def _may_be_right(self, end: float) -> bool:
        return self.batches is not None and end >= ALMOST * self.batches
