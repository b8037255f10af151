"""Parts of a loaded state that the model has under a longer or a shorter name.

An adapter, a compiler or a wrapper puts a component into the names of a part
("head.weight", "head.wrapped.weight"). With strict=False such a part is left out
without a word, and the model goes on with what it was made with. So it is where a
library of another time names what is in a layer otherwise ("norm.gamma", "norm.weight").
"""

from __future__ import annotations

import collections
import itertools
from typing import TYPE_CHECKING

from _traincheck.module_content import named_buffers_in, named_parameters_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    import torch

# Name of the scalar: 1 if a part was left out so, 0 if others were.
NAME = "load.leaves_renamed"
_UNEXPECTED = 64  # names that are looked at
_PARTS = 5  # components that make the difference, at most
_OF_A_LAYER = 2  # weight and bias: one layer was made anew, within a Sequential


def leaves_renamed(module: torch.nn.Module, state: Any, result: Any) -> bool | None:
    """Called with what load_state_dict was given and gave. None: it left out nothing,
    or all."""
    unexpected = getattr(result, "unexpected_keys", None)
    missing = getattr(result, "missing_keys", None)
    if not unexpected or missing is None or len(unexpected) >= len(state):
        return None
    own = _tensors_of(module)
    wanted: dict[str, list[str]] = {}  # by last component
    for name in missing:
        wanted.setdefault(name.rpartition(".")[2], []).append(name)
    for name in unexpected[:_UNEXPECTED]:
        shape = getattr(state.get(name), "shape", None)
        others = wanted.get(name.rpartition(".")[2], ())
        if shape and any(
            _is_renamed(name, other)
            and not (len(unexpected) <= _OF_A_LAYER and _is_in_row(name, other))
            and other in own
            and own[other].shape == shape
            and own[other].dim() > 0
            for other in others
        ):
            return True
    return _renames_within(missing, unexpected, state, own)


def _renames_within(
    missing: list[str],
    unexpected: list[str],
    state: Any,
    own: dict[str, torch.Tensor],
) -> bool:
    """Has the state a layer under other names (gamma and beta for weight and bias)? A
    layer of which a part was taken over has something new beside it."""
    absent, given, known = map(_by_layer, (missing, unexpected[:_UNEXPECTED], own))
    for layer, names in given.items():
        lacks = absent.get(layer, ())
        if not layer or not lacks or len(lacks) != len(known.get(layer, ())):
            continue
        if any(other.startswith(f"{layer}.") for other in known):
            continue  # tokens and positions of a whole model, which has layers
        shapes = [getattr(state.get(name), "shape", None) for name in names]
        alike = [own[name] for name in lacks if name in own]
        alike = [one for one in alike if one.dim() > 0 and one.shape in shapes]
        if len(alike) > 1 or any(one.dim() > 1 for one in alike):
            return True
    return False


def _by_layer(names: Iterable[str]) -> dict[str, list[str]]:
    layers: dict[str, list[str]] = {}
    for name in names:
        layers.setdefault(name.rpartition(".")[0], []).append(name)
    return layers


def _tensors_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return dict(itertools.chain(named_parameters_in(module), named_buffers_in(module)))


def _is_renamed(one: str, other: str) -> bool:
    """Has one of them all components of the other, in their order, and more?"""
    a, b = one.split("."), other.split(".")
    shorter, longer = (a, b) if len(a) < len(b) else (b, a)
    if len(shorter) < 2 or not 0 < len(longer) - len(shorter) <= _PARTS:
        return False
    return _is_subsequence(shorter, iter(longer))


def _is_in_row(one: str, other: str) -> bool:
    """Are numbers all that one of them has more? Its layer lies in a Sequential."""
    a, b = one.split("."), other.split(".")
    more = collections.Counter(a) - collections.Counter(b)
    more += collections.Counter(b) - collections.Counter(a)
    return all(part.isdigit() for part in more)


def _is_subsequence(shorter: list[str], longer: Iterator[str]) -> bool:
    return all(part in longer for part in shorter)
