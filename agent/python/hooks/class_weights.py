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


def _of_classes(nll: Node) -> bool | None:
    weights, targets = saved(nll, "weight"), saved(nll, "target")
    if weights is None or targets is None or len(weights) > _MOST:
        return None
    if targets.numel() > _READ:
        return None
    counted = targets[targets != integer(nll, "ignore_index")]
    counts = torch.bincount(counted.flatten(), minlength=len(weights))
    counted = weights > 0
    return _compare(weights[counted].double(), counts[counted].double())


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
    counts = table.sum(0, dtype=torch.float64)
    found: bool | None = None
    for weight, ones in zip(weights.double().flatten(), counts):
        pair = torch.stack((torch.ones_like(weight), weight))
        said = _compare(pair, torch.stack((len(table) - ones, ones)))
        if said is not None:
            found = said and found is not False
    return found
