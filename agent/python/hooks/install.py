"""Entry of the agent's Python half: puts every hook in place.

`install(core)` runs once a process, right after torch has been imported and
before any user code sees torch. A hook that does not fit this torch is left
out with one line on stderr; the others work on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck import autocast_casts
from _traincheck import autograd
from _traincheck import blind_samples
from _traincheck import budget
from _traincheck import checkpointing
from _traincheck import checkpoints
from _traincheck import clipping
from _traincheck import contexts
from _traincheck import cuda_graphs
from _traincheck import ddp
from _traincheck import distributed
from _traincheck import full_collection
from _traincheck import generators
from _traincheck import hidden_parts
from _traincheck import loaders
from _traincheck import model_averaging
from _traincheck import modules
from _traincheck import optimizers
from _traincheck import penalties
from _traincheck import probe
from _traincheck import process
from _traincheck import resized_masks
from _traincheck import samplers
from _traincheck import scaler
from _traincheck import scaling
from _traincheck import schedulers
from _traincheck import shadows
from _traincheck import sight
from _traincheck import ties
from _traincheck import uneven_inputs
from _traincheck import unused_splits
from _traincheck import user
from _traincheck import wrapping
from _traincheck.compiler import hide_from_compiler
from _traincheck.planner import collects
from _traincheck.planner import first_plan
from _traincheck.watch import Watch

if TYPE_CHECKING:
    from traincheck_core import Core

_HOOKS = (
    process,
    modules,
    ddp,
    optimizers,
    scaler,
    autocast_casts,
    autograd,
    blind_samples,
    checkpointing,
    clipping,
    contexts,
    cuda_graphs,
    distributed,
    resized_masks,  # before the loaders' hook, which wraps what it leaves
    loaders,
    model_averaging,
    uneven_inputs,
    checkpoints,
    penalties,
    probe,
    generators,
    hidden_parts,
    samplers,
    scaling,
    schedulers,
    shadows,
    sight,
    ties,
    unused_splits,
    user,
    full_collection,  # wraps what the hooks before it have left
)


def install(core: Core) -> Watch | None:
    """The Watch; None: the plan says that nothing is recorded."""
    plan = first_plan(core)
    bound = budget.from_settings(core, collects(core))
    if plan.mode == "off":
        return None
    watch = Watch(core, plan, bound)
    for hook in _HOOKS:
        try:
            hook.install(watch)
        except Exception as error:
            core.log_once(
                f"install:{hook.__name__}",
                f"{hook.__name__} is not active: {type(error).__name__}: {error}",
            )
            watch.sight.limited_by("failed")
    wrapping.substitute(watch.replaced)
    full_collection.reach_beyond(watch)
    hide_from_compiler("_traincheck")
    return watch
