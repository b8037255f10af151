"""DistributedDataParallel: construction, and where its inner forward begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck import naming
from _traincheck import wrapping
from _traincheck.modules import forward_begins
from _traincheck.observing import observe

if TYPE_CHECKING:
    from typing import Any

    from torch.nn.parallel import DistributedDataParallel as DDP
    from traincheck_core import Args, Kwargs

    from _traincheck.parts import Part
    from _traincheck.watch import Watch


class _Construction:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def after(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        if error is not None:
            return
        watch, wrapper = self._watch, args[0]
        watch.process.trains()
        model = watch.models.ensure(wrapper)
        if model is None:
            return
        # Parameters that were replaced since the model was seen are its replicas.
        watch.models.refresh(model)
        watch.holds.settle()
        core = watch.core
        inner = naming.unwrap(wrapper)[0]
        number = core.define_object(
            wrapper, core.OBJECT_MODULE, wrapped=core.object_id(inner)
        )
        parts = watch.models.parts_below(inner)
        self._define_replicas(wrapper, number, inner, parts)
        if kwargs.get("init_sync", True):
            watch.wrapped_apart.wrapped(wrapper)
        watch.states.parts(core.POINT_WRAP_END, parts)

    def _define_replicas(
        self, wrapper: DDP, number: int, inner: torch.nn.Module, parts: list[Part]
    ) -> None:
        ranks = torch.distributed.get_process_group_ranks(wrapper.process_group)
        if len(ranks) > 1:
            self._watch.wrapper_inputs.wrapped(wrapper)
            self._watch.rank_draws.wrapped(wrapper.process_group)
            self._watch.frozen_parts.wrapped(wrapper.process_group)
            self._watch.local_backwards.wrapped(wrapper)
            self._watch.past_wrappers.wrapped(wrapper)
            self._watch.moved_replicas.wrapped(wrapper)
            self._watch.schedules.plateaus.wrapped(wrapper, wrapper.process_group)
        ignored = {
            naming.strip_prefixes(name)
            for name in getattr(wrapper, "parameters_to_ignore", ())
        }
        paths = {id(module): path for path, module in naming.walk(inner)}
        variables = []
        for part in parts:
            # Buffers that are never broadcast again are no replicas.
            rows = part.params + (part.buffers if wrapper.broadcast_buffers else [])
            path = paths[id(part.module())]
            variables += [
                variable
                for key, variable in rows
                if naming.join(path, key) not in ignored
            ]
        every = [variable for part in parts for _, variable in part.params]
        self._watch.unwrapped_parts.wrapped(wrapper.process_group, every)
        self._watch.wrapped_models.wrapped(every)
        topology = self._watch.topology
        topology.define_replicas(
            topology.next_replica_group(),
            "DistributedDataParallel",
            number,
            wrapper.process_group,
            variables,
        )


def install(watch: Watch) -> None:
    ddp = torch.nn.parallel.DistributedDataParallel
    wrapping.wrap_method(
        watch, ddp, "__init__", "wrap", after=_Construction(watch).after
    )

    def inner_forward_begins(wrapper: DDP, args: Args, kwargs: Kwargs) -> None:
        if not torch.is_grad_enabled() or watch.clock.inside_backward():
            return
        watch.wrapper_inputs.forward_begins(wrapper, args, kwargs)
        watch.local_backwards.forward_begins(wrapper)
        watch.past_wrappers.forward_begins(wrapper)
        if not watch.recorded.states:
            return
        model = watch.models.find(wrapper)
        if model is not None:
            # Inside no_sync() buffers may stay as each rank left them.
            buffers = wrapper.will_sync_module_buffers()
            forward_begins(watch, model, naming.unwrap(wrapper)[0], buffers)

    # Calls the inner module; the broadcast is done. (torch itself ends a
    # compiled graph within this function.)
    observe(watch, ddp, "_run_ddp_forward", before=inner_forward_begins)
