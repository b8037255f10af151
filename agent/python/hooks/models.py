"""Models found without being told: names and numbers of their variables.

A model is what DDP wraps, or a module that user code calls while no other
module call is open. Its root is the module below all wrappers, so a variable
is the same whether it is reached through a wrapper or directly.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

from _traincheck import naming
from _traincheck import topology
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.parts import Part
from _traincheck.thread_claim import Claims, ThreadClaim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from traincheck_core import Core

    Place = tuple[Part, str, int]  # key and variable


class Model:
    """One root with its parts."""

    def __init__(
        self, root: weakref.ref[torch.nn.Module], name: str, number: int
    ) -> None:
        self.root = root  # weak reference
        self.name = name  # "Net", "Net#2"
        self.number = number  # of the root object
        self.parts: list[Part] = []  # all, including parts that an earlier model named
        self.own: list[Part] = []  # those that this model named
        self.claims = Claims()  # of `parts`
        self.named: dict[
            str, tuple[int, int, int]
        ] = {}  # qualified name -> (variable, id of tensor, epoch)
        self.lazy = False  # has parameters without a shape yet
        self.shadow_of: dict[
            str, int
        ] = {}  # qualified name -> variable of which it is a copy
        self.copied_from: int | None = None  # number of the root that it is a copy of

    def variables(self) -> set[int]:
        return {variable for part in self.own for _, variable in part.params}

    def params(self) -> Iterator[tuple[str, int, torch.Tensor]]:
        """Yields (qualified name, variable, tensor)."""
        for part in self.own:
            module = part.module()
            if module is None:
                continue
            for key, variable in part.params:
                tensor = module._parameters.get(key)
                if tensor is not None:
                    yield naming.join(part.path, key), variable, tensor

    def is_copy(self) -> bool:
        return bool(self.shadow_of) or self.copied_from is not None

    def claim(self) -> None:
        """This thread is about to train with it."""
        self.claims.claim()


class Models:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._by_module: WeakIdentityMap[torch.nn.Module, tuple[Model, Part]]
        self._by_module = WeakIdentityMap()
        self._roots: WeakIdentityMap[torch.nn.Module, Model] = WeakIdentityMap()
        self._by_tensor: dict[int, list[Place]] = {}  # by id of tensor
        self._names: dict[str, int] = {}  # class name -> instances so far
        # variable -> (root class, name)
        self.variable_names: dict[int, tuple[str, str]] = {}
        self._roots_of: dict[int, int] = {}  # variable -> number of its root
        self._storages: dict[int, int] = {}  # variable -> key of its storage
        self._by_storage: dict[int, int] = {}  # key of a storage -> variable
        self.found: Callable[
            [list[Part]], None
        ] | None = None  # called with parts whose variables are new
        # Changes with every variable that is defined.
        self.generation = 0

    def find(self, module: torch.nn.Module) -> Model | None:
        """The model that this module belongs to, or None."""
        row = self._by_module.get(naming.unwrap(module)[0])
        return row[0] if row is not None else None

    def held_by(self, model: Model) -> Model:
        """The copy that the class of this model holds and calls, if it is no more than
        that; else the model itself."""
        root = model.root()
        if root is None or model.shadow_of or len(model.own) > 1:
            return model
        rows = (self._by_module.get(child) for child in root._modules.values() if child)
        copies = [row[0] for row in rows if row is not None and row[0].shadow_of]
        return copies[0] if len(copies) == 1 else model

    def ensure(self, module: torch.nn.Module, name: str | None = None) -> Model | None:
        """As find; a module with variables becomes a model, called by its class
        or by `name`."""
        # Most roots are no wrappers and known. What is below DDP is another
        # model than the one that DDP may be a part of.
        row = self._by_module.get(module)
        if row is not None and not naming.is_replicating(module):
            return row[0]
        if _is_empty(module):  # an activation, a loss: often called, and never known
            return None
        root = naming.unwrap(module)[0]
        row = self._by_module.get(root)
        if row is not None:
            return row[0]
        if not _is_model(root):
            return None
        return self._register(root, name)

    def refresh(self, model: Model) -> bool:
        """Sees replaced parameters and new submodules.

        False: the modules hold other tensors for the time of this call
        (torch.func.functional_call), which are not the model's.
        """
        changed = self._core.changed_parts(model.own)
        if any(part.lent() for part in changed):
            return False
        root = model.root()
        if (changed or model.lazy) and root is not None:
            self._scan(model, root)
        return True

    def parts_below(self, module: torch.nn.Module) -> list[Part]:
        """Parts of the known model that this module is, or is a part of."""
        rows = (self._by_module.get(child) for _, child in naming.walk(module))
        return [row[1] for row in rows if row is not None]

    def all(self) -> list[Model]:
        return self._roots.values()

    def root_of(self, variable: int) -> int | None:
        return self._roots_of.get(variable)

    def variable_in(self, storage: int) -> int:
        """The variable whose tensor lies in the storage of this key, or 0."""
        variable = self._by_storage.get(storage, 0)
        return variable if self._storages.get(variable) == storage else 0

    def set_storage(self, variable: int, storage: int) -> None:
        if storage:
            former = self._storages.get(variable)
            if former != storage:
                if former is not None:
                    self._by_storage.pop(former, None)
            self._storages[variable] = storage
            # A tied weight goes by the first of its names.
            if not self.variable_in(storage):
                self._by_storage[storage] = variable

    def define_shadows(self, model: Model, shadow_of: dict[str, int]) -> None:
        """shadow_of: qualified name -> variable of which it is a copy."""
        if shadow_of == model.shadow_of:
            return
        model.shadow_of = shadow_of
        for part in model.own:
            module = part.module()
            if module is None:
                continue
            for key, _ in part.params:
                tensor = module._parameters.get(key)
                if tensor is not None:
                    kind = self._core.VARIABLE_PARAMETER
                    self._define(model, part, key, tensor, kind)

    def places_of(self, tensor: torch.Tensor) -> list[tuple[Part, int]]:
        """(part, variable) of each name that this tensor has now."""
        found = []
        for part, key, variable in self._by_tensor.get(id(tensor), ()):
            module = part.module()
            if module is not None and module._parameters.get(key) is tensor:
                found.append((part, variable))
        return found

    def _register(self, root: torch.nn.Module, name: str | None = None) -> Model:
        short = name or naming.own_class(type(root)).__name__
        self._names[short] = count = self._names.get(short, 0) + 1
        number = self._core.define_object(root, self._core.OBJECT_MODULE)
        name = short if count == 1 else f"{short}#{count}"
        model = Model(weakref.ref(root), name, number)
        self._roots.set(root, model)
        self._scan(model, root)
        return model

    def _scan(self, model: Model, root: torch.nn.Module) -> None:
        retired = set(map(id, model.own))
        former = {part.path: part for part in model.own}
        model.parts, model.own, model.lazy = [], [], False
        for path, module in naming.walk(root):
            if naming.is_replicating(module):
                self._scan_replicated(model, path, module)
                continue
            row = self._by_module.get(module)
            if row is not None and row[0] is not model:
                model.parts.append(row[1])
                continue
            part = self._define_part(model, module, path)
            model.parts.append(part)
            model.own.append(part)
        model.claims = Claims(part.claim for part in model.parts)
        self._drop_stale_tensors(retired)
        self.generation += 1
        new = [part for part in model.own if not part.same_as(former.get(part.path))]
        if new and self.found is not None:
            self.found(new)

    def _scan_replicated(
        self, model: Model, path: str, wrapper: torch.nn.Module
    ) -> None:
        """What DDP wraps is a model of its own, unless this one named it before.

        Its forward begins later than this model's: it is no part of it.
        """
        inner = naming.unwrap(wrapper)[0]
        row = self._by_module.get(inner)
        if row is None or row[0] is not model:
            self.ensure(wrapper)
            return
        for below, module in naming.walk(inner):
            if not naming.is_replicating(module):
                part = self._define_part(model, module, naming.join(path, below))
                model.own.append(part)

    def _define_part(self, model: Model, module: torch.nn.Module, path: str) -> Part:
        core = self._core
        if path:
            core.define_object(module, core.OBJECT_MODULE, path, model.number)
        known = self._by_module.get(module)
        claim = known[1].claim if known is not None else ThreadClaim()
        part = Part(core, module, path, claim)
        self._by_module.set(module, (model, part))
        for key, tensor in module._parameters.items():
            if tensor is None:
                continue
            if _is_lazy(tensor):
                model.lazy = True
                continue
            variable = self._define(model, part, key, tensor, core.VARIABLE_PARAMETER)
            part.params.append((key, variable))
            if naming.is_sharded(tensor):
                part.sharded.add(key)
            row = (part, key, variable)
            self._by_tensor.setdefault(id(tensor), []).append(row)
        for key, tensor in module._buffers.items():
            if isinstance(tensor, torch.Tensor) and not _is_lazy(tensor):
                variable = self._define(model, part, key, tensor, core.VARIABLE_BUFFER)
                part.buffers.append((key, variable))
        return part

    def _define(
        self, model: Model, part: Part, key: str, tensor: torch.Tensor, kind: int
    ) -> int:
        name = naming.join(part.path, key)
        known = model.named.get(name)
        epoch = 0
        if known is not None:
            replaced = known[1] != id(tensor)
            # Models may assign a new buffer every step: that is an update.
            epoch = known[2] + (replaced and kind == self._core.VARIABLE_PARAMETER)
        storage = self._core.storage_key(tensor)
        variable = self._core.define_variable(
            tensor,
            name,
            model.name,
            model.number,
            kind,
            naming.class_name(naming.own_class(type(part.module()))),
            storage,
            epoch,
            topology.attributes(tensor, storage),
            model.shadow_of.get(name, 0),
        )
        self.set_storage(variable, storage)
        self._roots_of[variable] = model.number
        model.named[name] = (variable, id(tensor), epoch)
        self.variable_names[variable] = (model.name, name)
        return variable

    def _drop_stale_tensors(self, retired: set[int]) -> None:
        for number, rows in list(self._by_tensor.items()):
            live = [
                row for row in rows if id(row[0]) not in retired and _still(row, number)
            ]
            if len(live) != len(rows):
                if live:
                    self._by_tensor[number] = live
                else:
                    self._by_tensor.pop(number, None)


def _still(row: Place, number: int) -> bool:
    """Is the row's tensor still the one of this id?"""
    part, key, _ = row
    module = part.module()
    if module is None:
        return False
    tensor = module._parameters.get(key)
    return tensor is not None and id(tensor) == number


def _is_empty(module: torch.nn.Module) -> bool:
    if naming.is_script(module):
        return False
    return not (module._modules or module._parameters or module._buffers)


def _is_model(root: torch.nn.Module) -> bool:
    """Has it variables of its own? DataParallel's replicas borrow theirs."""
    if naming.is_script(root) or "_is_replica" in root.__dict__:
        return False
    for _, module in naming.walk(root):
        if naming.is_replicating(module):
            return True
        if any(value is not None for value in module._parameters.values()):
            return True
        if any(value is not None for value in module._buffers.values()):
            return True
    return False


_is_lazy = torch.nn.parameter.is_lazy
