"""Runs the embedded hook modules as the package _traincheck.

Each module is compiled when it is first imported; all are imported before
run() returns, so that nothing of this stays on sys.meta_path.
"""

import importlib.util
import sys
import types

PACKAGE = "_traincheck"


class _Embedded:
    """Finder and loader of _traincheck.<name>."""

    def __init__(self, sources):
        self._sources = sources

    def find_spec(self, name, path=None, target=None):
        package, _, stem = name.partition(".")
        if package != PACKAGE or stem not in self._sources:
            return None
        return importlib.util.spec_from_loader(name, self)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        stem = module.__name__.partition(".")[2]
        # Call sites skip files of this name.
        file = "<traincheck/%s>" % stem
        code = compile(self._sources[stem], file, "exec", dont_inherit=True)
        exec(code, module.__dict__)


def run(core, sources):
    package = types.ModuleType(PACKAGE)
    package.__path__ = []
    sys.modules[PACKAGE] = package
    finder = _Embedded(sources)
    sys.meta_path.insert(0, finder)
    try:
        for stem in sources:
            importlib.import_module(PACKAGE + "." + stem)
    finally:
        sys.meta_path.remove(finder)
    sys.modules[PACKAGE + ".install"].install(core)
