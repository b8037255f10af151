"""Gradient clipping."""

from torch.nn.utils import clip_grad

from _traincheck.wrapping import wrap_function

_FUNCTIONS = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm")


class _Clip:
    """The parameters may come as a generator, which must not be consumed here:
    the gradients of all known parameters are recorded."""

    def __init__(self, watch):
        self._watch = watch

    def before(self, args, kwargs):
        watch = self._watch
        watch.states.all_gradients(watch.core.POINT_PRE_CLIP)

    def after(self, token, args, kwargs, result, error):
        watch = self._watch
        if error is None:
            watch.states.all_gradients(watch.core.POINT_POST_CLIP)


def install(watch):
    clip = _Clip(watch)
    for name in _FUNCTIONS:
        wrap_function(
            watch, clip_grad, name, "clip_grad", before=clip.before, after=clip.after
        )
