"""Numbers of an optimizer's parameter groups: lr, betas[0], weight_decay, ...

A number is written when it has changed since it was last written, and all of
them again every so many steps, so that a reader that lost records knows them
again. One that is no number any more, or that cannot be read without waiting
for a device, is written as NaN: not known.
"""

import numbers

import torch

_AGAIN = 16  # steps
_PLAIN = frozenset((float, int, bool))
_SKIPPED = frozenset((type(None), str, dict))


class HyperParameters:
    """What was last written of one optimizer."""

    def __init__(self):
        self._written = []  # name -> value, by parameter group
        self._steps = 0

    def record(self, core, point, number, optimizer):
        again = self._steps % _AGAIN == 0
        self._steps += 1
        for position, group in enumerate(optimizer.param_groups):
            now = numbers_of(group)
            if position == len(self._written):
                self._written.append({})
            written = self._written[position]
            if not again and now == written:
                continue
            for name in written.keys() - now.keys():
                now[name] = float("nan")
            for name, value in now.items():
                if again or written.get(name) != value:
                    core.record_scalar(number, point, position, name, value)
            self._written[position] = now


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
