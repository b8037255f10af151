"""What a wrapper is given in its first two training forwards, as one digest.

Ranks that train replicas must see different data. One batch may be equal by chance
(a tiny data set), so the digest is of two, recorded at the second. Nothing is
recorded where the second is the first again: a model that is given its whole graph
each time learns from another part of it on each rank. After the second forward a
wrapper costs one look into a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from typing import Any

    from torch.nn.parallel import DistributedDataParallel as DDP
    from traincheck_core import Args, Core, Kwargs

    from _traincheck.control import Recorded

_FEWEST_ELEMENTS = 16  # that are not equal by chance
_MOST_VALUES = 256
_DEPTH = 4  # of lists, tuples and dictionaries in each other
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


class _Unreadable(Exception):
    pass


class _First:
    """What the first forward was given."""

    content: bytes | None = None  # None: there was none yet


class WrapperInputs:
    def __init__(self, core: Core, recorded: Recorded) -> None:
        self._core = core
        self._recorded = recorded
        # Wrappers of several ranks, until their second training forward.
        self._waiting: WeakIdentityMap[DDP, _First] = WeakIdentityMap()

    def wrapped(self, wrapper: DDP) -> None:
        self._waiting.set(wrapper, _First())

    def forward_begins(self, wrapper: DDP, args: Args, kwargs: Kwargs) -> None:
        """Of a forward with gradients, outside of a backward."""
        first = self._waiting.get(wrapper)
        # Who forgets no_grad evaluates all ranks on the same. Lightning puts back the
        # mode of its module after an evaluation, and not that of the wrapper.
        if first is None or not wrapper.module.training or self._recorded.off:
            return
        try:
            content = self._content(args, kwargs)
        except _Unreadable:
            self._waiting.discard(wrapper)
            # What is no tensor is recorded as unreadable.
            core, variable = self._core, self._define(wrapper)
            core.record_states(
                core.POINT_FORWARD_BEGIN, core.STATE_DATA, [variable], [None]
            )
            return
        if content is not None and first.content is None:
            first.content = content
            return
        self._waiting.discard(wrapper)
        if content is not None and first.content != content:
            self._record(wrapper, (first.content or b"") + content)

    def _content(self, args: Args, kwargs: Kwargs) -> bytes | None:
        """None: too little to be unequal. Raises _Unreadable."""
        values = _Values()
        values.add((args, kwargs), _DEPTH)
        # Subclasses and modes of the user's must not see the question.
        with torch._C.DisableTorchFunction():
            elements = sum(tensor.numel() for tensor in values.tensors)
        if elements < _FEWEST_ELEMENTS:
            return None
        digests = self._core.digests(values.tensors)
        if digests is None:
            raise _Unreadable
        return digests + "\n".join(values.texts).encode()

    def _record(self, wrapper: DDP, content: bytes) -> None:
        point = self._core.POINT_FORWARD_BEGIN
        self._core.record_bytes(point, self._define(wrapper), content, "torch.uint8")

    def _define(self, wrapper: DDP) -> int:
        core, number = self._core, self._core.object_id(wrapper)
        name = type(wrapper).__name__
        return core.define_variable(
            None, "inputs", name, number, core.VARIABLE_INPUTS, "", 0
        )


class _Values:
    """Tensors, and texts of everything else: ranks may differ in either."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.texts: list[str] = []

    def add(self, value: Any, depth: int) -> None:
        """Raises _Unreadable for what may hold anything."""
        if len(self.tensors) + len(self.texts) >= _MOST_VALUES:
            raise _Unreadable
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
        elif type(value) in _PLAIN:
            self.texts.append(repr(value))
        elif depth and isinstance(value, (list, tuple)):
            self.texts.append(f"{len(value)} elements")
            for element in value:
                self.add(element, depth - 1)
        elif depth and isinstance(value, dict):
            self.texts.append(f"{len(value)} keys")
            for key, element in dict.items(value):
                self.add(key, 0)
                self.add(element, depth - 1)
        else:
            raise _Unreadable
