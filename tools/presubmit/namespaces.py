"""A part that no other part includes has a namespace of its own."""

import re

from source_tree import Problem, SourceTree

_PARTS = ("agent", "server", "ctl")
_OURS = re.compile(r"^namespace (traincheck[\w:]*) \{")


def _namespace(name: str) -> str:
    """What a file is in: the engine's, base's and formats' names are shared."""
    part = name.partition("/")[0]
    return f"traincheck::{part}" if part in _PARTS else "traincheck"


def check(tree: SourceTree):
    for name in tree.with_suffix(".h", ".cc"):
        if name.startswith("tests/"):
            continue  # may be in that of the part that it is about
        for number, line in enumerate(tree.text(name).splitlines(), 1):
            match = _OURS.match(line)
            if match and match.group(1) != _namespace(name):
                yield Problem(name, number, f"is not in {_namespace(name)}")
