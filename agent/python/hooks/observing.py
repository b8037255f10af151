"""Looking at calls of methods and functions without a record of the call itself."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING

from _traincheck.wrapping import quietly

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from traincheck_core import Args, Kwargs

    from _traincheck.watch import Watch

_OBSERVED = "_traincheck_observed"


def observe(
    watch: Watch,
    cls: type[Any],
    method: str,
    before: Callable[[Any, Args, Kwargs], None] | None = None,
    after: Callable[[Any, Args, Any], None] | None = None,
) -> None:
    """Runs before(self, args, kwargs) and after(self, args, result) around a method.

    What cls itself defines, once. after does not run where the method raises.
    """
    fn: Any = cls.__dict__.get(method)
    if not isinstance(fn, types.FunctionType) or hasattr(fn, _OBSERVED):
        return

    @functools.wraps(fn)
    def observed(self: Any, *args: Any, **kwargs: Any) -> Any:
        if before is not None:
            quietly(watch.core, before, self, args, kwargs)
        try:
            result = fn(self, *args, **kwargs)
        except BaseException as error:
            # Tracebacks show the user's frames and torch's, not this one.
            error.__traceback__ = error.__traceback__.tb_next  # type: ignore[union-attr]
            raise
        if after is not None:
            quietly(watch.core, after, self, args, result)
        return result

    setattr(observed, _OBSERVED, True)
    # The compiler does not look into it and breaks its graph at the call.
    setattr(observed, "_torchdynamo_disable", True)
    setattr(cls, method, observed)


def observe_function(
    watch: Watch,
    module: types.ModuleType,
    name: str,
    before: Callable[[Args, Kwargs], None] | None = None,
    after: Callable[[Args, Kwargs, Any], None] | None = None,
) -> None:
    """Runs before(args, kwargs) in front of a function that only torch itself calls, by
    this name of its module, and after(args, kwargs, result) behind it: compilers know
    public ones by their identity."""
    fn: Any = getattr(module, name, None)
    if not isinstance(fn, types.FunctionType) or hasattr(fn, _OBSERVED):
        return

    @functools.wraps(fn)
    def observed(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            quietly(watch.core, before, args, kwargs)
        try:
            result = fn(*args, **kwargs)
        except BaseException as error:
            error.__traceback__ = error.__traceback__.tb_next  # type: ignore[union-attr]
            raise
        if after is not None:
            quietly(watch.core, after, args, kwargs, result)
        return result

    setattr(observed, _OBSERVED, True)
    setattr(module, name, observed)
