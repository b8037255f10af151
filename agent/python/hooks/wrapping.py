"""Putting the core's wrapper in place of functions and methods."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from typing import TYPE_CHECKING

import torch

from _traincheck import naming

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from traincheck_core import Core

    from _traincheck.selection import Row
    from _traincheck.user_code import _Kind
    from _traincheck.watch import Watch

    Replaced = dict[int, tuple[Any, Any]]  # by id: original, replacement


def wrap_method(
    watch: Watch,
    cls: type[Any],
    method: str,
    category: str,
    compiled: bool = False,
    **callbacks: Any,
) -> None:
    """Wraps a method that cls itself defines, once.

    compiled: the compiler can trace through calls of it, at the price of one
    more Python frame. In compiled code nothing is recorded.
    """
    fn = cls.__dict__.get(method)
    if not isinstance(fn, types.FunctionType) or watch.core.is_wrapper(fn):
        return
    name = f"{naming.class_name(cls)}.{method}"
    roles = naming.roles(cls, method)
    wrapper = watch.core.wrap(fn, name, category, roles, **callbacks)
    watch.planner.add(wrapper, [name, *roles], is_method=True)
    if compiled:
        wrapper._torchdynamo_inline = fn
        setattr(cls, method, _traceable(fn, wrapper))
        return
    if method != "step":
        # The compiler cannot look into a method that is no function: it breaks
        # its graph at the call. (Torch's function around a step would inherit
        # the attribute; it is one that the compiler passes by anyway.)
        wrapper._torchdynamo_disable = True
    setattr(cls, method, wrapper)


def _traceable(fn: Callable[..., Any], wrapper: Any) -> Callable[..., Any]:
    @functools.wraps(fn)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return wrapper(self, *args, **kwargs)

    return call


def wrap_value(watch: Watch, fn: Callable[..., Any], full_name: str, row: Row) -> Any:
    """Wraps a function by a row of the catalogue, wherever torch refers to it."""
    wrapper = watch.core.wrap(fn, full_name, row.category, row.roles, detail=True)
    watch.planner.add(wrapper, [full_name, *row.roles], detail=True)
    if isinstance(fn, types.FunctionType):
        wrapper._torchdynamo_inline = fn
    watch.replaced[id(fn)] = (fn, wrapper)
    return wrapper


def wrap_member(
    watch: Watch, cls: type[Any], name: str, member: Any, row: Row | _Kind
) -> None:
    """Wraps a method of any kind that cls itself defines, by a row."""
    kind = type(member)
    fn = member.__func__ if kind in (staticmethod, classmethod) else member
    if not isinstance(fn, types.FunctionType) or is_wrapped(watch.core, fn):
        return
    full_name = f"{naming.class_name(cls)}.{name}"
    roles = (*naming.roles(cls, name), *row.roles)
    if not watch.planner.wraps([full_name, *roles]):
        return
    wrapper = watch.core.wrap(fn, full_name, row.category, roles, detail=True)
    is_method = kind is not staticmethod
    watch.planner.add(wrapper, [full_name, *roles], is_method, detail=True)
    shim = stand_in(fn, wrapper)
    setattr(cls, name, kind(shim) if fn is not member else shim)


def is_wrapped(core: Core, fn: Any) -> bool:
    return core.is_wrapper(fn) or core.is_wrapper(getattr(fn, _WRAPPER, None))


# Attribute of a stand-in: the wrapper that it calls.
_WRAPPER = "__traincheck__"


def stand_in(fn: types.FunctionType, wrapper: Any) -> Any:
    """A Python function for `wrapper`, which the compilers take for `fn`.

    torch's compiler looks into it and finds fn; TorchScript finds fn's source
    (by __wrapped__), its globals and the variables that it closes over.
    """
    wrapper._torchdynamo_inline = fn
    closed = fn.__code__.co_freevars
    code = _stand_in_code(closed)
    cells = dict(zip(closed, fn.__closure__ or ()))
    cells[_WRAPPER] = types.CellType(wrapper)
    shim: Any = types.FunctionType(
        code,
        fn.__globals__,
        fn.__name__,
        None,
        tuple(cells[name] for name in code.co_freevars),
    )
    functools.update_wrapper(shim, fn)
    # For those who ask without following __wrapped__ (getfullargspec).
    try:
        shim.__signature__ = inspect.signature(fn)
    except (TypeError, ValueError):
        pass  # it has none to show
    setattr(shim, _WRAPPER, wrapper)
    return shim


def restore_attributes(attributes: dict[str, Any]) -> None:
    """Makes what was copied of a stand-in's attributes those of its function: ours
    refer to what cannot be pickled."""
    wrapper = attributes.pop(_WRAPPER, None)
    if wrapper is None:
        return
    own = vars(wrapper.__wrapped__)
    for name in ("__wrapped__", "__signature__"):
        attributes.pop(name, None)
        if name in own:
            attributes[name] = own[name]


@functools.lru_cache(maxsize=None)
def _stand_in_code(closed: tuple[str, ...]) -> types.CodeType:
    # Names that are never reached belong to the closure all the same.
    names = ", ".join((*closed, _WRAPPER))
    source = (
        f"def around({names}):\n"
        " def call(*args, **kwargs):\n"
        f"  return {_WRAPPER}(*args, **kwargs)\n"
        f"  {names}\n"
    )
    code: types.CodeType = compile(
        source, "<traincheck/call>", "exec", dont_inherit=True
    )
    for _ in range(2):
        code = next(c for c in code.co_consts if isinstance(c, types.CodeType))
    return code


def wrap_function(
    watch: Watch, module: types.ModuleType, name: str, category: str, **callbacks: Any
) -> None:
    """Wraps a function of a torch module, wherever torch refers to it."""
    fn = getattr(module, name, None)
    if not isinstance(fn, types.FunctionType) or watch.core.is_wrapper(fn):
        return
    full_name = f"{module.__name__}.{name}"
    wrapper = watch.core.wrap(fn, full_name, category, (), **callbacks)
    watch.planner.add(wrapper, [full_name])
    # In compiled code fn takes the wrapper's place; nothing is recorded there.
    # (A method must not have this: the compiler would lose its self.)
    wrapper._torchdynamo_inline = fn
    watch.replaced[id(fn)] = (fn, wrapper)


def substitute(replaced: Replaced) -> None:
    """Exchanges functions in all namespaces of torch: many import them by name."""
    for module_name, module in list(sys.modules.items()):
        if module_name != "torch" and not module_name.startswith("torch."):
            continue
        namespace = getattr(module, "__dict__", {})
        for name, value in list(namespace.items()):
            pair = replaced.get(id(value))
            if pair is not None:
                namespace[name] = pair[1]


def quietly(core: Core, callback: Callable[..., object], *args: Any) -> None:
    """Calls a hook of ours where the core does not stand before user code. Not while
    torch.jit.trace follows: what a hook asks would become a part of the graph."""
    if torch._C._get_tracing_state() is not None:
        return
    begin = core.hook_begins()
    try:
        callback(*args)
    except Exception as error:
        if core.is_users(error):
            raise
        core.log_once(
            f"hook:{callback.__qualname__}",
            f"{callback.__qualname__}: {type(error).__name__}: {error}",
        )
        # As Sight says it, which may be what has failed.
        core.record_scalar(0, core.POINT_CONSTRUCTION, 0, "sight:limit failed", 1.0)
    finally:
        core.hook_ends(begin)
