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
    return {
        (name, position): value
        for position, group in enumerate(optimizer.param_groups)
        for name, value in numbers_of(group).items()
    }


def numbers_of(group):
    """name -> float of every number in it; elements of tuples as "betas[0]"."""
    found = {}
    for name, value in group.items():
        kind = type(value)
        if kind in _PLAIN:
            found[name] = float(value)
        elif kind in _SKIPPED or name == "params":
            continue
        elif kind is tuple or kind is list:
            for index, item in enumerate(value):
                number = number_of(item)
                if number is not None:
                    found[f"{name}[{index}]"] = number
        else:
            number = number_of(value)
            if number is not None:
                found[name] = number
    return found


def number_of(value):
    """As a float; None: it is no number, or it is on a device."""
    if isinstance(value, torch.Tensor):
        # Reading what is on a GPU would wait for it.
        if type(value) is torch.Tensor and value.is_cpu and value.numel() == 1:
            return None if value.is_complex() else float(value.item())
        return None
    return float(value) if isinstance(value, numbers.Real) else None
