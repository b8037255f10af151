"""What is left to do says who knows about it."""

import re

from source_tree import Problem, SourceTree

_SUFFIXES = (".h", ".cc", ".c", ".py", ".pyi", ".proto", ".sh", ".bzl", ".bazel")
# In two parts, so that this file may be checked too.
_WORD = "TO" + "DO"
_NAMELESS = re.compile(rf"\b{_WORD}\b(?!\([a-z][\w.-]*\):)")
_UNFINISHED = "DO NOT" + " SUBMIT"


def check(tree: SourceTree):
    for name in tree.with_suffix(*_SUFFIXES):
        for number, line in enumerate(tree.text(name).splitlines(), 1):
            if _NAMELESS.search(line):
                yield Problem(name, number, f"write {_WORD}(name): what and why")
            if _UNFINISHED in line:
                yield Problem(name, number, f'says "{_UNFINISHED}"')
