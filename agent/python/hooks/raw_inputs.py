"""Bytes that a model is given as they are, or divided twice: pictures from 0 to 255, or
to 1/255.

Weights are drawn, and rates chosen, for inputs of about 1. A first layer that reads
whole numbers up to 255 shows that nobody has divided them; one that reads multiples of
1/255/255 below 1/255 shows that two have (ToTensor, and the script).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import saved

if TYPE_CHECKING:
    from torch.autograd.graph import Node

# Names of the scalars.
NAME = "loss.reads_bytes"
TWICE = "loss.divides_bytes_twice"

# First layers, what they keep of their input, and its place among what they are given.
_LAYERS = {
    "AddmmBackward0": ("mat1", 1),
    "ConvolutionBackward0": ("input", 0),
    "MmBackward0": ("self", 0),
}
_READ = 4096  # elements
_LARGE, _LARGEST = 128, 255
_DISTINCT = 16  # values
_SQUARE = _LARGEST * _LARGEST  # what bytes were divided by, if twice
_NEAR = 1e-3  # to whole numbers
_PRECISE = (torch.float32, torch.float64)
_TYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def findings(node: Node) -> dict[str, bool]:
    """Empty: it is no layer that reads what was given to the model."""
    given = given_to(node)
    if given is None:
        return {}
    few = given if given.is_contiguous() else given[0]
    few = few.reshape(-1)[:_READ]
    found = {NAME: _are_bytes(few)}
    if given.dtype in _PRECISE:
        whole = (few * _SQUARE).round()
        near = bool(torch.allclose(few * _SQUARE, whole, rtol=0.0, atol=_NEAR))
        found[TWICE] = near and _are_bytes(whole)
    return found


def given_to(node: Node) -> torch.Tensor | None:
    """What a first layer reads; None: it is none, or that is not known."""
    kept = _LAYERS.get(node.name())
    if kept is None:
        return None
    name, place = kept
    if len(node.next_functions) <= place or node.next_functions[place][0] is not None:
        return None
    given = saved(node, name)
    if given is None or given.dtype not in _TYPES or given.layout != torch.strided:
        return None
    return given


def _are_bytes(few: torch.Tensor) -> bool:
    if not _LARGE <= float(few.max()) <= _LARGEST or float(few.min()) < 0:
        return False
    return bool((few == few.round()).all()) and len(few.unique()) >= _DISTINCT
