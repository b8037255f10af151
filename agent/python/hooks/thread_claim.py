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


class ThreadClaim:
    __slots__ = ("thread",)

    _SHARED = 0  # no thread's ident
    changes = 0  # of all claims

    def __init__(self) -> None:
        self.thread: int | None = None

    def claim(self) -> bool:
        """Called before this thread trains; True if the claim is its own."""
        thread = get_ident()
        if self.thread is None:
            self.thread = thread
            ThreadClaim.changes += 1
        elif self.thread not in (thread, self._SHARED):
            self.thread = self._SHARED
            ThreadClaim.changes += 1
        return self.thread == thread

    def is_mine(self) -> bool:
        return self.thread == get_ident()

    def is_others(self) -> bool:
        """Does another thread train with them?"""
        return self.thread is not None and self.thread != get_ident()


class Claims:
    """Those of all that is trained together."""

    def __init__(self, claims: Iterable[ThreadClaim] = ()) -> None:
        self._claims = list(claims)
        # Thread whose they all were, and changes to claims by then.
        self._known: tuple[int, int] | None = None

    def claim(self) -> bool:
        """This thread is about to train with them: True if it alone does."""
        now = get_ident(), ThreadClaim.changes
        # In every step but the first nothing changes.
        if self._known == now:
            return True
        alone = all([claim.claim() for claim in self._claims])
        self._known = now if alone else None
        return alone
