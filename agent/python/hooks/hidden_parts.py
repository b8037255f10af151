"""Parts of models that torch does not know as such.

`layer.requires_grad = False` sets an attribute of the module that nothing reads: its
parameters go on training. Modules and parameters in a plain list or dictionary are no
part of the model: `parameters()` does not give them, no optimizer gets them. A layer
with parameters that is made within a forward is a new one each time. `[layer] * 6` is
one layer under six names. What is unfrozen or added after the optimizer was made is not
in it. A copy of a model that is trained by hand for a while needs no optimizer.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from itertools import chain
from typing import TYPE_CHECKING

import torch

from _traincheck.holds import parameters_of
from _traincheck.left_out_parts import LeftOutParts
from _traincheck.left_out_parts import NAME as PART_LEFT_OUT
from _traincheck.left_out_weights import LeftOutWeights
from _traincheck.module_content import parameters_in
from _traincheck.observing import observe
from _traincheck.parts import modules_of
from _traincheck.plain_tensors import NAME as NOT_PARAMETER
from _traincheck.plain_tensors import PlainTensors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from traincheck_core import Args, Core, Kwargs, Scalars

    from _traincheck.device_values import DeviceValues
    from _traincheck.holds import Holds
    from _traincheck.models import Model, Models
    from _traincheck.parts import Part
    from _traincheck.watch import Watch

_LOOKS = 3  # steps after something new
_MOST = 256  # entries of a list that are looked at
_SPELT = "requires_grad"
_LIKE = 0.85  # of difflib: require_grad, requires_grads, and not requires_grad_sync
_LONGEST = 2 * len(_SPELT)  # names that are compared
_LISTS = (torch.nn.ModuleList, torch.nn.Sequential)
_OF_TORCH = frozenset(torch.nn.Module().__dict__)
# Steps after which what a model needs has been made.
_SETTLED = 1

FROZEN_IN_VAIN = ("opt.frozen_in_vain", 0)
HIDDEN = ("opt.parts_hidden", 0)
MADE_IN_FORWARD = ("opt.layers_made_in_forward", 0)
REPEATED = ("opt.layers_repeated", 0)
LEFT_OUT = ("opt.late_left_out", 0)

_EVERY = 16  # steps after which parameters are looked at again
_COUNTS = 2  # steps after which those that are trained are counted
_LOW_PRECISION = (torch.bfloat16, torch.float16)
_THAWS = 32  # that are looked at: others freeze and thaw in each step


class HiddenParts:
    def __init__(
        self, core: Core, models: Models, holds: Holds, values: DeviceValues
    ) -> None:
        self.plain_tensors = PlainTensors(values)
        self._left_out_parts = LeftOutParts(models)
        self._left_out_weights = LeftOutWeights(models, values)
        self._core = core
        self._models = models
        self._holds = holds
        self._steps = 0
        self._generation = -1  # of the models when they were looked at
        self._looks = 0
        # Ids of trained parameters that no optimizer held at first, and of those
        # that one held once: left out on purpose, as far as is known.
        self._left_out: set[int] | None = None
        self._begun: set[int] = set()  # numbers of models that an optimizer held
        self._known: set[int] = set()  # numbers of the models at the last step
        self._forwards = 0  # open outermost ones that train
        self._made = 0  # layers within forwards, since a step
        self._has_made = False
        self._trained = 0  # parameters that require a gradient
        self._thaws = 0
        self._said: Scalars = {}

    def forward_begins(self) -> None:
        self._forwards += 1

    def forward_ended(self, module: torch.nn.Module, result: Any) -> None:
        self._forwards = max(0, self._forwards - 1)
        self._left_out_weights.forward_ended(module, result)

    def optimizer_made(self) -> None:
        """Much is frozen and thawed just before."""
        self._looks = 0
        self._left_out_parts.optimizer_made()

    def loads(self, module: torch.nn.Module, state: Any) -> None:
        """Called when a module has taken over a state."""
        self._left_out_parts.loads(module, state)

    def registers(self, module: torch.nn.Module, parameter: Any) -> None:
        """Called before a module gets a parameter, or a place for one: None."""
        if parameter is None:
            return
        if self._forwards > 0 and self._models.find(module) is None:
            self._made += 1

    def optimizer_steps(self) -> Scalars:
        """What is to be said at a step, new or not."""
        self._steps += 1
        self._has_made |= self._steps > _SETTLED and self._made > 0
        if self._has_made:
            self._said[MADE_IN_FORWARD] = float(self._made > 0)
        self._made = self._forwards = 0
        if self._generation != self._models.generation:
            self._generation, self._looks = self._models.generation, 0
        if self._looks < _LOOKS:
            self._looks += 1
            self._said.update(self._look())
        not_parameter = self.plain_tensors.is_found()  # values may come later
        if not_parameter is not None:
            self._said[NOT_PARAMETER] = not_parameter
        if self._left_out_parts.looks():
            self._left_out_parts.step_begins(self._held_ids(), self._doubled_ids())
        if self._left_out_weights.looks():
            loaded = self._left_out_parts.loaded
            self._left_out_weights.step_begins(self._held_ids(), loaded)
        part_left_out = self._left_out_weights.is_found()
        part_left_out = part_left_out or self._left_out_parts.is_found()
        if part_left_out is not None:
            self._said[PART_LEFT_OUT] = part_left_out
        often = self._looks < _LOOKS or self._steps % _EVERY == 0
        if self._has_thawed() or often:
            self._look_for_late()
        self._known = {model.number for model in self._models.all()}
        return dict(self._said)

    def _has_thawed(self) -> bool:
        """Do more parameters require a gradient than when they were last counted?"""
        if self._steps % _COUNTS or self._thaws >= _THAWS:
            return False
        before, self._trained = self._trained, 0
        for model in self._models.all():
            self._trained += self._core.count_trained(model.own)
        thawed = 0 < before < self._trained
        self._thaws += thawed
        return thawed

    def _look_for_late(self) -> None:
        held = self._held_ids()
        frozen = {
            id(parameter)
            for parameter in self._parameters(self._models.all())
            if not parameter.requires_grad
        }
        trained = self._trained_of(self._settled_models())
        if self._left_out is None:
            self._left_out = trained.keys() - held
        self._left_out |= self._left_out_as_they_begin(held)
        # What was frozen, and in no optimizer any more, and trains again was thawed.
        self._left_out = (self._left_out - frozen) | held
        late = trained.keys() - held - self._left_out
        late -= self._updated_by_copies([trained[one] for one in late])
        if late or LEFT_OUT in self._said:
            self._said[LEFT_OUT] = float(bool(late))

    def _trained_of(self, models: list[Model]) -> dict[int, torch.Tensor]:
        """By their ids."""
        return {
            id(parameter): parameter
            for parameter in self._parameters(models)
            if parameter.requires_grad and parameter.grad is not None
        }

    def _left_out_as_they_begin(self, held: set[int]) -> set[int]:
        """Ids of what the optimizer of a later model was not given: some is left out
        on purpose, as with the models of the first step."""
        left_out: set[int] = set()
        for model in self._models.all():
            if model.number in self._begun:
                continue
            trained = self._trained_of([model])
            if not held.isdisjoint(trained):
                self._begun.add(model.number)
                left_out |= trained.keys() - held
        return left_out

    def _updated_by_copies(self, late: list[torch.Tensor]) -> set[int]:
        """Ids of those in a low precision, beside copies of which an optimizer holds:
        the program updates these, and writes them back."""
        low = [one for one in late if one.dtype in _LOW_PRECISION]
        if not low:
            return set()
        known = set(map(id, self._parameters(self._models.all())))
        copies = {
            tuple(tensor.shape)
            for optimizer in self._holds.optimizers()
            for tensor in parameters_of(optimizer)
            if id(tensor) not in known and tensor.dtype == torch.float32
        }
        return {id(one) for one in low if tuple(one.shape) in copies}

    def _settled_models(self) -> list[Model]:
        """Without copies, and without what was made since the last step: a learner that
        lives for one step is a copy that nobody knows as such yet."""
        is_first = self._left_out is None
        return [
            model
            for model in self._models.all()
            if is_first or (model.number in self._known and not model.is_copy())
        ]

    def _parameters(self, models: list[Model]) -> Iterator[torch.Tensor]:
        for module in chain.from_iterable(modules_of(model.own) for model in models):
            yield from (t for t in module._parameters.values() if t is not None)

    def _look(self) -> Scalars:
        vain, hidden, repeated = False, None, None
        held: set[int] | None = None
        for model in self._models.all():
            # Also parts that an earlier model has left, which is gone.
            left = (part.module() for part in model.parts)
            vain = vain or any(one is not None and _is_frozen(one) for one in left)
            for part in model.own:
                module = part.module()
                if module is None:
                    continue
                if isinstance(module, _LISTS) and len(module) > 1:
                    repeated = bool(repeated) or _repeats(module)
                for parameter in _hidden_in(module):
                    if held is None:
                        held = self._held()
                    trained = parameter.requires_grad and parameter.grad is not None
                    hidden = bool(hidden) or (trained and id(parameter) not in held)
        scalars: Scalars = {FROZEN_IN_VAIN: float(vain)}
        if hidden is not None:
            scalars[HIDDEN] = float(hidden)
        if repeated is not None:
            scalars[REPEATED] = float(repeated)
        every = (modules_of(model.own) for model in self._models.all())
        self.plain_tensors.step_begins(chain.from_iterable(every), held or self._held())
        return scalars

    def _held(self) -> set[int]:
        """Ids of what optimizers hold, and of what the models know."""
        return self._held_ids().union(map(id, self._parameters(self._models.all())))

    def _held_ids(self) -> set[int]:
        return {
            id(tensor)
            for optimizer in self._holds.optimizers()
            for tensor in parameters_of(optimizer)
        }

    def _doubled_ids(self) -> set[int]:
        """Of what one optimizer holds twice."""
        doubled: set[int] = set()
        for optimizer in self._holds.optimizers():
            once: set[int] = set()
            for one in map(id, parameters_of(optimizer)):
                (doubled if one in once else once).add(one)
        return doubled


def _is_frozen(module: torch.nn.Module) -> bool:
    """In vain: it is trained."""
    attributes = module.__dict__
    # The second would be the name of the method.
    if any(attributes.get(name) is False for name in (_SPELT, f"{_SPELT}_")):
        return any(
            parameter.requires_grad and parameter.grad is not None
            for parameter in parameters_in(module)
        )
    return any(
        value is False and _is_misspelt(name)
        for parameter in module._parameters.values()
        if parameter is not None and parameter.requires_grad
        for name, value in getattr(parameter, "__dict__", {}).items()
    )


def _is_misspelt(name: Any) -> bool:
    if type(name) is not str or len(name) > _LONGEST or not name.startswith("re"):
        return False
    return SequenceMatcher(None, name, _SPELT).ratio() > _LIKE


def _repeats(module: torch.nn.Module) -> bool:
    """Does it hold one layer with parameters twice, one after the other?"""
    children = list(module._modules.values())
    return any(
        one is other and next(parameters_in(one), None) is not None
        for one, other in zip(children, children[1:])
        if one is not None
    )


def _hidden_in(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    for name, value in module.__dict__.items():
        if name in _OF_TORCH:
            continue
        entries: Any = ()
        if type(value) in (list, tuple):
            entries = value[:_MOST]
        elif type(value) is dict and len(value) <= _MOST:
            entries = list(value.values())
        for entry in entries:
            if isinstance(entry, torch.nn.Parameter):
                yield entry
            elif isinstance(entry, torch.nn.Module):
                yield from parameters_in(entry)


def install(watch: Watch) -> None:
    def registers(module: torch.nn.Module, args: Args, kwargs: Kwargs) -> None:
        parameter = args[1] if len(args) > 1 else kwargs.get("param")
        watch.hidden_parts.registers(module, parameter)

    observe(watch, torch.nn.Module, "register_parameter", before=registers)
