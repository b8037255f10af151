"""Trainings that are given their samples sorted by class.

A data set that lies sorted by its labels and is read in its own order gives batches
of one class each: the model forgets each class while it learns the next one.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch
from torch.utils.data import SequentialSampler, Subset, TensorDataset

from _traincheck.graph_nodes import NLL, kept, saved, walk
from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from typing import Any

    from torch.autograd.graph import Node
    from torch.utils.data import DataLoader

_NAMES = ("targets", "labels", "label", "target", "classes", "ys", "y")
_MOST = 2_000_000  # labels that are looked at
_MOST_IN_A_LIST = 200_000
_COMPARED = 4096  # of the first labels
_INDICES = ("index", "indices")
_NODES = 64  # of a loss's graph, among which its targets are looked for
_BATCHES = 2  # that a class must fill on average

# Name of the scalar: 1 if they are sorted, 0 if they could be.
NAME = "loss.sorted_batches"


class _OnDevice(Exception):
    """The labels: nobody waits for them."""


class SortedSamples:
    def __init__(self) -> None:
        self._known: WeakIdentityMap[DataLoader, float] = WeakIdentityMap()
        self._now: float | None = None
        # Labels that may be those of the samples, as the data set lists both: of a
        # loader, looked for at its first pass.
        self._guessed: tuple[weakref.ref[DataLoader], torch.Tensor] | None = None
        self._was_guessed: WeakIdentityMap[DataLoader, bool] = WeakIdentityMap()
        # Of a loader whose samples are sorted, until a loss shows that labels matter.
        self._to_compare: tuple[weakref.ref[DataLoader], torch.Tensor] | None = None
        self._compared: WeakIdentityMap[DataLoader, bool] = WeakIdentityMap()

    def begins(self, loader: DataLoader) -> None:
        """Called when a pass begins. One without gradients trains nothing."""
        if not torch.is_grad_enabled():
            return
        known = self._known.get(loader)
        if known is None and loader.batch_size is not None:
            try:
                known = float(_is_sorted(loader, loader.batch_size))
                self._known.set(loader, known)
            except _OnDevice:
                known = None
        self._now = known
        self._guessed = self._to_compare = None
        if known == 1 and self._compared.get(loader) is None:
            labels = _labels(loader.dataset)
            if labels is not None:
                self._to_compare = weakref.ref(loader), labels[:_COMPARED].clone()
        if known != 0 or loader.batch_size is None:
            return
        if self._was_guessed.get(loader) is None:
            self._was_guessed.set(loader, True)
            labels = _guessed_labels(loader, loader.batch_size)
            if labels is not None:
                self._guessed, self._now = (weakref.ref(loader), labels), None

    def awaits_loss(self) -> bool:
        return self._guessed is not None or self._to_compare is not None

    def sees_loss(self, roots: list[Node]) -> None:
        """Called with what the loss of the pass's first batch was computed by: labels
        are what it compares with. The numbers beside the samples may be others, and a
        loss may need none."""
        compared, self._to_compare = self._to_compare, None
        if compared is not None:
            loader = compared[0]()
            if not _may_depend_on(roots, compared[1]):
                self._now = None
            elif loader is not None:
                self._compared.set(loader, True)
        guessed, self._guessed = self._guessed, None
        if guessed is None:
            return
        loader, labels = guessed[0](), guessed[1]
        for node in walk(roots, _NODES):
            targets = saved(node, "target") if node.name() in NLL else None
            if targets is not None and targets.dim() == 1:
                self._now = float(torch.equal(targets, labels[: len(targets)]))
                if loader is not None:
                    self._known.set(loader, self._now)
                return

    def backward_begins(self) -> float | None:
        """Of the samples that were read last, once a pass; None: not known."""
        said, self._now = self._now, None
        return said


def _may_depend_on(roots: list[Node], labels: torch.Tensor) -> bool:
    """No: all that the loss compares with differs between samples of one class."""
    others = False
    for node in walk(roots, _NODES):
        if any(kept(node, name) is not None for name in _INDICES):
            return True
        if kept(node, "target") is None:
            continue
        targets = saved(node, "target")
        if targets is None or targets.dim() == 0 or len(targets) > len(labels):
            return True  # it cannot be read
        if targets.dim() > 2:
            others = True  # pictures, sums over pictures
            continue
        rows = targets.reshape(len(targets), -1)
        alike = labels[1 : len(rows)] == labels[: len(rows) - 1]
        if bool((rows[1:] == rows[:-1]).all(1)[alike].all()):
            return True
        others = True
    return not others


def _is_sorted(loader: DataLoader, batch: int) -> bool:
    if type(loader.sampler) is not SequentialSampler:
        return False
    labels = _labels(loader.dataset)
    if labels is None or len(labels) != len(loader.sampler):
        return False
    return _are_sorted(labels, batch)


def _guessed_labels(loader: DataLoader, batch: int) -> torch.Tensor | None:
    """Sorted numbers at the ends of the rows of a list that the data set has of all its
    samples; None: it has none, or they are not sorted."""
    if type(loader.sampler) is not SequentialSampler:
        return None
    data = loader.dataset
    count = len(loader.sampler)
    if not hasattr(data, "__dict__") or not 0 < count <= _MOST_IN_A_LIST:
        return None
    for rows in vars(data).values():
        if type(rows) is not list or len(rows) != count:
            continue
        if all(type(row) in (tuple, list) and len(row) > 1 for row in rows):
            labels = _as_labels([row[-1] for row in rows])
            if labels is not None and _are_sorted(labels, batch):
                return labels
    return None


def _are_sorted(labels: torch.Tensor, batch: int) -> bool:
    if len(labels) < 2:
        return False
    steps = labels.diff()
    if not bool((steps >= 0).all()) and not bool((steps <= 0).all()):
        return False
    classes = int((steps != 0).sum()) + 1
    return classes > 1 and len(labels) >= _BATCHES * batch * classes


def _labels(data: Any) -> torch.Tensor | None:
    """int64[samples]; None: the data set shows none of its own, or too many."""
    if type(data) is Subset:
        labels = _labels(data.dataset)
        if labels is None or not 0 < len(data.indices) <= _MOST:
            return None
        rows = torch.as_tensor(list(data.indices), dtype=torch.int64)
        return labels[rows] if int(rows.max()) < len(labels) else None
    if type(data) is TensorDataset:
        return _as_labels(data.tensors[-1])
    own = vars(data) if hasattr(data, "__dict__") else {}
    for name in _NAMES:
        labels = _as_labels(own.get(name))
        if labels is not None:
            return labels
    return None


def _as_labels(value: Any) -> torch.Tensor | None:
    if type(value) is list and len(value) <= _MOST_IN_A_LIST:
        if not all(type(label) is int for label in value):
            return None
        return torch.tensor(value, dtype=torch.int64)
    if type(value).__module__ == "numpy" and type(value).__name__ == "ndarray":
        if value.dtype.kind not in "iu" or value.ndim != 1:
            return None
        value = torch.from_numpy(value.astype("int64"))
    if type(value) is not torch.Tensor or value.dim() != 1:
        return None
    if not value.is_cpu:
        raise _OnDevice
    if value.is_floating_point() or value.is_complex() or len(value) > _MOST:
        return None
    return value.detach().to(torch.int64)
