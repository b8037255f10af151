"""Checkpoints: saving, loading, and states given and taken."""

from __future__ import annotations

import collections
import sys
from typing import TYPE_CHECKING

import torch

from _traincheck import naming
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.imports import Imports
from _traincheck.module_content import named_buffers_in, named_parameters_in
from _traincheck.renamed_parts import NAME as LEAVES_RENAMED
from _traincheck.renamed_parts import leaves_renamed
from _traincheck.shared_files import NAME as SHARED_BY_RANKS
from _traincheck.wrapping import wrap_function
from _traincheck.wrapping import wrap_method

if TYPE_CHECKING:
    import types
    from typing import Any

    from traincheck_core import Args, Kwargs

    from _traincheck.watch import Watch

    LateFunctions = dict[str, dict[str, tuple[str, dict[str, Any]]]]


class _Checkpoints:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        # Open saves and loads that call torch.save and load for their parts.
        self._inside = 0
        # What state_dict has given -> steps begun until then, and what was written to
        # the model until then.
        self._given: WeakIdentityMap[Any, tuple[int, int | None]] = WeakIdentityMap()
        # What was written to a model when it had taken over its last state.
        self._taken: WeakIdentityMap[Any, int | None] = WeakIdentityMap()

    def saving(self, args: Args, kwargs: Kwargs) -> None:
        watch = self._watch
        if self._inside:
            return
        saved = args[0] if args else kwargs.get("obj")
        watch.checkpoints.record(watch.core.POINT_SAVE, saved)
        path = args[1] if len(args) > 1 else kwargs.get("f")
        shared = watch.shared_files.saves(path)
        if shared is not None:
            point = watch.core.POINT_SAVE
            watch.core.record_scalar(0, point, 0, SHARED_BY_RANKS, shared)
        watch.stateless_resumes.saves(path, saved, watch.holds.optimizers())
        watch.unstepped_states.saves(saved)
        watch.forgotten_bests.saves(saved)
        if _holds_states(saved):
            watch.states.all_models(watch.core.POINT_SAVE)
            steps = watch.clock.steps_begun()
            if steps:
                watch.kept_bests.keeps(steps)

    def loaded(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        if error is None and not self._inside:
            self._watch.checkpoints.record(self._watch.core.POINT_LOAD, result)
            self._watch.positions.loaded(result)
            path = args[0] if args else kwargs.get("f")
            self._watch.stateless_resumes.loaded(path, result)
            self._watch.resumed_schedules.loaded(result)
            self._watch.loaded_states.loaded(result)
            self._watch.forgotten_bests.loaded(result)

    def takes_state(self, args: Args, kwargs: Kwargs) -> None:
        watch = self._watch
        state = args[1] if len(args) > 1 else kwargs.get("state_dict")
        point = watch.core.POINT_LOAD_STATE_DICT
        watch.checkpoints.record_once(point, args[0], state)
        watch.ties.loading(args[0], state)
        watch.positions.takes(args[0], state)
        optimizers = watch.holds.optimizers()
        watch.stateless_resumes.takes(args[0], state, optimizers)
        watch.remade_optimizers.loads(args[0])
        watch.schedules.loads(args[0], state)
        if isinstance(args[0], torch.optim.Optimizer):
            watch.resumed_scales.optimizer_loads(state)
            watch.resumed_schedules.optimizer_loads(args[0], state)
            watch.forgotten_bests.takes(state)
        steps = watch.clock.steps_begun()
        given = self._given.get(state)
        # Before the first step others may have written into them: a resume does.
        own = steps > 0 and _is_its_own(args[0], state)
        if own and given is not None and given[0] == steps:
            own = not self._is_filled_in(args[0], given[1])
        if own or (given is not None and given[0] < steps):
            watch.core.record_scalar(0, point, 0, "load.of_itself", float(own))

    def _is_filled_in(self, module: Any, given: int | None) -> bool:
        """Has somebody written into what state_dict gave, other than the model when it
        took over a state? A file is read into it so, as by torch.distributed."""
        now = _writes(module)
        if now is None or given is None or now <= given:
            return False
        return now != self._taken.get(module)

    def _say(self, name: str, value: bool | None) -> None:
        core = self._watch.core
        if value is not None:
            core.record_scalar(0, core.POINT_LOAD_STATE_DICT, 0, name, float(value))

    def module_took(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        watch = self._watch
        model = watch.models.find(args[0])
        if error is None:
            self._taken.set(args[0], _writes(args[0]))
            state = args[1] if len(args) > 1 else kwargs.get("state_dict")
            watch.followers.loads()
            watch.frozen_parts.loads(args[0])
            watch.hidden_parts.loads(args[0], state)
            watch.kept_averages.loads(args[0])
            watch.loaded_states.took(args[0], state)
            self._say("load.of_nothing", _fits_nothing(args[0], state, result))
            self._say(LEAVES_RENAMED, leaves_renamed(args[0], state, result))
        if error is None and model is not None:
            if watch.models.refresh(model):
                watch.states.parts(watch.core.POINT_LOAD, model.own)

    def gave_state(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        # A module asks its children, which put theirs into one dictionary.
        if error is None and len(args) == 1 and kwargs.get("destination") is None:
            watch = self._watch
            point = watch.core.POINT_STATE_DICT
            watch.checkpoints.record_once(point, args[0], result)
            watch.unstepped_states.gave_state(args[0], result)
            if isinstance(result, collections.OrderedDict):
                steps = watch.clock.steps_begun()
                self._given.set(result, (steps, _writes(args[0])))
                if steps and isinstance(args[0], torch.nn.Module):
                    watch.kept_bests.keeps(steps)
                    watch.shared_bests.gave(result)

    def saving_parts(self, args: Args, kwargs: Kwargs) -> None:
        """Of torch.distributed.checkpoint and safetensors."""
        saved = args[0] if args else next(iter(kwargs.values()), None)
        self.saving((saved,), {})
        self._inside += 1

    def saved_parts(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        self._inside -= 1

    def loading_parts(self, args: Args, kwargs: Kwargs) -> None:
        self._inside += 1

    def loaded_into(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        """What was asked for has been filled in."""
        self._inside -= 1
        into = args[0] if args else kwargs.get("state_dict")
        self.loaded(token, args, kwargs, into, error)

    def loaded_parts(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        self._inside -= 1
        self.loaded(token, args, kwargs, result, error)


def _fits_nothing(module: Any, state: Any, result: Any) -> bool | None:
    """Does no name of the state fit one of the module's? None: one has none."""
    unexpected = getattr(result, "unexpected_keys", None)
    if not isinstance(unexpected, list) or not state:
        return None
    if next(torch.nn.Module.parameters(module), None) is None:
        return None
    return len(unexpected) >= len(state)


def _writes(module: Any) -> int | None:
    """How often its first parameter was written to; None: not known."""
    if not isinstance(module, torch.nn.Module):
        return None
    first = next(torch.nn.Module.parameters(module), None)
    return None if first is None or first.is_inference() else first._version


def _is_its_own(module: Any, state: Any) -> bool:
    """Is all that the module is given its own memory, kept by reference?"""
    if not isinstance(module, torch.nn.Module) or not isinstance(state, dict):
        return False
    pairs = [(state.get(name), live) for name, live in named_parameters_in(module)]
    if not pairs or not all(_is_one_memory(kept, live) for kept, live in pairs):
        return False
    # Who takes over the statistics of another model alone gives the rest back.
    buffers = [one for one in named_buffers_in(module) if one[0] in state]
    return all(
        _is_one_memory(state[name], live) for name, live in buffers if live.numel() > 0
    )


def _is_one_memory(kept: Any, live: torch.Tensor) -> bool:
    return (
        type(kept) is torch.Tensor
        and kept.layout == torch.strided
        and not kept.is_meta
        and kept.numel() > 0
        and kept.data_ptr() == live.data_ptr()
    )


def _holds_states(value: Any, depth: int = 2) -> bool:
    """Is it a model, or a dictionary with tensors in it?"""
    if isinstance(value, torch.nn.Module):
        return True
    if isinstance(value, dict) and depth > 0:
        return any(
            isinstance(item, torch.Tensor) or _holds_states(item, depth - 1)
            for item in value.values()
        )
    return False


def _late_functions(checkpoints: _Checkpoints) -> LateFunctions:
    """module -> {function: (category, callbacks)} of what is imported later."""
    save = {"before": checkpoints.saving_parts, "after": checkpoints.saved_parts}
    fill = {"before": checkpoints.loading_parts, "after": checkpoints.loaded_into}
    load = {"before": checkpoints.loading_parts, "after": checkpoints.loaded_parts}
    distributed = "torch.distributed.checkpoint.state_dict_"
    return {
        distributed + "saver": {"save": ("save", save), "async_save": ("save", save)},
        distributed + "loader": {"load": ("load", fill)},
        # save_model and load_model call these.
        "safetensors.torch": {
            "save_file": ("save", save),
            "save": ("save", save),
            "load_file": ("load", load),
            "load": ("load", load),
        },
    }


def _wrap_late(watch: Watch, functions: LateFunctions) -> None:
    def imported(module: types.ModuleType) -> None:
        for name, (category, callbacks) in functions[module.__name__].items():
            wrap_function(watch, module, name, category, **callbacks)
            pair = watch.replaced.get(id(getattr(module, name, None)))
            if pair is not None:
                setattr(module, name, pair[1])

    waited = set()
    for name in functions:
        if name in sys.modules:
            imported(sys.modules[name])
        else:
            waited.add(name)
    Imports(watch.core, waited, imported).install()


def install(watch: Watch) -> None:
    checkpoints = _Checkpoints(watch)
    module, optimizer = torch.nn.Module, torch.optim.Optimizer
    give: dict[str, Any] = {"after": checkpoints.gave_state}
    take: dict[str, Any] = {"before": checkpoints.takes_state}
    wrap_function(watch, torch.serialization, "save", "save", before=checkpoints.saving)
    wrap_function(watch, torch.serialization, "load", "load", after=checkpoints.loaded)
    wrap_method(
        watch,
        module,
        "load_state_dict",
        "load_state_dict",
        after=checkpoints.module_took,
        **take,
    )
    wrap_method(watch, module, "state_dict", "state_dict", compiled=True, **give)
    wrap_method(watch, optimizer, "load_state_dict", "load_state_dict", **take)
    wrap_method(watch, optimizer, "state_dict", "state_dict", **give)
    _wrap_late(watch, _late_functions(checkpoints))
