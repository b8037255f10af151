"""Options of parameter groups that do not do what they were made for.

Weight decay on all biases and scales and on no matrix but tables of embeddings and
positions, which many lists leave out, too: the two lists were swapped. An
"lr_scale" of groups that all have one rate: torch's optimizers and schedulers do not know
such an option, and nothing else has multiplied the rates by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.hyper_parameters import number_of, rates_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.own_code import codes_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from _traincheck.models import Models

# Names of the scalars.
DECAYS_VECTORS = "opt.decays_vectors_only"
SCALE_UNUSED = "opt.rate_scale_unused"

_LEAST = 2  # vectors, and matrices
_RATE = ("lr", "rate")  # in names of options
_SCALE = ("scale", "mult", "factor", "ratio")
# Of bounds and ends of a schedule, which are reached late or never.
_BOUNDS = frozenset(("min", "max", "final", "end", "floor", "decay", "gamma"))
_HABIT = 2  # looks: a schedule by hand may set the rates after the first step
# In names of parameters that are no weights of a layer.
_TABLES = ("emb", "pos", "token")


class GroupOptions:
    def __init__(self, models: Models) -> None:
        self._models = models
        # Looks in a row at which a scale of the rate was not used.
        self._unused: WeakIdentityMap[torch.optim.Optimizer, int] = WeakIdentityMap()

    def look(
        self, optimizer: torch.optim.Optimizer
    ) -> Iterator[tuple[str, float | None]]:
        """Called at some steps, as they begin. 1: it is so; None: it cannot be."""
        yield DECAYS_VECTORS, self._decays_vectors_only(optimizer)
        unused = _leaves_scale_unused(optimizer)
        if unused is None:
            return
        habit = (self._unused.get(optimizer) or 0) + 1 if unused else 0
        self._unused.set(optimizer, habit)
        if not unused or habit >= _HABIT:
            yield SCALE_UNUSED, float(unused)

    def _decays_vectors_only(self, optimizer: torch.optim.Optimizer) -> float | None:
        """None: some groups must decay, others not, and both kinds of parameters be
        there."""
        # Of (is it a matrix or more, does it decay), how many there are.
        counts = {(m, d): 0 for m in (False, True) for d in (False, True)}
        matrices: list[torch.Tensor] = []  # that decay
        for group in optimizer.param_groups:
            decay = number_of(group.get("weight_decay"))
            if decay is None:
                return None
            for parameter in group["params"]:
                if parameter.requires_grad:
                    counts[parameter.dim() > 1, decay > 0] += 1
                    if parameter.dim() > 1 and decay > 0:
                        matrices.append(parameter)
        vectors = counts[False, True] + counts[False, False]
        others = counts[True, True] + counts[True, False]
        decayed = counts[False, True] + counts[True, True]
        if min(vectors, others) < _LEAST or decayed in (0, vectors + others):
            return None
        if counts[False, False] or counts[True, False] < _LEAST:
            return 0.0
        return float(all(map(self._is_table, matrices)))

    def _is_table(self, parameter: torch.Tensor) -> bool:
        """Is it one of embeddings or positions, and no weight of a layer?"""
        for part, _ in self._models.places_of(parameter):
            module = part.module()
            if module is None:
                continue
            if issubclass(type(module), torch.nn.Embedding):
                return True
            names = [k for k, one in module._parameters.items() if one is parameter]
            if any(word in name for name in names for word in _TABLES):
                return True
        return False


def _leaves_scale_unused(optimizer: torch.optim.Optimizer) -> bool | None:
    """Have groups whose scales of the rate differ one rate all the same? None: there is
    no such option, or the optimizer's own code reads it."""
    groups = optimizer.param_groups
    if len(groups) < 2:
        return None
    rates = rates_of(groups)
    if len(rates) < len(groups) or min(rates) <= 0:
        return None
    names = {name for group in groups for name in group if _is_scale(name)}
    for name in names.difference(getattr(optimizer, "defaults", ())):
        scales = {number_of(group.get(name, 1.0)) for group in groups}
        if len(scales) > 1 and None not in scales and not _reads(optimizer, name):
            return len(set(rates)) == 1
    return None


def _is_scale(name: Any) -> bool:
    return (
        isinstance(name, str)
        and any(word in name for word in _RATE)
        and any(word in name for word in _SCALE)
        and _BOUNDS.isdisjoint(name.lower().split("_"))
    )


def _reads(optimizer: torch.optim.Optimizer, name: str) -> bool:
    return any(name in code.co_consts for code in codes_of(type(optimizer)))
