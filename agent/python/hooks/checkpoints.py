"""Checkpoints: saving, loading, and states given and taken."""

import torch

from _traincheck.wrapping import wrap_function
from _traincheck.wrapping import wrap_method


class _Checkpoints:
    def __init__(self, watch):
        self._watch = watch

    def saving(self, args, kwargs):
        saved = args[0] if args else kwargs.get("obj")
        if _holds_tensors(saved):
            self._watch.states.all_models(self._watch.core.POINT_SAVE)

    def loaded(self, token, args, kwargs, result, error):
        watch = self._watch
        model = watch.models.find(args[0])
        if error is None and model is not None:
            if watch.models.refresh(model):
                watch.states.parts(watch.core.POINT_LOAD, model.own)


def _holds_tensors(value, depth=2):
    """Is it a model, its state, or a dictionary that has one in it?"""
    if isinstance(value, (torch.nn.Module, torch.Tensor)):
        return True
    if isinstance(value, dict) and depth > 0:
        return any(_holds_tensors(item, depth - 1) for item in value.values())
    return False


def install(watch):
    checkpoints = _Checkpoints(watch)
    module, optimizer = torch.nn.Module, torch.optim.Optimizer
    wrap_function(watch, torch.serialization, "save", "save", before=checkpoints.saving)
    wrap_function(watch, torch.serialization, "load", "load")
    wrap_method(
        watch, module, "load_state_dict", "load_state_dict", after=checkpoints.loaded
    )
    wrap_method(watch, module, "state_dict", "state_dict", compiled=True)
    wrap_method(watch, optimizer, "load_state_dict", "load_state_dict")
    wrap_method(watch, optimizer, "state_dict", "state_dict")
