"""Statements of the user's code that do nothing: a function's result that is dropped,
a method that is named and not called.

    mask.masked_fill(hidden, 0)     np.fliplr(image)     model.eval

None of them changes what it is given, unless NumPy is given where to write, or a class
of the user's has a method of that name. Looked at is the source of what runs
(running_sources.py), but for branches that a setting of the object rules out (`if
self.fixed:`).

Functions of autograd that change nothing act by their results alone, too
(dropped_functions.py).
"""

from __future__ import annotations

import ast
import itertools
import sys
import types
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from _traincheck.branches import statements_of
from _traincheck.dropped_functions import dropped_function
from _traincheck.sources import is_of_user, meaning, site_of

if TYPE_CHECKING:
    from typing import Any

    from _traincheck.running_sources import Owned, Source
    from traincheck_core import Core

# Name of the scalar of an optimizer.
NAME = "opt.result_dropped"

# Of tensors; nothing else has methods of these names.
_METHODS = frozenset(
    """clamp clamp_max clamp_min contiguous expand_as fliplr flipud index_fill
    index_select log_softmax masked_fill masked_scatter masked_select nan_to_num
    permute repeat_interleave rot90 scatter_add type_as unsqueeze view_as""".split()
)
# Of gradients and of data, whose names with an underscore are what was meant.
_OF_DATA = frozenset("clamp clip div mul sub".split())
_OF_GRADIENTS = _OF_DATA | {"add"}
# Of torch, NumPy and torch.nn.functional.
_FUNCTIONS = _METHODS | frozenset(
    """abs avg_pool2d cat clamp clip concatenate dropout dropout2d elu exp flatten flip
    gelu interpolate leaky_relu log max_pool2d moveaxis multiply normalize pad permute
    relu relu6 reshape roll round sigmoid silu softmax softplus sqrt squeeze stack
    swapaxes tanh transpose unsqueeze where""".split()
)
# Of NumPy's, how many arguments go in; the next one is written to, or asks for that.
_INPUTS = {
    "abs": 1,
    "clip": 3,
    "exp": 1,
    "log": 1,
    "multiply": 2,
    "nan_to_num": 1,
    "round": 2,
    "sqrt": 1,
    "tanh": 1,
}
# The same of torch.nn.functional's.
_INPUTS_OF_LAYERS = {
    "dropout": 3,
    "dropout2d": 3,
    "elu": 2,
    "leaky_relu": 2,
    "relu": 1,
    "relu6": 1,
    "silu": 1,
}
_WRITES = (None, "copy", "inplace", "out")  # keywords, and **
_NEVER_NAMED = frozenset(("backward", "eval", "step", "train", "zero_grad"))


class DroppedResults:
    def __init__(self, core: Core) -> None:
        self._core = core
        # 1: a statement does nothing; None: no source is to be had.
        self.said: float | None = None
        self.site = 0  # where the statement stands; 0: not known

    def look(self, own: list[Owned], running: list[Source]) -> None:
        """Called once, with the sources of what runs, and of what it calls as well."""
        if running:
            self.said = float(self._finds(running, own))

    def _finds(self, bodies: list[Source], own: list[Owned]) -> bool:
        in_place = _methods_of_user()
        owners_of: dict[int, list[Any]] = {}
        for source, owners in own:
            owners_of.setdefault(id(source.definition), []).extend(owners)
        found = (
            (_dropped(one, owners_of.get(id(one.definition), []), in_place), one)
            for one in bodies
        )
        # Not of what is called by name: that may measure a function's time.
        more = (
            (dropped_function(source.body, source.names, owners), source)
            for source, owners in own
        )
        for statement, source in itertools.chain(found, more):
            if statement is not None:
                self.site = site_of(self._core, source.names, statement.lineno)
                return True
        return False


def _methods_of_user() -> set[str]:
    """Names of _METHODS and _OF_GRADIENTS that classes in the user's modules define."""
    found: set[str] = set()
    for module in list(sys.modules.values()):
        names = module.__dict__ if type(module) is types.ModuleType else {}
        path = names.get("__file__")
        is_main = names.get("__name__") == "__main__"
        if is_main or (isinstance(path, str) and is_of_user(path)):
            for value in list(names.values()):
                # isinstance() would run properties of the user's objects.
                if issubclass(type(value), type):
                    found |= _own_names(value, names.get("__name__"))
    return found


def _own_names(kind: type[Any], module: Any) -> set[str]:
    """Of its methods that have such names; none if another module defines it."""
    names = vars(kind)
    own = names.get("__module__") == module
    every = _METHODS | _OF_GRADIENTS
    return {name for name in every if own and name in names}


def _dropped(source: Source, owners: list[Any], in_place: set[str]) -> ast.Expr | None:
    """owners: whose method it is; in_place: methods that may change what they are called
    on."""
    found = _first_dropped(source, None, in_place)
    if found is None or not owners:
        return found
    each = (_first_dropped(source, owner, in_place) for owner in owners)
    return next((one for one in each if one is not None), None)


def _first_dropped(source: Source, owner: Any, in_place: set[str]) -> ast.Expr | None:
    for one in statements_of(source.body, owner):
        if isinstance(one, ast.Expr) and _does_nothing(
            one.value, source.names, in_place
        ):
            return one
    return None


def _does_nothing(value: ast.expr, names: dict[str, Any], in_place: set[str]) -> bool:
    if isinstance(value, ast.ListComp):  # a loop in one line
        value = value.elt
    if isinstance(value, ast.Attribute):
        return value.attr in _NEVER_NAMED
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    if any(keyword.arg in _WRITES for keyword in value.keywords):
        return False
    owner = meaning(value.func.value, names)
    if isinstance(owner, types.ModuleType):
        numpy = sys.modules.get("numpy")
        inputs = _INPUTS_OF_LAYERS if owner is functional else _INPUTS
        writes = owner in (numpy, functional)
        if writes and _is_given_a_place(value, value.func.attr, inputs):
            return False
        known = owner in (torch, functional, numpy)
        return known and value.func.attr in _FUNCTIONS
    return value.func.attr in _methods_of(value.func.value) - in_place


def _methods_of(owner: ast.expr) -> frozenset[str]:
    """Those that can only return something."""
    if isinstance(owner, ast.Name) and owner.id == "self":
        return frozenset()  # a layer that may write, or a method of a base class
    if isinstance(owner, ast.Attribute) and owner.attr == "data":
        above = owner.value
        is_gradient = isinstance(above, ast.Attribute) and above.attr == "grad"
        return _METHODS | (_OF_GRADIENTS if is_gradient else _OF_DATA)
    if isinstance(owner, ast.Attribute) and owner.attr == "grad":
        return _METHODS | _OF_GRADIENTS
    return _METHODS


def _is_given_a_place(call: ast.Call, name: str, inputs: dict[str, int]) -> bool:
    """Has the function an argument beyond its inputs, by position?"""
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return True
    return name in inputs and len(call.args) > inputs[name]
