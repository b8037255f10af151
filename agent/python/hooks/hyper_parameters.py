"""Numbers of an optimizer's parameter groups: lr, betas[0], weight_decay, ...
And how far the counters in its state can count.

One that is no number any more, or that cannot be read without waiting for a
device, is not known.
"""

from __future__ import annotations

import numbers
from operator import is_
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from traincheck_core import Scalars

_PLAIN = frozenset((float, int, bool))
_MANTISSA = {
    torch.bfloat16: 8.0,
    torch.float16: 11.0,
    torch.float32: 24.0,
    torch.float64: 53.0,
    torch.int32: 31.0,
    torch.int64: 63.0,
}
_PYTHON_BITS = 53.0
_LEAST_HALF = 2.0**-25  # what is less rounds to zero in float16
_SKIPPED = frozenset((type(None), str, dict))
_CONSTANT = _PLAIN | _SKIPPED


class GroupNumbers:
    """{(name, position of the group): float} of one optimizer."""

    def __init__(self) -> None:
        self._found: Scalars = {}
        # Names and values of each group when they were read; none where the same
        # values can be other numbers later (tensors, lists).
        self._seen: list[tuple[list[str], list[Any]]] = []

    def of(self, optimizer: torch.optim.Optimizer) -> Scalars:
        groups = optimizer.param_groups
        if len(groups) != len(self._seen) or not all(map(_are, groups, self._seen)):
            self._seen = []
            self._found = _numbers_of(groups)
            if all(map(_is_constant, groups)):
                self._seen = [(list(group), _values(group)) for group in groups]
        return self._found.copy()


def _numbers_of(groups: list[dict[str, Any]]) -> Scalars:
    found = {}
    for position, group in enumerate(groups):
        for name, value in group.items():
            kind = type(value)
            if kind in _PLAIN:
                found[name, position] = float(value)
            elif kind not in _SKIPPED and name != "params":
                found.update(_numbers_in(name, value, position))
    return found


def _is_constant(group: dict[str, Any]) -> bool:
    return all(
        name == "params"
        or type(value) in _CONSTANT
        or (type(value) is tuple and _PLAIN.issuperset(map(type, value)))
        for name, value in group.items()
    )


def _are(group: dict[str, Any], seen: tuple[list[str], list[Any]]) -> bool:
    """Has it these names and values, each the very one?"""
    names, values = seen
    if len(group) != len(names) or not all(map(is_, group, names)):
        return False
    return all(map(is_, _values(group), values))


def _values(group: dict[str, Any]) -> list[Any]:
    """All but its tensors, which must not be kept."""
    return [None if name == "params" else one for name, one in group.items()]


def counter_bits(optimizer: torch.optim.Optimizer) -> float | None:
    """Its counter of steps is exact up to 2 to the power of this; None: none."""
    state = getattr(optimizer, "state", None)
    entry = next(iter(state.values()), None) if isinstance(state, dict) else None
    counter = entry.get("step") if isinstance(entry, dict) else None
    if type(counter) is torch.Tensor:
        return _MANTISSA.get(counter.dtype)
    return _PYTHON_BITS if type(counter) in (int, float) else None


def epsilon_vanishes(optimizer: torch.optim.Optimizer) -> bool | None:
    """Is a group's eps zero in the type of its parameters? None: there is no eps.

    Fused steps, and optimizers that are not torch's, may compute in another type.
    """
    found: bool | None = None
    for group in optimizer.param_groups:
        eps, params = group.get("eps"), group["params"]
        if not isinstance(eps, float) or eps <= 0 or not params or group.get("fused"):
            continue
        low = params[0].dtype == torch.float16 and _is_of_torch(optimizer)
        found = bool(found) or (low and eps < _LEAST_HALF)
    return found


def rates_of(groups: Any) -> list[float]:
    """The learning rates of parameter groups; those that cannot be read left out."""
    rates = [number_of(group.get("lr")) for group in groups or ()]
    return [rate for rate in rates if rate is not None]


def has_empty_group(optimizer: torch.optim.Optimizer) -> bool | None:
    """Does a rate of its own wait for parameters that never came? None: there is one
    group alone. An empty group that shares its rate with another (one without weight
    decay) is ordinary."""
    groups = optimizer.param_groups
    if len(groups) < 2:
        return None
    used = rates_of(group for group in groups if group["params"])
    unused = rates_of(group for group in groups if not group["params"])
    return not set(unused) <= set(used)


def _is_of_torch(optimizer: torch.optim.Optimizer) -> bool:
    return type(optimizer).__module__.startswith("torch.optim.")


def _numbers_in(
    name: str, value: Any, position: int
) -> Iterator[tuple[tuple[str, int], float]]:
    """Of a value that is no plain number; elements of tuples as "betas[0]"."""
    rows = {name: value}
    if type(value) in (tuple, list):
        rows = {f"{name}[{index}]": item for index, item in enumerate(value)}
    for key, item in rows.items():
        number = number_of(item)
        if number is not None:
            yield (key, position), number


def number_of(value: Any) -> float | None:
    """As a float; None: it is no number, or it is on a device."""
    if isinstance(value, torch.Tensor):
        # Reading what is on a GPU would wait for it.
        if type(value) is torch.Tensor and value.is_cpu and value.numel() == 1:
            return None if value.is_complex() else float(value.item())
        return None
    return float(value) if isinstance(value, numbers.Real) else None
