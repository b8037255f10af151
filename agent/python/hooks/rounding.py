"""How it is seen that rounding takes moves back: by a few elements of tensors in a low
precision, at two looks in a row.
"""

from __future__ import annotations

import torch

from _traincheck.device_values import first_of

PARAMETERS = 8
ELEMENTS = 256  # of each
PLAIN = (torch.Tensor, torch.nn.Parameter)

_LEAST = 0.5  # of the elements that move
_HABIT = 2  # looks
_LOW = (torch.bfloat16, torch.float16)


class Rounding:
    """Of one optimizer, or of one copy."""

    def __init__(self) -> None:
        self._habit = 0

    def takes(self, moved: int, pushed: int) -> bool | None:
        """Did, at this look and the last one, hardly anything move of what was
        pushed? None: too little was pushed to tell."""
        if pushed < ELEMENTS // 4:
            return None
        self._habit = self._habit + 1 if moved < _LEAST * pushed else 0
        return self._habit >= _HABIT


def is_low(tensor: torch.Tensor) -> bool:
    return type(tensor) in PLAIN and tensor.dtype in _LOW


def part(tensor: torch.Tensor) -> torch.Tensor:
    return first_of(tensor, ELEMENTS)
