"""What each interpreter of the suite begins with: it saves two of the four seconds that a
small training takes, and changes nothing that a test looks at.

torch imports its compiler (1.6 s) when an optimizer is first used, to keep the compiler
out of the optimizer. While it is not imported nothing is compiled: there is nothing to
keep out, and the import is left to those that compile.

While torch is imported there is no garbage, so that nobody looks for any (0.1 s).

With QUICK_PROGRAMS, of which tests of starts and exits do without:
- An interpreter does not look through all that it has imported once more when it exits
  (0.5 s). What it has recorded by then is the same.
- DistributedDataParallel imports the compiler (1.4 s a rank) to ask for one setting;
  without it the setting is the default's, unless a script compiles.
- What torch does with tensors that have no memory is imported (0.3 s) with the first
  module that needs it, or by a script that names the device "meta". Without it such
  tensors raise NotImplementedError: a test cannot pass by chance.
"""

import atexit
import functools
import gc
import importlib.util
import os
import pathlib
import sys
import types

QUICK_PROGRAMS = "QUICK_PROGRAMS" in os.environ


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


def _script_says(word):
    """Does the program's script, or is there none?"""
    script = next((word for word in sys.orig_argv if word.endswith(".py")), None)
    return script is None or word in pathlib.Path(script).read_text()


class _WithoutCompiler:
    """Stands for torch in torch.nn.parallel.distributed, until there is a compiler."""

    def __init__(self, torch):
        self._torch = torch
        mode = functools.partial(str, "ddp_optimizer")
        # As versions of torch ask for it.
        self._compiler = types.SimpleNamespace(
            config=types.SimpleNamespace(_get_optimize_ddp_mode=mode),
            utils=types.SimpleNamespace(get_optimize_ddp_mode=mode),
        )

    def __getattr__(self, name):
        if name == "_dynamo" and "torch._dynamo" not in sys.modules:
            return self._compiler
        return getattr(self._torch, name)


def _wrap_quickly(module):
    """Of torch.nn.parallel.distributed."""
    if not _script_says("compile"):
        module.torch = _WithoutCompiler(module.torch)


class _Later:
    """torch._meta_registrations, once one of NEEDING is imported."""

    NEEDING = {
        "torch._decomp",
        "torch._dynamo",
        "torch._prims",
        "torch._refs",
        "torch.utils._content_store",
    }
    _load = None

    @classmethod
    def load(cls, load, module):
        if _script_says('"meta"'):
            load(module)
            return
        cls._load = functools.partial(load, module)
        # Of all that it does for tensors with memory; without it there are no generators.
        set_metaclass = getattr(
            sys.modules["torch._C"], "_set_generator_metaclass", None
        )
        if set_metaclass is not None:
            from torch._library.opaque_object import OpaqueBaseMeta

            set_metaclass(OpaqueBaseMeta)

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        load, cls._load = cls._load, None
        if load is None or name not in cls.NEEDING:
            cls._load = load
            return None
        load()
        # It imports most of those that need it.
        module = sys.modules.get(name)
        return module and _Imported(module).spec


class _Imported:
    """Loads what has been imported while somebody looked for it: not once more."""

    def __init__(self, module):
        self._module, self._usual = module, module.__spec__
        self.spec = importlib.util.spec_from_loader(module.__name__, self)
        # Which is asked in place of what was found.
        module.__spec__ = self.spec

    def create_module(self, spec):
        return self._module

    def exec_module(self, module):
        module.__spec__ = self._usual


class _Changed:
    """Finds the modules of torch that are loaded in another way."""

    LOADS = {
        "torch": _load_quickly,
        "torch._compile": _changed_by(_disable_quickly),
        "torch.optim.optimizer": _changed_by(_step_quickly),
    }
    if QUICK_PROGRAMS:
        LOADS["torch._meta_registrations"] = _Later.load
        LOADS["torch.nn.parallel.distributed"] = _changed_by(_wrap_quickly)

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


sys.meta_path[:0] = [_Later, _Changed]
if QUICK_PROGRAMS:
    atexit.register(gc.freeze)
