"""vmap, grad and the like of torch.func; and traces of torch.jit."""

from __future__ import annotations

import torch


def running() -> bool:
    """Do they transform the code that runs now? Its tensors, those of generators'
    states among them, have no memory then that could be looked at; a trace warns of
    each look."""
    if torch._C._get_tracing_state() is not None:
        return True
    return torch._C._functorch.peek_interpreter_stack() is not None
