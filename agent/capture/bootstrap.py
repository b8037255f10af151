"""Runs the embedded hook modules as the package _traincheck.

All are imported before run() returns, so that nothing of this stays on
sys.meta_path. Where this Python is not the one that they were compiled for, each
is compiled from its source.
"""

import importlib.util
import marshal
import sys
import types

PACKAGE = "_traincheck"


class _Embedded:
    """Finder and loader of _traincheck.<name>."""

    def __init__(self, sources, codes):
        self._sources = sources
        self._codes = codes  # marshalled

    def find_spec(self, name, path=None, target=None):
        package, _, stem = name.partition(".")
        if package != PACKAGE or stem not in self._sources:
            return None
        return importlib.util.spec_from_loader(name, self)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        stem = module.__name__.partition(".")[2]
        exec(self._code(stem), module.__dict__)

    def _code(self, stem):
        if stem in self._codes:
            return marshal.loads(self._codes[stem])
        # Call sites skip files of this name; compile_hooks.py has it too.
        file = "<traincheck/%s>" % stem
        return compile(self._sources[stem], file, "exec", dont_inherit=True)


def run(core, sources, compiled):
    """compiled: (magic number, {name: code}) of the Python that built this."""
    magic, codes = compiled
    package = types.ModuleType(PACKAGE)
    package.__path__ = []
    sys.modules[PACKAGE] = package
    if magic != importlib.util.MAGIC_NUMBER:
        codes = {}
    finder = _Embedded(sources, codes)
    sys.meta_path.insert(0, finder)
    try:
        for stem in sources:
            importlib.import_module(PACKAGE + "." + stem)
    finally:
        sys.meta_path.remove(finder)
    sys.modules[PACKAGE + ".install"].install(core)
