"""Lists that collect what the training reads, and hold one object again and again.

    self.states.clear()                     # for the next episode
    ...
    self.replay.append(self.states)         # the same list as before

    memory.append((state, action, reward, next_state))      # env writes into its array

All places of such a list hold what was written last. It looks like a buffer of many
samples by its length. Looked at are attributes of the user's objects that their own
methods append to: the places hold the same list, array or tensor, there are more of them
at a later look, and its content is another one by then. An object that is shared and never
written (zeros, a prototype) is in order, and so are records that refer to what they are
a part of (an episode and a place in it): of a tuple only arrays count that are twice in
it, as the state before and behind a step.
"""

from __future__ import annotations

import dis
import sys
import types
from collections import Counter, deque
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import torch

from _traincheck.identity_map import WeakIdentityMap, is_possible_key
from _traincheck.observing import observe
from _traincheck.sources import unwrapped
from _traincheck.user_classes import user_classes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from traincheck_core import Args

    from _traincheck.awake import Awake
    from _traincheck.watch import Watch

# Name of the scalar of an optimizer.
NAME = "opt.keeps_one_object"

_FIRST_LOOK = 8  # calls of one method of an object; then after twice as many
_LAST_LOOK = 8192
_OBJECTS = 256
_FEWEST = 8  # places of a list
_PLACES = 64  # that are looked at, from its end
_ENTRIES = 16  # of a list that most places hold, from its begin
_ELEMENTS = 1024  # of an array
_MOST_ELEMENTS = 100_000
_WIDTH = 16  # of a tuple
# Compilers look into methods of these.
_NOT_OF = (torch.nn.Module, torch.optim.Optimizer)


class _Seen(NamedTuple):
    """Of a list, at a look."""

    length: int
    shared: object  # what most places hold, see _key; None: different objects
    content: tuple[object, ...]  # of that


class _Row:
    """One object."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()  # by method
        self.seen: dict[str, _Seen] = {}  # by attribute


class KeptObjects:
    def __init__(self, awake: Awake) -> None:
        self._awake = awake
        self._looked = False
        self._rows: WeakIdentityMap[Any, _Row] = WeakIdentityMap()
        self._said: float | None = None

    def look(self, watch: Watch) -> None:
        """Observes methods that append, once; called at an optimizer's first step."""
        if self._looked:
            return
        self._looked = True
        for cls in user_classes():
            if issubclass(cls, _NOT_OF):
                continue
            for name, function in list(vars(cls).items()):
                if type(function) is types.FunctionType:
                    attributes = _appended_to(unwrapped(function))
                    if attributes:
                        _observe(watch, cls, name, attributes)

    def appends(self, keeper: Any, method: str, attributes: frozenset[str]) -> None:
        """Called after the method, which appends to these attributes."""
        row = self._rows.get(keeper) if is_possible_key(keeper) else None
        if row is None:
            if not is_possible_key(keeper) or len(self._rows) >= _OBJECTS:
                return
            row = _Row()
            self._rows.set(keeper, row)
        row.calls[method] += 1
        calls = row.calls[method]
        if calls & (calls - 1) or not _FIRST_LOOK <= calls <= _LAST_LOOK:
            return
        own: dict[str, Any] = getattr(keeper, "__dict__", {})
        for name in attributes:
            kept: Any = own.get(name)
            if type(kept) in (list, deque) and len(kept) >= _FEWEST:
                self._compare(row, name, kept)

    def optimizer_steps(self) -> float | None:
        """1: a list holds one object, whose content changes; None: no list of what could
        be one object has grown."""
        return self._said

    def _compare(self, row: _Row, name: str, kept: Any) -> None:
        now, before = _seen(kept), row.seen.get(name)
        if now is None:
            row.seen.pop(name, None)
            return
        row.seen[name] = now
        if before is None or now.length <= before.length:
            return
        if now.shared is None:
            self._say(0.0)
        elif now.shared == before.shared:
            # A list that has only become longer is that of an episode that goes on.
            if now.content[: len(before.content)] != before.content:
                self._say(1.0)

    def _say(self, value: float) -> None:
        self._said = max(self._said or 0.0, value)
        self._awake.add(NAME)


def _appended_to(function: types.FunctionType) -> frozenset[str]:
    """Attributes whose `append` it calls."""
    if "append" not in function.__code__.co_names:
        return frozenset()
    instructions = list(dis.get_instructions(function))
    return frozenset(
        owner.argval
        for owner, called in zip(instructions, instructions[1:])
        if owner.opname == "LOAD_ATTR"
        and called.argval == "append"
        and isinstance(owner.argval, str)
    )


def _observe(
    watch: Watch, cls: type[Any], method: str, attributes: frozenset[str]
) -> None:
    def appended(keeper: Any, args: Args, result: Any) -> None:
        watch.kept_objects.appends(keeper, method, attributes)

    observe(watch, cls, method, after=appended)


def _seen(kept: Any) -> _Seen | None:
    """None: its entries are no lists, arrays and tensors, or cannot be compared."""
    try:
        entries = list(islice(reversed(kept), _PLACES))
    except RuntimeError:  # another thread appends
        return None
    objects = [list(_objects_of(entry)) for entry in entries]
    if 2 * sum(map(bool, objects)) < len(entries):
        return None
    counts = Counter(key for found in objects for key in _keys(found))
    key, places = counts.most_common(1)[0] if counts else (None, 0)
    if 2 * places < len(entries):
        return _Seen(len(kept), None, ())
    shared = next(one for found in objects for one in found if _key(one) == key)
    content = tuple(_contents(shared))
    return _Seen(len(kept), key, content) if content else None


def _objects_of(entry: Any) -> Iterator[Any]:
    """That may be written in place. Of a tuple: where there are at least two."""
    if issubclass(type(entry), tuple):
        arrays = [
            one for one in tuple.__getitem__(entry, slice(_WIDTH)) if _is_array(one)
        ]
        if len(arrays) > 1:
            yield from arrays
    elif type(entry) is list or _is_array(entry):
        yield entry


def _keys(found: list[Any]) -> Iterator[object]:
    """Of the objects that say something if many entries have them."""
    times = Counter(map(_key, found))
    for key, often in times.items():
        if len(found) == 1 or often > 1:
            yield key


def _key(one: Any) -> object:
    """Equal for tensors and arrays over the same memory, whoever made them: one is made
    anew for each step over the array that an environment writes into."""
    if type(one) is list:
        return id(one)
    if type(one) is torch.Tensor:
        return one.data_ptr(), one.numel()
    return one.__array_interface__["data"][0], one.size


def _is_array(value: Any) -> bool:
    if type(value) is torch.Tensor:
        plain = value.is_cpu and value.layout == torch.strided and value.dim() > 0
        return bool(plain) and value.numel() > 0
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray:
        return False
    return bool(value.ndim > 0 and value.size > 0)


def _contents(value: Any) -> Iterator[object]:
    """Of a list: of its first entries. None of it: it cannot be told."""
    if type(value) is not list:
        content = _content(value)
        if content is not None:
            yield content
        return
    for entry in value[:_ENTRIES]:
        content = _content(entry) if _is_array(entry) else None
        plain = entry if type(entry) in (bool, int, float, str) else id(entry)
        yield plain if content is None else content


def _content(array: Any) -> bytes | None:
    """None: it cannot be told."""
    few: Any = None
    if type(array) is not torch.Tensor:
        few = array.flat[:_ELEMENTS] if array.dtype.kind in "biuf" else None
    elif array.numel() <= _MOST_ELEMENTS and not array.is_complex():
        few = array.detach().reshape(-1)[:_ELEMENTS].clone().view(torch.uint8).numpy()
    return None if few is None else bytes(few.tobytes())
