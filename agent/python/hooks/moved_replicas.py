"""Parameters that were moved or replaced after their model was wrapped.

DistributedDataParallel puts its hooks where the gradients of each parameter are added
up, once, when it is made. Module.to, double or half then give a parameter another place
for that, or the module another parameter: the wrapper waits at the old one, says
nothing, and averages no gradient of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.holds import parameters_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.looks import looks_at
from _traincheck.module_content import named_parameters_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from torch.nn.parallel import DistributedDataParallel as DDP

# Name of the scalar.
NAME = "opt.replicas_moved"

_MARK = "traincheck"  # in the dictionary of a node of autograd's
_MOST = 4096  # parameters of a wrapper that are looked at
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class _Row:
    """One optimizer."""

    def __init__(self) -> None:
        self.steps = 0
        self.said: bool | None = None


class MovedReplicas:
    def __init__(self) -> None:
        # Names of the parameters that each wrapper was given to average.
        self._names: WeakIdentityMap[DDP, set[str]] = WeakIdentityMap()
        self._rows: WeakIdentityMap[torch.optim.Optimizer, _Row] = WeakIdentityMap()

    def wrapped(self, wrapper: DDP) -> None:
        """Called with each wrapper whose group has several ranks, as it is made."""
        if getattr(wrapper, "mixed_precision", None) is not None:
            return  # exchanges the data of its parameters around each forward
        names = set()
        for name, parameter in _trained(wrapper):
            node = _node_of(parameter)
            if node is not None:
                node.metadata[_MARK] = True
                names.add(name)
        if names:
            self._names.set(wrapper, names)

    def steps(self, optimizer: torch.optim.Optimizer) -> bool | None:
        """Called as its step begins: has it a gradient of such a parameter? None: it
        holds no replicas, or nobody looked."""
        if len(self._names) == 0:
            return None
        row = self._rows.get(optimizer)
        if row is None:
            row = _Row()
            self._rows.set(optimizer, row)
        number, row.steps = row.steps, row.steps + 1
        if looks_at(number):
            held = set(map(id, parameters_of(optimizer)))
            found = [self._are_moved(wrapper, held) for wrapper in self._names.keys()]
            known = [each for each in found if each is not None]
            row.said = any(known) if known else None
        return row.said

    def _are_moved(self, wrapper: DDP, held: set[int]) -> bool | None:
        """None: none of the parameters is held, or has a gradient."""
        names, known = self._names.get(wrapper) or set(), False
        for name, parameter in _trained(wrapper):
            if id(parameter) in held and name in names and parameter.grad is not None:
                node = _node_of(parameter)
                if node is not None:
                    if _MARK not in node.metadata:
                        return True
                    known = True
        return False if known else None


def _trained(wrapper: DDP) -> Iterator[tuple[str, torch.Tensor]]:
    """Those that it averages, by name."""
    ignored = getattr(wrapper, "parameters_to_ignore", ())
    for count, (name, parameter) in enumerate(named_parameters_in(wrapper.module)):
        if count == _MOST:
            return
        if parameter.requires_grad and name not in ignored:
            yield name, parameter


def _node_of(parameter: torch.Tensor) -> Any:
    """Where its gradients are added up; None: not known."""
    if type(parameter) not in _PLAIN:
        return None
    with torch.enable_grad(), torch._C.DisableTorchFunction():
        node = torch.autograd.graph.get_gradient_edge(parameter).node
    return node if hasattr(node, "metadata") else None
