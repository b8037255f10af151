"""Keeps torch's compiler out of our functions.

Where a compiled function calls something that is hooked, the compiler would
try to compile the hook as well.
"""

import sys
import types

import torch


def hide_from_compiler(package):
    """Marks the code of every module of the package as not to be compiled."""
    skip = getattr(torch._C._dynamo.eval_frame, "skip_code", None)
    if skip is None:
        return
    for name, module in list(sys.modules.items()):
        if name.startswith(package + "."):
            for value in list(vars(module).values()):
                _hide(value, module.__name__, skip)


def _hide(value, module_name, skip):
    if isinstance(value, types.FunctionType) and value.__module__ == module_name:
        _skip_all(value.__code__, skip)
    elif isinstance(value, type) and value.__module__ == module_name:
        for member in vars(value).values():
            _hide(member, module_name, skip)


def _skip_all(code, skip):
    skip(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _skip_all(constant, skip)
