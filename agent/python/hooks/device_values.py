"""Values of tensors for whoever looks: of the CPU at once, of a device later.

Reading a tensor of a device would wait for all that the device has begun. Its values
are copied instead, behind what the program's stream has begun and before what follows,
and whoever asked is called when they have come: in one of the next steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from traincheck_core import Core

    Take = Callable[[list[torch.Tensor]], None]

# Bytes that are copied at once; what is asked for beyond is not read.
MOST = 1 << 20
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class _Awaited:
    def __init__(self, tensors: Sequence[torch.Tensor], take: Take) -> None:
        self._forms = [(tensor.dtype, tensor.shape) for tensor in tensors]
        self._take = take
        self.came = False
        self.contents: list[bytes] | None = None

    def deliver(self) -> None:
        if self.contents is not None:
            values = map(_tensor, self.contents, self._forms)
            self._take(list(values))


class DeviceValues:
    """Threads: all access is under the interpreter's lock."""

    def __init__(self, core: Core, missed: Callable[[], None]) -> None:
        """missed: called where values are not read at all; a device that is behind, or
        records a graph, is one look less."""
        self._core = core
        self._missed = missed
        self._has_read = False
        self._awaited: dict[int, _Awaited] = {}  # in the order in which it was asked

    def is_here(self, tensor: torch.Tensor) -> bool:
        """Can it be read without waiting?"""
        return bool(tensor.is_cpu) and not self._core.cpu_is_device()

    def is_strided(self, tensor: torch.Tensor) -> bool:
        """Can it be read, here or where it is?"""
        if type(tensor) not in _PLAIN or tensor.layout != torch.strided:
            return False
        return bool(tensor.is_cpu or tensor.is_cuda)

    def reads(self, tensor: torch.Tensor) -> bool:
        """Can its first elements be read without a computation on the device?"""
        if not self.is_strided(tensor):
            return False
        return bool(tensor.is_contiguous()) or self.is_here(tensor)

    def read(self, tensors: Sequence[torch.Tensor], take: Take) -> None:
        """Calls `take` with tensors on the CPU that have the values which these have
        now: at once with these themselves where they can be read, else with copies, in
        the order of the calls; or never. REQUIRES: they are plain and strided."""
        if all(map(self.is_here, tensors)):
            take([tensor.detach() for tensor in tensors])
            return
        number = self._core.copy_to_host(tensors)
        if number == 0:
            if not self._has_read:
                self._missed()
        else:
            self._awaited[number] = _Awaited(tensors, take)

    def poll(self) -> None:
        """Hands out what has come."""
        if not self._awaited:
            return
        for number, contents in self._core.copies():
            awaited = self._awaited.get(number)
            if awaited is not None:
                awaited.came, awaited.contents = True, contents
        for number, awaited in list(self._awaited.items()):
            if not awaited.came:
                break
            del self._awaited[number]
            if awaited.contents is None:
                self._missed()
            self._has_read = True
            awaited.deliver()


def first_of(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """Its first elements, without a gradient. REQUIRES, where it is on a device:
    DeviceValues.reads(tensor)."""
    return tensor.detach().reshape(-1)[:count]


def bytes_of(tensor: torch.Tensor) -> int:
    """What its copy takes."""
    return -(-int(tensor.numel()) * int(tensor.element_size()) // 8) * 8


def _tensor(content: bytes, form: tuple[torch.dtype, Any]) -> torch.Tensor:
    dtype, shape = form
    if not content:
        return torch.empty(shape, dtype=dtype, device="cpu")
    return torch.frombuffer(bytearray(content), dtype=dtype).reshape(shape)
