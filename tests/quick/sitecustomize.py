"""What each interpreter of the suite begins with: it saves two of the four seconds that a
small training takes, and changes nothing that a test looks at.

torch imports its compiler (1.6 s) when an optimizer is first used, to keep the compiler
out of the optimizer. While it is not imported nothing is compiled: there is nothing to
keep out, and the import is left to those that compile.

While torch is imported there is no garbage, so that nobody looks for any (0.1 s).

With QUICK_EXITS an interpreter does not look through all that it has imported once more
when it exits (0.5 s). What it has recorded by then is the same; tests of exits do
without.
"""

import atexit
import functools
import gc
import os
import sys


def _until_compiled(quick, usual, function, file):
    """quick, and usual as soon as there is a compiler; both do what function does."""

    def inner(*arguments, **options):
        chosen = usual if "torch._dynamo" in sys.modules else quick
        return chosen(*arguments, **options)

    # Lines of torch's, as those of the function in whose place it is: not the user's.
    inner.__code__ = inner.__code__.replace(co_filename=file)
    return functools.wraps(function)(inner)


def _load_quickly(load, module):
    """Of torch: without looks for garbage."""
    gc.disable()
    try:
        load(module)
    finally:
        gc.enable()


def _changed_by(change):
    def load_and_change(load, module):
        load(module)
        change(module)

    return load_and_change


def _disable_quickly(module):
    """Of torch._compile: the decorator that keeps the compiler out of a function."""
    usual = module._disable_dynamo

    def disable_dynamo(fn=None, recursive=True):
        if fn is None:
            return functools.partial(disable_dynamo, recursive=recursive)
        return _until_compiled(fn, usual(fn, recursive), fn, module.__file__)

    module._disable_dynamo = disable_dynamo


def _step_quickly(module):
    """Of torch.optim.optimizer: the decorator of steps, which calls the compiler to have
    graphs end there."""
    usual = module._use_grad_for_differentiable
    torch = sys.modules["torch"]

    def use_grad(function):
        def step(self, *arguments, **options):
            with torch.set_grad_enabled(self.defaults["differentiable"]):
                return function(self, *arguments, **options)

        step.__code__ = step.__code__.replace(co_filename=module.__file__)
        return _until_compiled(step, usual(function), function, module.__file__)

    module._use_grad_for_differentiable = use_grad


class _Changed:
    """Finds the modules of torch that are loaded in another way."""

    LOADS = {
        "torch": _load_quickly,
        "torch._compile": _changed_by(_disable_quickly),
        "torch.optim.optimizer": _changed_by(_step_quickly),
    }

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        load_by = cls.LOADS.get(name)
        spec = load_by and cls._found_by_others(name, path, target)
        if spec:
            load = spec.loader.exec_module
            spec.loader.exec_module = functools.partial(load_by, load)
        return spec

    @classmethod
    def _found_by_others(cls, *wanted):
        """By the agent's finder, too, which has to see torch."""
        finders = [finder for finder in sys.meta_path if finder is not cls]
        specs = (finder.find_spec(*wanted) for finder in finders)
        return next((spec for spec in specs if spec), None)


sys.meta_path.insert(0, _Changed)
if "QUICK_EXITS" in os.environ:
    atexit.register(gc.freeze)
