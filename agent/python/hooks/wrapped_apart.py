"""Models that differ between ranks once they are wrapped.

DistributedDataParallel sends the weights of one rank to all others when it is made, and
compares nothing afterwards. On the CPU the ranks compare what they have then.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

from _traincheck import run_agreement
from _traincheck.holds import parameters_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.module_content import named_parameters_in, parameters_in

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel as DDP
    from traincheck_core import Core

# Name of the scalar.
NAME = "opt.wrapped_apart"

_MODELS = 16  # that are compared
_BYTES = 1 << 28  # of one; a digest of them takes some tenths of a second
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class WrappedApart:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._count = 0
        self._apart: WeakIdentityMap[DDP, bool] = WeakIdentityMap()
        # Models that were known when each optimizer was looked at.
        self._looked: WeakIdentityMap[torch.optim.Optimizer, int] = WeakIdentityMap()

    def wrapped(self, wrapper: DDP) -> None:
        """Called as it is made and has sent its weights."""
        size = torch.distributed.get_world_size(wrapper.process_group)
        world = torch.distributed.get_world_size()
        if size < 2 or size != world or self._count == _MODELS:
            return
        parameters = list(named_parameters_in(wrapper.module))
        ignored = getattr(wrapper, "parameters_to_ignore", ())
        tensors = [one.detach() for name, one in parameters if name not in ignored]
        if not all(one.is_cpu and type(one) in _PLAIN for one in tensors):
            return
        if not tensors or sum(one.nbytes for one in tensors) > _BYTES:
            return
        self._count += 1
        digests = self._core.digests(tensors)
        if digests is None:
            return
        name = type(wrapper.module).__name__
        key = f"wrapped {self._count} {name} {len(tensors)}"
        content = hashlib.blake2b(digests, digest_size=16).hexdigest()
        what = "the weights of wrapped models"
        differs = run_agreement.differs(self._core, what, key, content)
        if differs is not None:
            self._apart.set(wrapper, bool(differs))

    def steps(self, optimizer: torch.optim.Optimizer) -> bool | None:
        """Called as its step begins: does it hold a model that differed? None: nothing
        that was compared."""
        count = len(self._apart)
        if count == 0 or self._looked.get(optimizer) == count:
            return None  # it was said
        held = set(map(id, parameters_of(optimizer)))
        found = [
            apart
            for wrapper, apart in self._apart.items()
            if any(id(p) in held for p in parameters_in(wrapper))
        ]
        self._looked.set(optimizer, count)
        return any(found) if found else None
