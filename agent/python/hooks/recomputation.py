"""What recomputed regions do a second time, in a backward.

A checkpointed region (torch.utils.checkpoint) runs once in the forward and once
more in the backward. Buffers that it adds to are added to twice; random numbers
are other ones the second time unless the generators' states are put back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck import transforms
from _traincheck.generators import drawn_state
from _traincheck.module_content import parameters_in
from _traincheck.replaced_buffers import ReplacedBuffers

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Core, Kwargs

    from _traincheck.device_values import DeviceValues
    from _traincheck.models import Models

_FIRST = 8  # backwards that are looked at
_EVERY = 64  # afterwards one of so many

# Names of the scalars: 1 where it happened and 0 where it could have.
WRITES = "recompute.writes_buffers"
REDRAWS = "recompute.redraws"
CUT = "recompute.cut"


class Recomputation:
    def __init__(self, core: Core, models: Models, values: DeviceValues) -> None:
        self._core = core
        self._models = models
        self._replaced = ReplacedBuffers(values)
        self._regions = False  # has one run since the last backward?
        self._redraws: bool | None = None  # None: none has run without its states
        self._cut: bool | None = None  # None: none has run with trainable parameters
        self._backwards = 0
        # Of a buffer's variable: id and version.
        self._before: dict[int, tuple[int, int]] | None = None

    def region_begins(self, kwargs: Kwargs) -> bytes | None:
        """The generators' state where it will not be put back."""
        self._regions = True
        if kwargs.get("preserve_rng_state", True) or transforms.running():
            return None
        return drawn_state()

    def region_ended(self, state: bytes | None, function: Any, result: Any) -> None:
        module = function if isinstance(function, torch.nn.Module) else None
        module = module or getattr(function, "__self__", None)
        tensors = result if isinstance(result, (tuple, list)) else (result,)
        plain = [t for t in tensors if isinstance(t, torch.Tensor)]
        if isinstance(module, torch.nn.Module) and plain and torch.is_grad_enabled():
            if any(p.requires_grad for p in parameters_in(module)):
                cut = not any(t.requires_grad for t in plain)
                self._cut = bool(self._cut) or cut
        if state is not None:
            drew = state != drawn_state()
            self._redraws = bool(self._redraws) or drew

    def backward_begins(self) -> None:
        """Called at every outermost one."""
        self._before = None
        if not self._regions:
            return
        self._regions = False
        number = self._backwards
        self._backwards += 1
        if number < _FIRST or number % _EVERY == 0:
            buffers = self._buffers()
            self._before = {v: (id(b), b._version) for v, b in buffers.items()}
            self._replaced.backward_begins(number, buffers)
        if self._redraws is not None:
            self._write(REDRAWS, self._redraws)
            self._redraws = None
        if self._cut is not None:
            self._write(CUT, self._cut)
            self._cut = None

    def backward_ended(self) -> None:
        before, self._before = self._before, None
        if before:
            buffers = self._buffers()
            rows = ((id(b), b._version, before.get(v)) for v, b in buffers.items())
            written = any(
                was is not None and was[0] == one and was[1] != version
                for one, version, was in rows
            )
            ids = {variable: was[0] for variable, was in before.items()}
            number = self._backwards - 1
            again = self._replaced.backward_ended(number, buffers, ids)
            self._write(WRITES, written or again)

    def _write(self, name: str, happened: bool) -> None:
        point = self._core.POINT_BACKWARD_END
        self._core.record_scalar(0, point, 0, name, float(happened))

    def _buffers(self) -> dict[int, torch.Tensor]:
        """Plain ones, by their variables. The statistics of normalisations are known to
        be updated twice, and hardly differ for it."""
        variables: list[int] = []
        found: list[torch.Tensor] = []
        for model in self._models.all():
            for part in model.own:
                if isinstance(part.module(), torch.nn.modules.batchnorm._NormBase):
                    continue
                part.collect_buffers(variables, found)
        return {
            variable: tensor
            for variable, tensor in zip(variables, found)
            if type(tensor) is torch.Tensor and not tensor.is_inference()
        }
