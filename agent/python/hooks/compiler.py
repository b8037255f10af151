"""Keeps torch's compiler out of our functions.

Where compiled code calls something that is hooked, the compiler would try to
compile the hook as well, which costs graph breaks and warnings.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Skip = Callable[[types.CodeType], object]


def hide_from_compiler(package: str) -> None:
    """Marks the code of every module of the package as not to be compiled."""
    skip = _skipper(torch._C._dynamo.eval_frame)
    if skip is None:
        return
    for name, module in list(sys.modules.items()):
        if name.startswith(package + "."):
            for value in list(vars(module).values()):
                _hide(value, module.__name__, skip)


def _skipper(eval_frame: Any) -> Skip | None:
    """A function that marks a code object; None: this torch has none."""
    if hasattr(eval_frame, "set_code_exec_strategy"):
        action = eval_frame._FrameAction
        strategy = eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT)
        return lambda code: eval_frame.set_code_exec_strategy(code, strategy)
    return getattr(eval_frame, "skip_code", None)


def _hide(value: Any, module_name: str, skip: Skip) -> None:
    if isinstance(value, types.FunctionType) and value.__module__ == module_name:
        _skip_all(value.__code__, skip)
    elif isinstance(value, type) and value.__module__ == module_name:
        for member in vars(value).values():
            _hide(member, module_name, skip)


def _skip_all(code: types.CodeType, skip: Skip) -> None:
    skip(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _skip_all(constant, skip)
