"""Functions of the user's that move one model towards another.

    def soft_update(target, source, tau): ...
    def update_ema(ema_model, model, decay): ...

As common as methods (averaging_classes.py), and known by their names. What they move is
one of the two models that they are given.
"""

from __future__ import annotations

import ast
import functools
import sys
import types
from typing import TYPE_CHECKING

from _traincheck.averaging_classes import moves_averages, reads_weights
from _traincheck.sources import body_of, own_nodes, unwrapped, waits
from _traincheck.user_classes import user_modules
from _traincheck.wrapping import quietly

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Args

    from _traincheck.watch import Watch

_OBSERVED = "_traincheck_observed"


def look(watch: Watch) -> None:
    """Observes the functions that there are; called at an optimizer's first step."""
    # Names of modules, by the id of the function that they have.
    places: dict[int, list[tuple[dict[str, Any], str]]] = {}
    modules = {id(names): names for names in user_modules()}  # each once
    for names in modules.values():
        for name in list(names):
            if _moves_models(names[name]):
                places.setdefault(id(names[name]), []).append((names, name))
    for known in places.values():
        names, name = known[0]
        function = names[name]
        # Whoever else keeps it may pickle it, by its name, which is about to be another
        # function's: for each of the modules a reference, and two here.
        if sys.getrefcount(function) > len(known) + 2 or _may_not_move(function):
            continue
        observed = _observed(watch, function)
        for names, name in known:
            names[name] = observed


def _moves_models(value: Any) -> bool:
    if type(value) is not types.FunctionType or hasattr(value, _OBSERVED):
        return False
    return moves_averages(value.__name__) and reads_weights(value)


def _may_not_move(function: types.FunctionType) -> bool:
    """On purpose: does it wait for a number, or return early?"""
    return waits(function) or any(
        isinstance(node, ast.If) and any(map(_is_return, ast.walk(node)))
        for node in own_nodes(body_of(unwrapped(function).__code__))
    )


def _is_return(node: ast.AST) -> bool:
    return isinstance(node, ast.Return)


def _observed(watch: Watch, function: types.FunctionType) -> Any:
    def begins(given: Args) -> None:
        watch.standing_averages.mixing_begins(given, unwrapped(function))

    def ended(given: Args) -> None:
        watch.standing_averages.mixed(given)

    @functools.wraps(function)
    def observed(*args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        quietly(watch.core, begins, given)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            # Tracebacks show the user's frames, not this one.
            error.__traceback__ = error.__traceback__.tb_next  # type: ignore[union-attr]
            raise
        quietly(watch.core, ended, given)
        return result

    setattr(observed, _OBSERVED, frozenset())
    setattr(observed, "_torchdynamo_disable", True)
    return observed
