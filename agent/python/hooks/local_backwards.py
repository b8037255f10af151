"""Gradients of a step's last backward that stay on their rank.

With accumulation DistributedDataParallel averages gradients in one backward of a step:
in that whose forward ran while require_backward_grad_sync was true, outside of
no_sync(). It averages all that has accumulated by then, so it has to be the last one.
Where an earlier one is averaged and the last is not, ranks step by different gradients.
Who averages by hand has no backward that the wrapper averages. Of several forwards
before one backward (a gradient penalty) it is not known which of them it goes through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.holds import parameters_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.module_content import parameters_in

if TYPE_CHECKING:
    import torch
    from torch.nn.parallel import DistributedDataParallel as DDP

    _Wrappers = WeakIdentityMap[torch.optim.Optimizer, tuple[int, list["_Row"]]]

NAME = "opt.last_backward_is_local"


class _Row:
    """One wrapper, since the last step of an optimizer of its parameters."""

    def __init__(self) -> None:
        self.knows_both = False  # has a forward of it been local, ever?
        # Since the last backward: were they local, one after the other?
        self.forwards: list[bool] = []
        self.averaged = False  # was any backward?
        self.local = False  # is the last one?
        self.unclear = False

    def backward_begins(self) -> None:
        if len(self.forwards) == 1:
            self.local = self.forwards[0]
            self.averaged = self.averaged or not self.local
        elif self.forwards:
            self.unclear = True
        self.forwards.clear()

    def stepped(self) -> bool | None:
        """Did the backwards since the last step end with a local one? None: not known,
        or there is no local one in this training."""
        known = self.knows_both and not self.unclear
        found = self.averaged and self.local if known else None
        self.averaged = self.local = self.unclear = False
        return found


class LocalBackwards:
    def __init__(self) -> None:
        self._rows: WeakIdentityMap[DDP, _Row] = WeakIdentityMap()
        # Wrappers of what each optimizer holds, as of so many wrappers.
        self._of: _Wrappers = WeakIdentityMap()

    def wrapped(self, wrapper: DDP) -> None:
        """Called with each wrapper whose group has several ranks."""
        self._rows.set(wrapper, _Row())

    def forward_begins(self, wrapper: DDP) -> None:
        """Called where its inner forward begins, with gradients."""
        row = self._rows.get(wrapper)
        if row is None:
            return
        local = not wrapper.require_backward_grad_sync
        row.knows_both = row.knows_both or local
        if len(row.forwards) < 2:
            row.forwards.append(local)

    def backward_begins(self) -> None:
        """Called before every outermost one."""
        for wrapper in self._rows.keys():
            row = self._rows.get(wrapper)
            if row is not None:
                row.backward_begins()

    def replayed(self) -> None:
        """A CUDA graph was: what it averages is not known."""
        for wrapper in self._rows.keys():
            row = self._rows.get(wrapper)
            if row is not None:
                row.unclear = True

    def steps(self, optimizer: torch.optim.Optimizer) -> bool | None:
        """Called as its step begins."""
        if len(self._rows) == 0:
            return None
        found = [row.stepped() for row in self._rows_of(optimizer)]
        known = [each for each in found if each is not None]
        return any(known) if known else None

    def _rows_of(self, optimizer: torch.optim.Optimizer) -> list[_Row]:
        wrappers = list(self._rows.keys())
        known = self._of.get(optimizer)
        if known is not None and known[0] == len(wrappers):
            return known[1]
        held = set(map(id, parameters_of(optimizer)))
        rows = []
        for wrapper in wrappers:
            row = self._rows.get(wrapper)
            if row is not None and any(id(p) in held for p in parameters_in(wrapper)):
                rows.append(row)
        self._of.set(optimizer, (len(wrappers), rows))
        return rows
