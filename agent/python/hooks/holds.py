"""Which variables each optimizer holds.

An optimizer is often built before its model is known. Its hold is recorded
when all its tensors have names: at once after DDP, else at the model's first
call. What no model names until the optimizer steps is named by its place in
the optimizer.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from _traincheck.hyper_parameters import GroupNumbers
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.optimizer_state import OptimizerState
from _traincheck.tensor_marks import TensorMark, has_mark
from _traincheck.thread_claim import Claims, ThreadClaim
from _traincheck.written_scalars import ObjectScalars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    import torch
    from traincheck_core import Core

    from _traincheck.models import Models

    Found = list[list[list[int]]]  # variables, by group and tensor


_MOST_SEEN = 1000  # tensors that are not held now; more are gone


class Held:
    """What one optimizer holds, as last seen."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.steps = 0  # that have begun
        self.complete = False
        self.generation = -1  # of the models
        # Addresses of the tensors, by parameter group.
        self.groups: bytes | None = None
        self.recorded: dict[int, list[int]] = {}  # group -> variables, as last written
        self.recordings = 0  # how often `variables` was made anew
        self.looked_at = -1  # recordings when Sight looked at all of them
        self.variables: list[int] = []  # of all groups
        # position of each variable's tensor; None: 1 to 1
        self.order: list[int] | None = None
        # names tensors that are in no model: "SGD", "SGD#2"
        self.name: str | None = None
        self.loose: dict[int, int] = {}  # id of such a tensor -> variable
        # All such tensors so far, by id. DeepSpeed gives an optimizer its groups in
        # turn, in lists of their own: a tensor stays what it was first seen as.
        self.seen: dict[int, _Loose] = {}
        self.claims = Claims()  # of all that it holds
        self.loose_claim = ThreadClaim()
        self.group_numbers = GroupNumbers()
        self.hyper_parameters = ObjectScalars()
        self.optimizer_state = OptimizerState()

    def count_step(self, core: Core) -> None:
        """One begins. Says how many there were: who missed some goes by it."""
        core.record_mark(core.MARK_OPTIMIZER_STEPS, self.number, self.steps)
        self.steps += 1

    def others_step(self) -> None:
        """Other ranks make one: their counts and this one stay the same."""
        self.steps += 1

    def claim(self) -> bool:
        """This thread is about to use the gradients: True if it alone does."""
        return self.claims.claim()

    def state(
        self, optimizer: torch.optim.Optimizer
    ) -> tuple[list[int], list[torch.Tensor]]:
        """(variables, tensors) of all that it holds. REQUIRES: complete."""
        tensors = list(parameters_of(optimizer))
        if self.order is not None:
            tensors = [tensors[position] for position in self.order]
        return self.variables, tensors


class _Loose:
    """A tensor that is in no model."""

    def __init__(self, tensor: torch.Tensor, group: int, position: int) -> None:
        self.mark = TensorMark(tensor) if has_mark(tensor) else None
        self.group, self.position = group, position
        self.variable: int | None = None  # once it has a name

    def is_of(self, tensor: torch.Tensor) -> bool:
        return self.mark is not None and self.mark.is_of(tensor)


class Holds:
    def __init__(self, core: Core, models: Models) -> None:
        self._core = core
        self._models = models
        self._held: WeakIdentityMap[torch.optim.Optimizer, Held] = WeakIdentityMap()
        self._names: dict[str, int] = {}
        self._settled = 0  # generation of the models
        self.recordings = 0  # changes with every hold that is recorded
        # called with variables in no model, and their tensors
        self.found: Callable[[list[int], list[torch.Tensor]], None] | None = None

    def ensure(self, optimizer: torch.optim.Optimizer) -> Held:
        """The optimizer's Held, brought up to date as far as names are known."""
        return self._refresh(optimizer, name_loose=False)

    def complete(self, optimizer: torch.optim.Optimizer) -> Held:
        """As ensure; whatever has no name yet gets one."""
        return self._refresh(optimizer, name_loose=True)

    def held_variables(self) -> set[int]:
        return {variable for held in self._held.values() for variable in held.variables}

    def held_tensors(self) -> set[int]:
        """Ids of all that optimizers hold now."""
        return {id(one) for held in self._held.keys() for one in parameters_of(held)}

    def optimizers(self) -> list[torch.optim.Optimizer]:
        return self._held.keys()

    def settle(self) -> None:
        """Completes the holds that models found since the last call can name."""
        if self._settled != self._models.generation:
            self.update()

    def update(self) -> None:
        """Sees what was added to or taken from any optimizer."""
        self._settled = self._models.generation
        for optimizer in self._held.keys():
            self._refresh(optimizer, name_loose=False)

    def loose_state(self) -> tuple[list[int], list[torch.Tensor]]:
        """(variables, tensors) of this thread's parameters that are in no model."""
        variables, tensors = [], []
        for optimizer in self._held.keys():
            held = self._held.get(optimizer)
            if held is None or not held.loose or not held.loose_claim.is_mine():
                continue
            for tensor in parameters_of(optimizer):
                variable = held.loose.get(id(tensor))
                if variable is not None:
                    variables.append(variable)
                    tensors.append(tensor)
        return variables, tensors

    def _refresh(self, optimizer: torch.optim.Optimizer, name_loose: bool) -> Held:
        held = self._held.get(optimizer)
        if held is None:
            core = self._core
            held = Held(core.define_object(optimizer, core.OBJECT_OPTIMIZER))
            self._held.set(optimizer, held)
        groups = self._core.addresses(_groups(optimizer))
        generation = self._models.generation
        if held.groups != groups or held.generation != generation:
            held.complete = False
        if held.complete:
            return held
        found = self._find(optimizer, held, name_loose)
        if found is not None:
            held.groups, held.generation = groups, generation
            self._record(held, found)
        return held

    def _find(
        self, optimizer: torch.optim.Optimizer, held: Held, name_loose: bool
    ) -> Found | None:
        """Variables of each tensor of each group; None where names are missing."""
        found: Found = []
        loose: dict[int, int] = {}
        claims = {id(held.loose_claim): held.loose_claim}
        new: list[tuple[int, torch.Tensor]] = []
        unnamed = False
        for group, tensors in enumerate(_groups(optimizer)):
            found.append([])
            for position, tensor in enumerate(tensors):
                places = self._models.places_of(tensor)
                claims.update((id(part.claim), part.claim) for part, _ in places)
                variables = [variable for _, variable in places]
                if not variables:
                    one = _seen(held, tensor, group, position)
                    unnamed = unnamed or (one.variable is None and not name_loose)
                    if unnamed:
                        continue  # the others have their places, too
                    if one.variable is None:
                        one.variable = self._name(optimizer, held, one, tensor)
                        new.append((one.variable, tensor))
                    loose[id(tensor)] = one.variable
                    variables = [one.variable]
                found[-1].append(variables)
        if unnamed:
            return None
        if new and self.found is not None:
            self.found([variable for variable, _ in new], [one for _, one in new])
        held.loose = loose
        if len(held.seen) > _MOST_SEEN + len(loose):
            held.seen = {number: held.seen[number] for number in loose}
        held.claims = Claims(claims.values())
        return found

    def _name(
        self,
        optimizer: torch.optim.Optimizer,
        held: Held,
        one: _Loose,
        tensor: torch.Tensor,
    ) -> int:
        if held.name is None:
            short = type(optimizer).__name__
            self._names[short] = count = self._names.get(short, 0) + 1
            held.name = short if count == 1 else f"{short}#{count}"
        name = f"param_groups[{one.group}].params[{one.position}]"
        variable = self._core.define_variable(
            tensor,
            name,
            held.name,
            held.number,
            self._core.VARIABLE_PARAMETER,
            "",
            self._core.storage_key(tensor),
        )
        self._models.variable_names[variable] = (held.name, name)
        return variable

    def _record(self, held: Held, found: Found) -> None:
        counts = [len(variables) for group in found for variables in group]
        held.order = None
        if any(count != 1 for count in counts):
            held.order = [p for p, count in enumerate(counts) for _ in range(count)]
        held.variables = []
        for place, lists in enumerate(found):
            variables = list(chain.from_iterable(lists))
            held.variables.extend(variables)
            group = _group_of(held, variables, place)
            if held.recorded.get(group) != variables:
                self._core.define_hold(held.number, group, variables)
                held.recorded[group] = variables
        held.recordings += 1
        self.recordings += 1
        held.complete = True


def _seen(held: Held, tensor: torch.Tensor, group: int, position: int) -> _Loose:
    one = held.seen.get(id(tensor))
    if one is None or not one.is_of(tensor):
        one = held.seen[id(tensor)] = _Loose(tensor, group, position)
    return one


def _group_of(held: Held, variables: list[int], place: int) -> int:
    """The group's number: that in which its tensors were first seen."""
    for one in held.seen.values():
        if variables and one.variable == variables[0]:
            return one.group
    return place


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """All that it holds now."""
    return chain.from_iterable(_groups(optimizer))


def first_trained(optimizer: torch.optim.Optimizer) -> torch.Tensor | None:
    """The first of its parameters that requires a gradient."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad:
                return parameter
    return None


def _groups(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [group["params"] for group in optimizer.param_groups]
