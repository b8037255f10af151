"""Gradients that an epoch leaves behind and that the next one's first step uses.

Who steps after every n-th batch of an epoch, and whose epochs are no multiple of n,
either steps at the end of an epoch, too, or clears what is left. Who does neither
steps with more backwards than n, of which some belong to batches of the epoch before
and to weights of before its last steps. Where each step comes after the end of a pass,
how many backwards it uses is the length of the pass.
"""

from __future__ import annotations


class LeftoverGradients:
    def __init__(self) -> None:
        self._backwards = 0  # since the last step or clearing
        self._crossed = False  # did a pass over the data end after one of them?
        self._usual: int | None = None  # backwards a step, alike so far
        self._alike = True
        self._short = False  # did the last step use fewer, as at an epoch's end?
        self._said: float | None = None
        self._optimizer: int | None = None  # the one that steps

    def backward_ended(self) -> None:
        self._backwards += 1
        if self._short:
            self._alike = False

    def replayed(self) -> None:
        """Backwards or steps ran in a graph: nobody knows whether they add to what is
        there."""
        self._alike = False

    def pass_ended(self) -> None:
        """Called when the batches of a pass that was trained with have come to an end."""
        self._crossed = self._crossed or self._backwards > 0
        self._short = False

    def cleared(self) -> None:
        self._backwards, self._crossed = 0, False

    def steps(self, optimizer: int) -> float | None:
        """1: at the last end of a pass with gradients left, they were used after it;
        None: no occasion so far."""
        count, crossed = self._backwards, self._crossed
        self.cleared()
        if self._optimizer not in (None, optimizer):
            self._alike = False  # of several nobody knows whose a backward is
        self._optimizer = optimizer
        if not self._alike:
            return None
        if self._usual is None and crossed:
            return None  # no step within a pass so far
        usual = self._usual = self._usual or count
        if crossed and 1 < usual < count < 2 * usual:
            self._said = 1.0
            return self._said
        # At an epoch's end the rest may be stepped with, before or after it shows.
        self._alike = count <= usual
        self._short = count < usual and not crossed
        if usual > 1 and crossed:
            self._said = 0.0
        return self._said
