"""Loops that compute a loss for each batch and go backward from the last one only.

    for inputs, targets in loader:
        loss = criterion(model(inputs), targets)
    loss.backward()

The loop runs, the loss is plausible, and all batches but the last one are computed in
vain. So it is where backward stands behind a loop by its indentation, or where slices of
a batch are gone backward from under a condition that is never true.

Forwards from one line, all frames around it included, are compared from one step to the
next. Others compute several results and mean to use one of them: the best of some
hypotheses, a search or a refinement that ends with the last, a generator that is asked
for a discriminator's batches. So each call has to be given a new batch of one loader, or
another slice of one batch; none is given what an earlier call returned; there are as many
of them at each step; no other optimizer has stepped and nothing has gone backward
between them; and a choice among them would hardly have fallen on the last one so often.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from itertools import islice
from threading import get_ident
from typing import TYPE_CHECKING

import torch
from torch.nn.parallel import DataParallel

from _traincheck import naming
from _traincheck import transforms
from _traincheck.holds import parameters_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.module_content import modules_in, parameters_in
from _traincheck.sources import frames
from _traincheck.wrapping import quietly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from traincheck_core import Args, Core, Kwargs

    from _traincheck.clock import Clock
    from _traincheck.holds import Holds

    _Storage = weakref.ref[torch.UntypedStorage]
    # Of an argument that is a slice: its storage, and where in it the slice begins.
    _Slice = tuple[_Storage, int]

# Name of the scalar.
NAME = "opt.only_last_loss"

_FIRST = 32  # steps that are looked at
_EVERY = 512  # steps later: as many once more
_FEWEST = 3  # calls between two steps
_STEPS = 3  # in a row
_CHANCES = 10_000  # to one that a choice among the calls fell on the last at all steps
_CALLS = 4096  # between two steps, of a line
_PLACES = 64
_TENSORS = 16  # of a call's arguments, and of its result
_DEPTH = 3  # containers within each other
_ROOTS = 4  # outermost calls in which calls of an inner module are counted
_MODULES = 20_000  # of a model
_OPAQUE = (torch.nn.Module, type, str, bytes)


class _Call:
    """What is known of one: has anything gone backward through its result?"""

    __slots__ = ("reached",)

    def __init__(self) -> None:
        self.reached = False

    def reach(self, gradients: Any) -> None:
        """The hook of a node; it changes nothing."""
        self.reached = True


class _Row:
    """Calls of a module from one place, since the last step of any optimizer."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = weakref.ref(module)
        self.calls: list[_Call] = []
        self.is_unclear = False
        self.went_backward = False  # anything, since the first call
        self._batch = (0, 0)
        self._slices: dict[int, _Slice] = {}  # of the first call, by position
        self._offsets: dict[int, set[int]] = {}
        self._returned: dict[int, _Storage] = {}  # by id of the storage

    def add(
        self,
        given: list[torch.Tensor],
        returned: list[torch.Tensor],
        batch: tuple[int, int],
    ) -> None:
        """batch: the loader that was read last, and how often any was read."""
        is_new = self._is_new_batch(batch)
        is_new = self._is_new_slice(given) or is_new
        if self.calls and not is_new:
            self.is_unclear = True
        if self.went_backward or any(map(self._is_returned, given)):
            self.is_unclear = True
        for one in returned:
            if one.layout == torch.strided and not _is_subclass(one):
                storage = one.untyped_storage()
                self._returned[id(storage)] = weakref.ref(storage)
        call = _Call()
        self.calls.append(call)
        for one in returned:
            node = one.grad_fn
            if node is not None:
                node.register_prehook(call.reach)

    def _is_new_batch(self, batch: tuple[int, int]) -> bool:
        before, self._batch = self._batch, batch
        return batch[0] != 0 and batch[0] == before[0] and batch[1] > before[1]

    def _is_new_slice(self, given: list[torch.Tensor]) -> bool:
        is_new = False
        for position, one in enumerate(given):
            if not _is_slice(one):
                continue
            storage, offset = one.untyped_storage(), one.storage_offset()
            if not self.calls:
                self._slices[position] = weakref.ref(storage), offset
                self._offsets[position] = {offset}
            elif position in self._slices:
                offsets = self._offsets[position]
                is_same = self._slices[position][0]() is storage
                is_new = is_new or (is_same and offset not in offsets)
                offsets.add(offset)
        return is_new

    def _is_returned(self, given: torch.Tensor) -> bool:
        if given.layout != torch.strided or _is_subclass(given):
            return False
        storage = given.untyped_storage()
        known = self._returned.get(id(storage))
        return known is not None and known() is storage

    def trains_last_only(self) -> bool | None:
        """None: not known, or nothing has gone backward through them."""
        if len(self.calls) < _FEWEST:
            return None
        if any(call.reached for call in self.calls[:-1]):
            return False
        return True if self.calls[-1].reached and not self.is_unclear else None


class _Streak:
    """Steps in a row at which only the last call of a place was gone backward from."""

    def __init__(self) -> None:
        self.calls = 0  # at each step
        self.steps = 0
        self.chances = 1

    def add(self, calls: int) -> None:
        if calls != self.calls:
            self.calls, self.steps, self.chances = calls, 0, 1
        self.steps += 1
        self.chances = min(self.chances * calls, _CHANCES)

    def is_long(self) -> bool:
        return self.steps >= _STEPS and self.chances >= _CHANCES


class _Inside:
    """What an outermost module has within: a loss that is a module may call the network
    several times, slice by slice."""

    def __init__(self, module: torch.nn.Module | None) -> None:
        self.module = None if module is None else weakref.ref(module)
        self.roots = 0  # calls of the outermost one
        self.is_looped = False  # was it called several times in one of these?

    def is_asked(self) -> bool:
        return self.module is not None and (self.roots < _ROOTS or self.is_looped)


class _Hook:
    """On an inner module, while an outermost call runs."""

    def __init__(self, core: Core, take: Callable[..., None]) -> None:
        self._core = core
        self._take = take

    def __call__(
        self, module: torch.nn.Module, args: Args, kwargs: Kwargs, result: Any
    ) -> None:
        quietly(self._core, self._take, module, args, kwargs, result)

    def __reduce__(self) -> Any:
        """Of a copy that the program makes meanwhile: a hook that does nothing."""
        return getattr, (contextlib.nullcontext(), "__exit__")


class LastLosses:
    def __init__(self, core: Core, clock: Clock, holds: Holds) -> None:
        self._core = core
        self._clock = clock
        self._holds = holds
        self._steps = 0  # of all optimizers
        self._looks = True
        self._batch = (0, 0)  # the loader that was read last, and all reads
        # By the module's id, which lives as long as its row is used, and its place.
        self._rows: dict[tuple[int, int], _Row] = {}
        self._streaks: dict[int, _Streak] = {}
        self._healthy: set[int] = set()  # places that have trained with others
        self._inside: WeakIdentityMap[torch.nn.Module, _Inside] = WeakIdentityMap()
        self._within: _Inside | None = None
        self._calls_within = 0
        self._thread = 0
        self._handle: Any = None

    def asks(self) -> bool:
        """Are forwards to be told?"""
        return self._looks or self._handle is not None

    def fetched(self, loader: int) -> None:
        """Called with each batch of a loader."""
        self._batch = (loader, self._batch[1] + 1)

    def replayed(self) -> None:
        """A CUDA graph was: what it called is not seen."""
        self._rows.clear()

    def backward_begins(self) -> None:
        """Called at every outermost one."""
        for row in self._rows.values():
            row.went_backward = True

    def forward_begins(self, module: torch.nn.Module) -> None:
        """Called at outermost ones that train, on the only thread that does."""
        self._release()
        if not self._looks or not self._is_seen():
            return
        inside = self._inside.get(module)
        if inside is None:
            optimizers = self._holds.optimizers()
            if not optimizers:
                return
            held = (p for one in optimizers for p in parameters_of(one))
            trained = {id(one) for one in held if one.requires_grad}
            inside = _Inside(_inner(module, trained))
            self._inside.set(module, inside)
        inner = None if inside.module is None else inside.module()
        if inner is None or not inside.is_asked() or _compiles():
            return
        inside.roots += 1
        self._within, self._calls_within = inside, 0
        self._thread = get_ident()
        hook = _Hook(self._core, self._inner_ended)
        self._handle = inner.register_forward_hook(hook, with_kwargs=True)

    def forward_ended(
        self, args: Args, kwargs: Kwargs, result: Any, is_known: bool
    ) -> None:
        """Called at outermost ones. args: the module first. is_known: it has raised
        nothing, and no other thread trains."""
        self._release()
        if is_known and self._looks and self._is_seen():
            self._add(args[0], args[1:], kwargs, result)

    def _inner_ended(
        self, module: torch.nn.Module, args: Args, kwargs: Kwargs, result: Any
    ) -> None:
        within = self._within
        if within is None or within.module is None or within.module() is not module:
            return  # a replica, or a copy
        if self._thread == get_ident() and self._looks and self._is_seen():
            self._calls_within += 1
            self._add(module, args, kwargs, result)

    def _release(self) -> None:
        if self._handle is None or self._thread != get_ident():
            return
        handle, self._handle = self._handle, None
        handle.remove()
        if self._within is not None and self._calls_within >= _FEWEST:
            self._within.is_looped = True
        self._within = None

    def _is_seen(self) -> bool:
        """Does the code that runs now train, by itself?"""
        clock = self._clock
        if clock.inside_backward() or clock.inside_step():
            return False
        return torch.is_grad_enabled() and not transforms.running()

    def _add(
        self, module: torch.nn.Module, args: Args, kwargs: Kwargs, result: Any
    ) -> None:
        if not module.training:
            return
        with torch._C.DisableTorchFunctionSubclass():
            returned = list(islice(_tensors(result, _DEPTH), _TENSORS + 1))
            if all(one.grad_fn is None for one in returned):
                return
            place = _stack()
            row = self._row(module, place)
            if row is None:
                return
            given = list(islice(_tensors((args, kwargs), _DEPTH), _TENSORS))
            row.add(given, returned, self._batch)
            if len(returned) > _TENSORS or len(row.calls) > _CALLS:
                row.is_unclear = True

    def _row(self, module: torch.nn.Module, place: int) -> _Row | None:
        key = (id(module), place)
        row = self._rows.get(key)
        if row is not None and row.module() is module:
            return row if len(row.calls) <= _CALLS else None
        if place in self._healthy or len(self._rows) == _PLACES:
            return None
        row = self._rows[key] = _Row(module)
        return row

    def optimizer_steps(self, optimizer: torch.optim.Optimizer) -> float | None:
        """Called as its step begins. 1: so it was at the last steps; None: no line calls
        a module several times between two steps, or it is not known."""
        self._steps += 1
        if not self._looks:
            self._looks = self._steps % _EVERY == 0
            return None
        if self._steps >= _FIRST and self._steps % _EVERY >= _FIRST:
            self._looks = False
        rows, self._rows = self._rows, {}
        said: list[bool] = []
        for (_, place), row in rows.items():
            last_only = row.trains_last_only()
            if last_only and self._is_of(row, optimizer):
                if self._goes_on(place, row):
                    said.append(True)
            elif last_only is not None or place in self._streaks:
                self._streaks.pop(place, None)
            if last_only is False:
                said.append(False)
                if len(self._healthy) < _PLACES:
                    self._healthy.add(place)
        if not self._looks:
            self._streaks.clear()
        return float(any(said)) if said else None

    def _goes_on(self, place: int, row: _Row) -> bool:
        """It was so once more: often enough?"""
        streak = self._streaks.get(place)
        if streak is None:
            if len(self._streaks) == _PLACES:
                return False
            streak = self._streaks[place] = _Streak()
        streak.add(len(row.calls))
        return streak.is_long()

    def _is_of(self, row: _Row, optimizer: torch.optim.Optimizer) -> bool:
        """Does it train the module, which hands nothing on from call to call?"""
        module = row.module()
        if module is None or _keeps_tensors(module):
            return False
        held = {id(one) for one in parameters_of(optimizer)}
        return any(id(one) in held for one in parameters_in(module))


def _stack() -> int:
    """Equal for equal lines of all frames."""
    return hash(tuple((id(frame.f_code), frame.f_lineno) for frame in frames()))


def _tensors(value: Any, depth: int) -> Iterator[torch.Tensor]:
    """Those in it: in containers, and in attributes of other objects."""
    kind: type[Any] = type(value)
    if issubclass(kind, torch.Tensor):
        yield value
        return
    is_opaque = issubclass(kind, _OPAQUE)
    if depth < 0 or is_opaque:
        return
    inner: Any = ()
    if issubclass(kind, dict):
        inner = dict.values(value)
    elif issubclass(kind, list):
        inner = list.__iter__(value)
    elif issubclass(kind, tuple):
        inner = tuple.__iter__(value)
    elif kind.__dictoffset__:
        members: Any = object.__getattribute__(value, "__dict__")
        inner = members.values() if type(members) is dict else ()
    for one in islice(list(inner), _TENSORS * _TENSORS):
        yield from _tensors(one, depth - 1)


def _is_subclass(tensor: torch.Tensor) -> bool:
    return type(tensor) not in (torch.Tensor, torch.nn.Parameter)


def _is_slice(tensor: torch.Tensor) -> bool:
    """Is it some of the rows of a larger tensor?"""
    if tensor.layout != torch.strided or _is_subclass(tensor) or tensor.dim() == 0:
        return False
    base = tensor._base
    if base is None or base.dim() != tensor.dim() or base.layout != torch.strided:
        return False
    is_part = 0 < tensor.shape[0] < base.shape[0]
    same = tensor.shape[1:] == base.shape[1:] and tensor.stride() == base.stride()
    return bool(is_part and same)


def _keeps_tensors(module: torch.nn.Module) -> bool:
    """Has a part of it an attribute that is a tensor, or some in a container: perhaps
    the state of a recurrence?"""
    for part in islice(modules_in(module), _MODULES):
        for value in list(part.__dict__.values()):
            kind = type(value)
            if issubclass(kind, torch.Tensor):
                return True
            if kind in (list, tuple):
                few = islice(value, _TENSORS)
                if any(issubclass(type(one), torch.Tensor) for one in few):
                    return True
    return False


def _inner(root: torch.nn.Module, trained: set[int]) -> torch.nn.Module | None:
    """The innermost module with all that is trained; None: it is the outermost one, or
    nothing may be added to it."""
    found = root
    for _ in range(_TENSORS):
        if not _is_plain(found):
            return None
        below = [
            child
            for child in found._modules.values()
            if child is not None and trained <= set(map(id, parameters_in(child)))
        ]
        if len(below) != 1:
            break
        found = below[0]
    return None if found is root or not trained else found


def _is_plain(module: torch.nn.Module) -> bool:
    is_compiled = getattr(module, "_compiled_call_impl", None) is not None
    if is_compiled or "_orig_mod" in module._modules or naming.is_script(module):
        return False
    return not issubclass(type(module), DataParallel)


def _compiles() -> bool:
    """Has the program asked the compiler for anything? It may compile what it finds in
    the call, which a hook changes."""
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    # What is kept from it has an entry that is None.
    backends = getattr(compiler, "cached_backends", None) or {}
    return any(one is not None for one in list(backends.values()))
