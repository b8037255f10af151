"""What a module holds, as torch sees it: a class of the user's may have a `parameters` of
its own, which returns a list, lacks some, or does something beside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


def named_parameters_in(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from torch.nn.Module.named_parameters(module)


def parameters_in(module: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
    for _, parameter in torch.nn.Module.named_parameters(module):
        yield parameter


def named_buffers_in(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from torch.nn.Module.named_buffers(module)


def modules_in(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    for _, part in torch.nn.Module.named_modules(module):
        yield part
