"""Looking at calls of methods without a record of the call itself."""

import functools
import types

from _traincheck.wrapping import quietly

_OBSERVED = "_traincheck_observed"


def observe(watch, cls, method, before=None, after=None):
    """Runs before(self, args) and after(self, args, result) around a method.

    What cls itself defines, once. after does not run where the method raises.
    """
    fn = cls.__dict__.get(method)
    if not isinstance(fn, types.FunctionType) or hasattr(fn, _OBSERVED):
        return

    @functools.wraps(fn)
    def observed(self, *args, **kwargs):
        if before is not None:
            quietly(watch.core, before, self, args)
        try:
            result = fn(self, *args, **kwargs)
        except BaseException as error:
            # Tracebacks show the user's frames and torch's, not this one.
            error.__traceback__ = error.__traceback__.tb_next
            raise
        if after is not None:
            quietly(watch.core, after, self, args, result)
        return result

    setattr(observed, _OBSERVED, True)
    # The compiler does not look into it and breaks its graph at the call.
    observed._torchdynamo_disable = True
    setattr(cls, method, observed)
