"""Losses over all rows of a table of which masks hold some out.

A network on a graph computes all nodes at once, so that nothing but a mask in the loss
keeps the nodes of the test from being trained with. Masks are found by their names beside
the labels: in an object of torch_geometric, in a dictionary, among the attributes of an
object, or among the names of a function that runs.
"""

from __future__ import annotations

import linecache
import re
import sys
from typing import TYPE_CHECKING

import torch

from _traincheck.frame_scopes import (
    attributes_of,
    users_frame,
    users_frames,
    values_in,
)
from _traincheck.graph_nodes import NLL, integer, saved, walk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import Any

    from torch.autograd.graph import Node

    _Names = dict[str, Any]

# Name of the scalar.
NAME = "loss.counts_held_out"

_LOSSES = NLL | {"BinaryCrossEntropyWithLogitsBackward0", "BinaryCrossEntropyBackward0"}
_NODES = 16  # of the graph, from the loss
_LEAST = 32  # rows
_NO_REDUCTION = 0
_MOST = 64  # values of a function, and of an object
_TRAINED = re.compile(r"train")
_HELD_OUT = re.compile(r"test|val|dev|held")
_LABELS = re.compile(r"^(y|ys|labels?|targets?|classes)$|_(y|labels?|targets?)$")


def counts(roots: list[Node]) -> bool | None:
    """Called in a backward. None: there are no masks beside the targets, or they do not
    hold out anything."""
    targets = [one for one in map(_targets, walk(roots, _NODES)) if one is not None]
    frame = users_frame(sys._getframe()) if len(targets) == 1 else None
    if frame is None:
        return None
    for around in users_frames(frame):
        for names in _tables(around):
            found = _counts(targets[0], names, around)
            if found is not None:
                return found
    return None


def _targets(node: Node) -> torch.Tensor | None:
    if node.name() not in _LOSSES or integer(node, "reduction") == _NO_REDUCTION:
        return None
    targets = saved(node, "target")
    if targets is None or targets.dim() == 0 or len(targets) < _LEAST // 2:
        return None
    return targets


def _tables(frame: FrameType) -> Iterator[_Names]:
    """What a function knows by names, and what the objects among it consist of."""
    own = values_in(frame)
    yield own
    for value in list(own.values())[:_MOST]:
        if type(value) is dict:
            yield {key: one for key, one in value.items() if type(key) is str}
            continue
        parts = _attributes(value)
        # An object of torch_geometric keeps all that it has in a store.
        store = _attributes(parts.get("_store"))
        yield store["_mapping"] if type(store.get("_mapping")) is dict else parts


def _attributes(value: Any) -> _Names:
    is_plain = issubclass(type(value), (type, torch.Tensor))
    return {} if is_plain else attributes_of(value)


def _counts(targets: torch.Tensor, names: _Names, frame: FrameType) -> bool | None:
    tensors = {
        name: value
        for name, value in list(names.items())
        if type(value) is torch.Tensor and value.is_cpu
    }
    labels = [value for name, value in tensors.items() if _LABELS.search(name.lower())]
    rows = {len(one) for one in labels if one.dim() and len(one) >= _LEAST}
    masks = {
        name: value
        for name, value in tensors.items()
        if value.dtype == torch.bool and value.dim() == 1 and len(value) in rows
    }
    trained = [one for name, one in masks.items() if _TRAINED.search(name.lower())]
    held = {name: one for name, one in masks.items() if _HELD_OUT.search(name.lower())}
    if len(trained) != 1 or not held or not _are_used(held, frame):
        return None
    count = int(trained[0].sum())
    if any(bool((one & trained[0]).any()) or not one.any() for one in held.values()):
        return None
    if len(targets) == count:
        return False
    if not any(_are_one(targets, one) for one in labels):
        return None
    return any(bool((targets[one] >= 0).any()) for one in held.values())


def _are_used(masks: _Names, frame: FrameType) -> bool:
    """Does the user's code select by one?"""
    text = "".join(linecache.getlines(frame.f_code.co_filename))
    return any(re.search(rf"\b{re.escape(name)}\b", text) for name in masks)


def _are_one(targets: torch.Tensor, labels: torch.Tensor) -> bool:
    return (
        len(targets) == len(labels)
        and targets.dtype == labels.dtype
        and targets.data_ptr() == labels.data_ptr()
    )
