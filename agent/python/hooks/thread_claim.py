"""Which thread may look at a set of tensors.

A backward replaces gradients without the interpreter's lock: reading them from
another thread meanwhile would crash. So gradients are read by the thread that
trains with them, and by nobody once two threads do.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def claim_all(claims: Iterable[ThreadClaim]) -> bool:
    """This thread is about to train with them: True if it alone does."""
    thread, alone = get_ident(), True
    for claim in claims:
        # In every step but the first nothing changes.
        if claim.thread != thread:
            alone = claim.claim() and alone
    return alone


class ThreadClaim:
    __slots__ = ("thread",)

    _SHARED = 0  # no thread's ident

    def __init__(self) -> None:
        self.thread: int | None = None

    def claim(self) -> bool:
        """Called before this thread trains; True if the claim is its own."""
        thread = get_ident()
        if self.thread is None:
            self.thread = thread
        elif self.thread != thread:
            self.thread = self._SHARED
        return self.thread == thread

    def is_mine(self) -> bool:
        return self.thread == get_ident()

    def is_others(self) -> bool:
        """Does another thread train with them?"""
        return self.thread is not None and self.thread != get_ident()
