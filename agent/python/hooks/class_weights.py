"""Weights of classes that make frequent ones count more.

Weights of a loss are there for rare classes. Numbers of samples in place of their
inverse, or negatives divided by positives the other way around, do the opposite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import NLL, integer, saved

if TYPE_CHECKING:
    from torch.autograd.graph import Node

# Name of the scalar.
NAME = "loss.favours_frequent"

_OF_LOGITS = "BinaryCrossEntropyWithLogitsBackward0"
_TIMES, _MORE = 2, 4  # a class is more frequent: so many times, and targets more
_UNEQUAL = 1.5  # ratio of weights
_SEEN = 0.8  # of the classes, in the batch
_SHARE = 0.9  # of the pairs of classes
_MOST = 256  # classes
_READ = 1 << 24  # targets


def favours_frequent(node: Node) -> bool | None:
    """None: it is no loss with weights, or its targets do not tell."""
    if node.name() in NLL:
        return _of_classes(node)
    return _of_labels(node) if node.name() == _OF_LOGITS else None


def weights_and_counts(node: Node) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Of classes, in one row; of negatives and positives, in a row for each label. None:
    as favours_frequent."""
    if node.name() in NLL:
        of_classes = _counts_of_classes(node)
        if of_classes is None:
            return None
        weights, counts = of_classes
        return (weights[None], counts[None]) if len(weights) > 1 else None
    return _counts_of_labels(node) if node.name() == _OF_LOGITS else None


def _of_classes(nll: Node) -> bool | None:
    found = _counts_of_classes(nll)
    return None if found is None else _compare(*found)


def _counts_of_classes(nll: Node) -> tuple[torch.Tensor, torch.Tensor] | None:
    weights, targets = saved(nll, "weight"), saved(nll, "target")
    if weights is None or targets is None or len(weights) > _MOST:
        return None
    if targets.numel() > _READ:
        return None
    counted = targets[targets != integer(nll, "ignore_index")]
    counts = torch.bincount(counted.flatten(), minlength=len(weights))
    counted = weights > 0
    return weights[counted].double(), counts[counted].double()


def _compare(weights: torch.Tensor, counts: torch.Tensor) -> bool | None:
    if len(counts) < 2 or (counts > 0).double().mean() < _SEEN:
        return None
    frequent = counts[:, None] >= _TIMES * counts[None] + _MORE
    heavier = weights[:, None] > _UNEQUAL * weights[None]
    up, down = int((frequent & heavier).sum()), int((frequent & heavier.t()).sum())
    if up + down == 0:
        return None
    return up >= _SHARE * (up + down)


def _of_labels(node: Node) -> bool | None:
    rows = _counts_of_labels(node)
    found: bool | None = None
    for pair, counts in zip(*rows) if rows is not None else ():
        said = _compare(pair, counts)
        if said is not None:
            found = said and found is not False
    return found


def _counts_of_labels(node: Node) -> tuple[torch.Tensor, torch.Tensor] | None:
    """pos_weight, by label or one for all."""
    weights, targets = saved(node, "pos_weight"), saved(node, "target")
    if weights is None or targets is None or targets.dim() == 0:
        return None
    if targets.numel() > _READ or weights.numel() > _MOST:
        return None
    if not bool(((targets == 0) | (targets == 1)).all()):
        return None
    by_label = weights.numel() > 1
    if by_label and (weights.dim() != 1 or targets.shape[-1] != len(weights)):
        return None
    table = targets.reshape(-1, targets.shape[-1] if by_label else 1)
    ones = table.sum(0, dtype=torch.float64)
    positive = weights.double().flatten()
    pairs = torch.stack((torch.ones_like(positive), positive), 1)
    return pairs, torch.stack((len(table) - ones, ones), 1)
