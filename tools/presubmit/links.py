"""Every relative link of a document leads to a file of this tree."""

import os
import re

from source_tree import Problem, SourceTree

_FENCE = re.compile(r"^\s*(```|~~~)")
_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_REFERENCE = re.compile(r"^\s*\[[^\]]+\]:\s*<?(\S+?)>?\s*$")
_ELSEWHERE = re.compile(r"^([a-z][a-z0-9+.-]*:|//|#)", re.IGNORECASE)


def _targets(text: str):
    """Yields (line, target) of every link outside of code."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            fenced = not fenced
        if fenced:
            continue
        prose = _CODE.sub("``", line)
        for pattern in (_LINK, _REFERENCE):
            for match in pattern.finditer(prose):
                yield number, match.group(1)


def check(tree: SourceTree):
    for name in tree.with_suffix(".md"):
        folder = os.path.dirname(name)
        for number, target in _targets(tree.text(name)):
            if _ELSEWHERE.match(target):
                continue
            path = os.path.normpath(os.path.join(folder, target.split("#")[0]))
            outside = path.startswith("..") or os.path.isabs(path)
            if outside or not (tree.root / path).exists():
                yield Problem(name, number, f"no such file: {target}")
