"""Transforms that were replaced after their data set was split.

The parts of a split share one data set. Who gives it the transform of the evaluation
through one part takes away the augmentation of the other. What was there before the
split is compared; where both were set later, the source says so:

    train.dataset.transform = augment
    test.dataset.transform = None

A part whose indices were given to a part of another data set, as of a copy, is that
part no more.
"""

from __future__ import annotations

import ast
import weakref
from collections import deque
from typing import TYPE_CHECKING

from _traincheck import source_files
from _traincheck.identity_map import WeakIdentityMap, is_possible_key
from _traincheck.sources import frames, is_of_user, own_nodes
from _traincheck.subsets import whole_of

if TYPE_CHECKING:
    from typing import Any

    from torch.utils.data import DataLoader, Subset

    from _traincheck.sources import Body

    _Part = tuple[weakref.ref[Subset[Any]], "_Split"]

# Name of the scalar of a loader.
NAME = "loader.transform_replaced"
_WORDS = ("transform", "augment")
_MOST_PARTS = 16


class _Split:
    def __init__(self, whole: Any) -> None:
        self.parts = 0
        self.has_copies = False  # in place of parts
        # As they were when it was split first.
        self.transforms = {
            name: value
            for name, value in vars(whole).items()
            if any(word in name for word in _WORDS)
        }
        # Of those that were None: does the source set one through two parts?
        self.set_apart: bool | None = None


class ReplacedTransforms:
    def __init__(self) -> None:
        self._splits: WeakIdentityMap[Any, _Split] = WeakIdentityMap()
        # Of the present pass. A loader may be gone before its pass ends.
        self._data: weakref.ref[Any] | None = None
        # The newest ones, with their splits.
        self._parts: deque[_Part] = deque(maxlen=_MOST_PARTS)

    def made(self, part: Subset[Any]) -> None:
        whole = whole_of(part)
        if not is_possible_key(whole) or not hasattr(whole, "__dict__"):
            return
        split = self._splits.get(whole) or _Split(whole)
        split.parts += 1
        self._splits.set(whole, split)
        for entry in list(self._parts):
            reference, other = entry
            replaced = reference()
            if other is not split and replaced is not None:
                if replaced.indices is part.indices:
                    other.parts -= 1
                    other.has_copies = True
                    self._forget(entry)
        self._parts.append((weakref.ref(part), split))

    def _forget(self, gone: _Part) -> None:
        """Weak references ask what they refer to whether it is equal, code of the
        user's."""
        others = [entry for entry in self._parts if entry is not gone]
        self._parts.clear()
        self._parts.extend(others)

    def pass_begins(self, loader: DataLoader[Any]) -> None:
        data = whole_of(loader.dataset)
        self._data = weakref.ref(data) if is_possible_key(data) else None

    def trained_with(self) -> float | None:
        """Called when the present pass trains. 1: a transform is another one than when
        the data set was split; None: it was not split, or has none."""
        data = self._data() if self._data is not None else None
        split = self._splits.get(data) if data is not None else None
        if split is None or not split.transforms:
            return None
        if split.parts < 2:
            return 0.0 if split.has_copies else None
        now = vars(data)
        known = {name for name, one in split.transforms.items() if one is not None}
        if any(now.get(name) is not split.transforms[name] for name in known):
            return 1.0
        unknown = split.transforms.keys() - known
        if split.set_apart is None and unknown:
            split.set_apart = _are_set_apart(unknown)
        if split.set_apart:
            return 1.0
        return 0.0 if known else None


def _are_set_apart(names: set[str]) -> bool:
    """Has a function of the files that run now two statements that give the data sets
    of different parts one of these attributes?"""
    paths = {frame.f_code.co_filename for frame in frames()}
    found = False
    for path in filter(is_of_user, paths):
        for some in source_files.file_of(path).functions.values():
            found = found or any(_sets_apart(one.body, names) for one in some.values())
    source_files.forget()
    return found


def _sets_apart(body: Body, names: set[str]) -> bool:
    """Outside of loops: who sets them in turns, before each use, is right."""
    parts: dict[str, set[str]] = {}  # by what is set
    nodes = list(own_nodes(body))
    loops = [node for node in nodes if isinstance(node, (ast.For, ast.While))]
    in_turns = {inner for loop in loops for inner in ast.walk(loop)}
    for node in nodes:
        if node in in_turns:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if not isinstance(target, ast.Attribute) or target.attr not in names:
                continue
            owner = target.value
            if isinstance(owner, ast.Attribute) and owner.attr == "dataset":
                parts.setdefault(target.attr, set()).add(ast.dump(owner.value))
    return any(len(several) > 1 for several in parts.values())
