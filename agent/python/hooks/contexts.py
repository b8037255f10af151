"""Contexts of user code: recorded where they are entered, with what they were
made with, and where they are left."""

from __future__ import annotations

import contextlib
import functools
import types
from typing import TYPE_CHECKING

import torch
from torch.amp import autocast_mode
from torch.autograd import anomaly_mode, grad_mode
from torch.nn.parallel import distributed

from _traincheck import naming

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from traincheck_core import Core

    from _traincheck.watch import Watch

# Of each class the arguments that its entry tells: name and the attribute of
# the instance that holds it.
CLASSES: tuple[tuple[Any, str, dict[str, str]], ...] = (
    (grad_mode, "no_grad", {}),
    (grad_mode, "enable_grad", {}),
    (grad_mode, "inference_mode", {"mode": "mode"}),
    (grad_mode, "set_grad_enabled", {"mode": "mode"}),
    (
        autocast_mode,
        "autocast",
        {
            "device_type": "device",
            "dtype": "fast_dtype",
            "enabled": "_enabled",
            "cache_enabled": "_cache_enabled",
        },
    ),
    (anomaly_mode, "detect_anomaly", {"check_nan": "check_nan"}),
)

# Functions that give a context manager made of a generator.
MANAGERS = (
    (distributed.DistributedDataParallel, "no_sync"),
    (torch.random, "fork_rng"),
)


def _observe_class(core: Core, cls: type[Any], arguments: Mapping[str, str]) -> None:
    name = naming.class_name(cls)

    def entered(self: Any) -> None:
        # By the instance's dictionary: no code of a subclass runs.
        known = vars(self)
        given = {key: known[at] for key, at in arguments.items() if at in known}
        core.record_context(True, name, given)

    def left(self: Any) -> None:
        core.record_context(False, name)

    for method, tell in (("__enter__", entered), ("__exit__", left)):
        fn = cls.__dict__.get(method)
        if isinstance(fn, types.FunctionType):
            setattr(cls, method, _observed(fn, tell))


def _observed(
    fn: Callable[..., Any], tell: Callable[[Any], None]
) -> Callable[..., Any]:
    @functools.wraps(fn)
    def observed(self: Any, *args: Any) -> Any:
        result = fn(self, *args)
        tell(self)
        return result

    return observed


def _observe_manager(core: Core, owner: Any, attribute: str) -> None:
    fn = vars(owner).get(attribute)
    if not isinstance(fn, types.FunctionType):
        return
    name = f"{fn.__module__}.{fn.__qualname__}"

    @contextlib.contextmanager
    @functools.wraps(fn)
    def observed(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with fn(*args, **kwargs) as value:
            core.record_context(True, name)
            try:
                yield value
            finally:
                core.record_context(False, name)

    setattr(owner, attribute, observed)


def install(watch: Watch) -> None:
    for module, name, arguments in CLASSES:
        cls = getattr(module, name, None)
        if cls is not None:
            _observe_class(watch.core, cls, arguments)
    for owner, attribute in MANAGERS:
        _observe_manager(watch.core, owner, attribute)
