"""Process groups and collectives."""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING

import torch

from _traincheck.gathered_rows import GATHERS
from _traincheck.wrapping import wrap_function
from _traincheck.wrapping import wrap_method

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from torch.distributed import ProcessGroup
    from traincheck_core import Args, Kwargs

    from _traincheck.watch import Watch

_COLLECTIVES = (
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "monitored_barrier",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
)


# By which each rank gets what is meant for it alone.
_EXCHANGES = ("all_to_all", "all_to_all_single")

# What makes groups and returns one of them.
_MAKERS = ("new_group", "split_group")


class _Collective:
    """Names the group of one function's calls."""

    def __init__(self, watch: Watch, function: Callable[..., Any]) -> None:
        self._watch = watch
        names = list(inspect.signature(function).parameters)
        self._position = names.index("group") if "group" in names else len(names)
        self._reduces = function.__name__ == "all_reduce"
        self._exchanges = function.__name__ in _EXCHANGES
        self._name = function.__name__

    def before(self, args: Args, kwargs: Kwargs) -> None:
        group = self._group(args, kwargs)
        self._watch.topology.enter_collective(group)
        self._watch.past_wrappers.collective()
        self._watch.ungathered_shares.collective(self._name)
        if self._reduces and self._watch.signs.alone():
            self._watch.averaged_gradients.reduces(group, args, kwargs)
        if self._exchanges:
            self._watch.unwrapped_parts.exchanges()

    def after(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        self._watch.topology.leave_collective()
        # A result is what the program waits for later.
        if error is None and result is None and self._name in GATHERS:
            if self._watch.signs.alone():
                group = self._group(args, kwargs)
                self._watch.gathered_rows.gathered(self._name, group, args, kwargs)

    def _group(self, args: Args, kwargs: Kwargs) -> Any:
        group = kwargs.get("group")
        if group is None and len(args) > self._position:
            group = args[self._position]
        return _default_group() if group is None else group


def _default_group() -> ProcessGroup | None:
    distributed = torch.distributed
    return distributed.group.WORLD if distributed.is_initialized() else None


class _Groups:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def initialized(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        if error is None:
            self._watch.process.binds_rank()
            self._watch.topology.ensure(_default_group())

    def made(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        if error is None:
            self._watch.topology.ensure(result)

    def destroys(self, args: Args, kwargs: Kwargs) -> None:
        self._watch.clock.group_destroyed()

    def destroyed(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        if not torch.distributed.is_initialized():
            self._watch.topology.forget()

    def mesh_made(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        if error is None:
            self._watch.topology.add_mesh(args[0])


def install(watch: Watch) -> None:
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    groups = _Groups(watch)
    wrap_function(
        watch,
        distributed_c10d,
        "init_process_group",
        "init_process_group",
        after=groups.initialized,
    )
    wrap_function(
        watch,
        distributed_c10d,
        "destroy_process_group",
        "destroy_process_group",
        before=groups.destroys,
        after=groups.destroyed,
    )
    for name in _MAKERS:
        wrap_function(watch, distributed_c10d, name, "new_group", after=groups.made)
    for name in _COLLECTIVES:
        function = getattr(distributed_c10d, name, None)
        if not isinstance(function, types.FunctionType):
            continue
        collective = _Collective(watch, function)
        wrap_function(
            watch,
            distributed_c10d,
            name,
            "collective",
            before=collective.before,
            after=collective.after,
            outermost_only=False,
        )
    mesh = getattr(torch.distributed, "DeviceMesh", None)
    if mesh is not None:
        wrap_method(watch, mesh, "__init__", "device_mesh", after=groups.mesh_made)
