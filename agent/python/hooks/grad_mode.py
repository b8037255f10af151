"""Contexts that switch gradients."""

import functools
import types

from torch.autograd import grad_mode

from _traincheck import naming

_CONTEXTS = ("no_grad", "enable_grad", "inference_mode", "set_grad_enabled")


def observe(core, cls, method, entering):
    fn = cls.__dict__.get(method)
    if not isinstance(fn, types.FunctionType):
        return
    name = naming.class_name(cls)

    @functools.wraps(fn)
    def observed(self, *args):
        result = fn(self, *args)
        core.record_context(entering, name)
        return result

    setattr(cls, method, observed)


def install(watch):
    for name in _CONTEXTS:
        cls = getattr(grad_mode, name, None)
        if cls is not None:
            observe(watch.core, cls, "__enter__", True)
            observe(watch.core, cls, "__exit__", False)
