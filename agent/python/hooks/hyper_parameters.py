"""Numbers of an optimizer's parameter groups: lr, betas[0], weight_decay, ...

One that is no number any more, or that cannot be read without waiting for a
device, is not known.
"""

import numbers

import torch

_PLAIN = frozenset((float, int, bool))
_SKIPPED = frozenset((type(None), str, dict))


def numbers_of_groups(optimizer):
    """{(name, position of the group): float}."""
    found = {}
    for position, group in enumerate(optimizer.param_groups):
        for name, value in group.items():
            kind = type(value)
            if kind in _PLAIN:
                found[name, position] = float(value)
            elif kind not in _SKIPPED and name != "params":
                found.update(_numbers_in(name, value, position))
    return found


def _numbers_in(name, value, position):
    """Of a value that is no plain number; elements of tuples as "betas[0]"."""
    rows = {name: value}
    if type(value) in (tuple, list):
        rows = {f"{name}[{index}]": item for index, item in enumerate(value)}
    for key, item in rows.items():
        number = number_of(item)
        if number is not None:
            yield (key, position), number


def number_of(value):
    """As a float; None: it is no number, or it is on a device."""
    if isinstance(value, torch.Tensor):
        # Reading what is on a GPU would wait for it.
        if type(value) is torch.Tensor and value.is_cpu and value.numel() == 1:
            return None if value.is_complex() else float(value.item())
        return None
    return float(value) if isinstance(value, numbers.Real) else None
