"""Copies of models that are not trained: deep copies, AveragedModel, averages.

A parameter is a shadow of another where it is a deep copy of it, or where its
model has never been trained and has the same names and shapes as one that is. A copy
that was converted to another type is known by its names and shapes, too.
"""

from __future__ import annotations

import collections
import weakref
from typing import TYPE_CHECKING

import torch

from _traincheck import naming
from _traincheck.module_content import named_parameters_in, parameters_in
from _traincheck.observing import observe

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Iterable
    from typing import Any

    from traincheck_core import Args, Core

    from _traincheck.holds import Holds
    from _traincheck.models import Model
    from _traincheck.models import Models
    from _traincheck.watch import Watch

_MAX_COPIES = 100_000  # parameters
_MAX_MODULES = 10_000  # waiting for the end of a step
_MAX_SHADOWS = 2  # of one model, found by being copied; programs keep the best


class Shadows:
    def __init__(self, core: Core, models: Models, holds: Holds) -> None:
        self._core = core
        self._models = models
        self._holds = holds
        # Storage of a copy -> storage of what it was copied from.
        self._copies: collections.OrderedDict[int, int] = collections.OrderedDict()
        self._made: collections.deque[weakref.ref[torch.nn.Module]]
        self._made = collections.deque(maxlen=_MAX_MODULES)
        self._new = False  # has one been made since the last update?
        # what the shadows were last found from
        self._seen: tuple[int, int] | None = None
        # Called for each model that is found to be one, more than once.
        self.found: Callable[[Model], None] = lambda model: None

    def copied(self, parameter: torch.Tensor, copy: torch.Tensor) -> None:
        core = self._core
        target, source = core.storage_key(copy), core.storage_key(parameter)
        if target and source and target != source:
            self._copies[target] = self._copies.get(source, source)
            if len(self._copies) > _MAX_COPIES:
                self._copies.popitem(last=False)

    def module_made(self, module: torch.nn.Module) -> None:
        """Called for each module that was copied or unpickled, children first."""
        self._made.append(weakref.ref(module))
        self._new = True

    def update(self) -> None:
        """Called when a step has closed."""
        if not self._new and self._seen == self._known():
            return
        self._new = False
        self._name_copies()
        held = self._holds.held_variables()
        models = self._models.all()
        trained = [model for model in models if held & model.variables()]
        for model in models:
            if any(model is one for one in trained):
                found = {}
            else:
                # A copy in another type keeps the memory of few, or of none.
                found = max(
                    self._copied_in(model), _same_names(model, trained), key=len
                )
            self._models.define_shadows(model, found)
            if found:
                self.found(model)
        self._seen = self._known()

    def _known(self) -> tuple[int, int]:
        return self._models.generation, self._holds.recordings

    def _name_copies(self) -> None:
        """Copies of known models become models, as long as they are few."""
        made: list[torch.nn.Module] = []
        for ref in self._made:
            copy = ref()
            if copy is not None:
                made.append(copy)
        self._made.clear()
        inner: set[int] = set()
        for module in reversed(made):
            if id(module) in inner:
                continue
            inner.update(id(child) for _, child in naming.walk(module))
            if self._models.find(module) is not None:
                continue
            source = self._source_of(module)
            if source is None:
                # Also where its memory is that of a copy which is gone.
                source = self._converted_from(module)
            if source is None:
                if next(parameters_in(module), None) is not None:
                    # Of what may become known.
                    self._made.append(weakref.ref(module))
            elif self._copies_of(source) < _MAX_SHADOWS:
                model = self._models.ensure(module)
                if model is not None:
                    model.copied_from = source

    def _source_of(self, module: torch.nn.Module) -> int | None:
        """Number of the model that its parameters were copied from."""
        for _, part in naming.walk(module):
            for tensor in part._parameters.values():
                if tensor is None or self._core.storage_key(tensor) not in self._copies:
                    continue
                variable = self._original(tensor)
                if variable:
                    return self._models.root_of(variable)
        return None

    def _converted_from(self, module: torch.nn.Module) -> int | None:
        """Number of the model of the same names and shapes and other types."""
        tensors = dict(named_parameters_in(module))
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        if not shapes:
            return None
        for model in self._models.all():
            theirs = {name: tensor for name, _, tensor in model.params()}
            if shapes == {name: tensor.shape for name, tensor in theirs.items()}:
                if any(tensors[name].dtype != theirs[name].dtype for name in shapes):
                    return model.number
        return None

    def _copies_of(self, source: int) -> int:
        return sum(model.copied_from == source for model in self._models.all())

    def _original(self, tensor: torch.Tensor) -> int:
        """The variable of which it is a copy, or 0."""
        source = self._copies.get(self._core.storage_key(tensor))
        return self._models.variable_in(source) if source else 0

    def _copied_in(self, model: Model) -> dict[str, int]:
        found = {}
        for name, _, tensor in model.params():
            original = self._original(tensor)
            # Layers copied within a model are its own.
            if original and self._models.root_of(original) != model.number:
                found[name] = original
        return found


def _same_names(model: Model, trained: Iterable[Model]) -> dict[str, int]:
    """name -> variable of the model in training that has the same names."""
    shapes = {name: tensor.shape for name, _, tensor in model.params()}
    for other in trained:
        theirs = list(other.params())
        if shapes and shapes == {name: tensor.shape for name, _, tensor in theirs}:
            return {name: variable for name, variable, _ in theirs}
    return {}


def install(watch: Watch) -> None:
    def parameter_copied(
        parameter: torch.Tensor, args: Args, copy: torch.Tensor
    ) -> None:
        watch.shadows.copied(parameter, copy)

    def module_made(module: torch.nn.Module, args: Args, result: Any) -> None:
        watch.shadows.module_made(module)

    def averaged(model: torch.nn.Module, args: Args, result: Any) -> None:
        watch.models.ensure(model)

    observe(watch, torch.nn.Parameter, "__deepcopy__", after=parameter_copied)
    observe(watch, torch.nn.Module, "__setstate__", after=module_made)
    from torch.optim import swa_utils

    observe(watch, swa_utils.AveragedModel, "__init__", after=averaged)
