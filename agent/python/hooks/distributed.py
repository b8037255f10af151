"""Process groups and collectives."""

import torch

from _traincheck.wrapping import wrap_function

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


def install(watch):
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    def initialized(token, args, kwargs, result, error):
        if error is None:
            watch.process.binds_rank()

    def destroyed(args, kwargs):
        watch.clock.end()

    wrap_function(
        watch,
        distributed_c10d,
        "init_process_group",
        "init_process_group",
        after=initialized,
    )
    wrap_function(
        watch,
        distributed_c10d,
        "destroy_process_group",
        "destroy_process_group",
        before=destroyed,
    )
    for name in _COLLECTIVES:
        wrap_function(watch, distributed_c10d, name, "collective")
