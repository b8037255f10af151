"""A part of a model: one submodule with the variables that it owns.

The core reads parts itself where a loop over all of a model is run in every step
(agent/capture/part_functions.cc).
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

from _traincheck import naming

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from traincheck_core import Core

    from _traincheck.thread_claim import ThreadClaim


class Part:
    """Names tensors by (submodule, key), so that nothing here keeps one alive."""

    __slots__ = (
        "module",
        "path",
        "params",
        "buffers",
        "sharded",
        "claim",
        "content",
        "_core",
    )

    def __init__(
        self, core: Core, module: torch.nn.Module, path: str, claim: ThreadClaim
    ) -> None:
        self._core = core
        self.module = weakref.ref(module)
        self.claim = claim  # ThreadClaim
        self.path = path
        self.params: list[tuple[str, int]] = []  # (key, variable)
        self.buffers: list[tuple[str, int]] = []
        self.sharded: set[str] = set()  # keys of params that are DTensors
        # An id may be used again after its object's death; then a replacement goes
        # unseen here, which costs an identity epoch and nothing else: tensors are
        # always looked up through their module.
        self.content = core.content_of(module)

    def changed(self) -> bool:
        """Are its parameters, buffers' names or children others than at first?

        Buffers are compared by name: models may assign new ones every step.
        """
        module = self.module()
        if module is None or (self.sharded and self._gathered(module)):
            return False
        return self._core.content_of(module) != self.content

    def same_as(self, former: Part | None) -> bool:
        """Has `former`, of the same path, the same tensors under the same names?"""
        return (
            former is not None
            and former.params == self.params
            and former.buffers == self.buffers
            and former.content[0] == self.content[0]
        )

    def lent(self) -> bool:
        """Has something put tensors that are no parameters in their places?"""
        module = self.module()
        return module is not None and not all(
            value is None or isinstance(value, torch.nn.Parameter)
            for value in module._parameters.values()
        )

    def collect_params(self, variables: list[int], tensors: list[torch.Tensor]) -> None:
        module = self.module()
        if module is not None:
            rows = self.params
            if self.sharded and self._gathered(module):
                rows = [row for row in rows if row[0] not in self.sharded]
            _collect(module._parameters, rows, variables, tensors)

    def _gathered(self, module: torch.nn.Module) -> bool:
        """Are whole parameters in the places of its sharded ones?

        FSDP puts them there for a forward and a backward, and leaves them after
        an evaluation. They are no other parameters, and another content.
        """
        tensors = (module._parameters.get(key) for key in self.sharded)
        return any(t is not None and not naming.is_sharded(t) for t in tensors)

    def collect_buffers(
        self, variables: list[int], tensors: list[torch.Tensor]
    ) -> None:
        module = self.module()
        if module is not None:
            _collect(module._buffers, self.buffers, variables, tensors)


def _collect(
    table: dict[str, Any],
    rows: list[tuple[str, int]],
    variables: list[int],
    tensors: list[torch.Tensor],
) -> None:
    for key, variable in rows:
        tensor = table.get(key)
        if tensor is not None:
            variables.append(variable)
            tensors.append(tensor)


def modules_of(parts: Iterable[Part]) -> Iterator[torch.nn.Module]:
    """Those that are still there."""
    for part in parts:
        module = part.module()
        if module is not None:
            yield module
