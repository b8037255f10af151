"""Optimizers whose loaded state belongs to other parameters.

A model finds its parameters in a file by name, an optimizer finds its moments by
position. Where the model is built in another order than the one that was saved, each
parameter gets the moments of another, without a word if the shapes fit. The order of
the names in the file is that of the model that was saved.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch

from _traincheck.identity_map import WeakIdentityMap
from _traincheck.module_content import named_parameters_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from _traincheck.awake import Awake

    Mark = tuple[int, int, torch.dtype]

_FILES = 4  # that were read last
_DEPTH = 4  # dictionaries within each other
_ENTRIES = 64  # of each that are looked at


class PositionalStates:
    def __init__(self, awake: Awake) -> None:
        self._awake = awake
        self._file = 0  # number of the one that was read last
        # A tensor of each dictionary of a file, by where it lies.
        self._came_from: dict[Mark, int] = {}
        # Of what took its state from this file: id of a parameter -> its positions in
        # the file and in its model.
        self._places: dict[int, tuple[int, int]] = {}
        self._places_in = 0
        self._took: WeakIdentityMap[torch.optim.Optimizer, int] = WeakIdentityMap()

    def loaded(self, content: Any) -> None:
        """Called with what torch.load has given."""
        self._file += 1
        oldest = self._file - _FILES
        rows = {mark: n for mark, n in self._came_from.items() if n > oldest}
        rows.update((mark_of(t), self._file) for t in first_tensors(content, _DEPTH))
        self._came_from = rows

    def takes(self, taker: Any, state: Any) -> None:
        """Called when a module or an optimizer is about to take over a state."""
        if not isinstance(state, dict):
            return
        if isinstance(taker, torch.optim.Optimizer):
            file = self._file_of(first_tensors(state.get("state"), _DEPTH))
            if file is not None:
                self._took.set(taker, file)
                self._awake.add("opt.state_by_position")
        elif isinstance(taker, torch.nn.Module):
            file = self._file_of(itertools.islice(state.values(), _ENTRIES))
            if file is not None:
                self._note(taker, state, file)

    def optimizer_steps(self, optimizer: torch.optim.Optimizer) -> float | None:
        """In its first step after a load. 1: its parameters have another order than
        in the file that both came from; None: they did not come from one file."""
        file = self._took.get(optimizer)
        if file is None:
            return None
        self._took.discard(optimizer)
        if file != self._places_in:
            return None
        found = [
            self._is_wrong(group["params"], optimizer.state)
            for group in optimizer.param_groups
        ]
        wrong = [said for said in found if said is not None]
        return float(any(wrong)) if wrong else None

    def _is_wrong(self, parameters: list[torch.Tensor], state: Any) -> bool | None:
        """None: the group does not follow its model's order either, or its moments do
        not fit the file's order: somebody has sorted the names."""
        places = [self._places.get(id(parameter)) for parameter in parameters]
        known = [place for place in places if place is not None]
        own = [position for _, position in known]
        if len(known) < 2 or own != sorted(own):
            return None
        in_file = [position for position, _ in known]
        if in_file == sorted(in_file):
            return False
        if len(known) < len(parameters):
            return True
        as_in_file = sorted(parameters, key=lambda one: self._places[id(one)][0])
        shapes = [moment_shapes(state.get(one)) for one in parameters]
        fits = [one.shape in found for one, found in zip(as_in_file, shapes) if found]
        return True if all(fits) else None

    def _note(self, module: torch.nn.Module, state: dict[str, Any], file: int) -> None:
        if file != self._places_in:
            self._places, self._places_in = {}, file
        in_file = {name: position for position, name in enumerate(state)}
        for own, (name, parameter) in enumerate(named_parameters_in(module)):
            if name in in_file:
                self._places[id(parameter)] = in_file[name], own

    def _file_of(self, tensors: Iterable[Any]) -> int | None:
        for tensor in tensors:
            file = self._came_from.get(mark_of(tensor)) if _is_plain(tensor) else None
            if file is not None:
                return file
        return None


def _is_plain(value: Any) -> bool:
    if type(value) is not torch.Tensor or value.layout != torch.strided:
        return False
    return not value.is_meta and value.numel() > 0


def moment_shapes(state: Any) -> list[torch.Size]:
    """Of what an optimizer keeps of one parameter."""
    if not isinstance(state, dict):
        return []
    kept = [one for one in state.values() if type(one) is torch.Tensor]
    return [one.shape for one in kept if one.dim() > 0]


def mark_of(tensor: torch.Tensor) -> Mark:
    """Where it lies, as long as it lives."""
    return tensor.data_ptr(), tensor.numel(), tensor.dtype


def first_tensors(content: Any, depth: int) -> Iterator[torch.Tensor]:
    """The first plain tensor of each dictionary, and of those within it."""
    if not isinstance(content, dict) or depth == 0:
        return
    entries = list(itertools.islice(content.values(), _ENTRIES))
    for entry in entries:
        if _is_plain(entry):
            yield entry
            break
    for entry in entries:
        yield from first_tensors(entry, depth - 1)
