"""Comments of a .proto stand above what they describe, never behind it."""

import re

from source_tree import Problem, SourceTree

_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_BEHIND = re.compile(r"\S.*?(//|/\*)")


def check(tree: SourceTree):
    for name in tree.with_suffix(".proto"):
        for number, line in enumerate(tree.text(name).splitlines(), 1):
            code = _STRING.sub('""', line).strip()
            if not code.startswith(("//", "/*", "*")) and _BEHIND.match(code):
                yield Problem(name, number, "the comment goes on the line above")
