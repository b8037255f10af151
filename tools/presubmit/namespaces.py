"""A part that no other part includes has a namespace of its own, and in a namespace a
type has a name of its own, also beside the unnamed namespaces of other files."""

import collections
import re

import cpp_text
from source_tree import Problem, SourceTree

_PARTS = ("agent", "server", "ctl")
_OURS = re.compile(r"^namespace (traincheck[\w:]*) \{")
_SCOPE = re.compile(r"\bnamespace\s*([\w:]*)\s*$|\bextern\s*\"\s*\"\s*$")
_TYPE = re.compile(
    r"(?:^|[;}]|>)\s*(?:class|struct|union|enum(?:\s+(?:class|struct))?)\s+"
    r"(?:alignas\([^()]*\)\s*|\[\[[^\]]*\]\]\s*)*(\w+)"
    r"(?:\s+final)?\s*(?::[^:].*)?$",
    re.DOTALL,
)
_OF_TESTS = re.compile(
    r"_(test|for_testing|benchmark|fuzzer)(_main)?\.(h|cc)$|/testing/"
)


def _namespace(name: str) -> str:
    """What a file is in: the engine's, base's and formats' names are shared."""
    part = name.partition("/")[0]
    return f"traincheck::{part}" if part in _PARTS else "traincheck"


def types_of(text: str):
    """Yields (name, line, is in an unnamed namespace) of each type that is defined in a
    namespace."""
    clean = cpp_text.without_directives(cpp_text.without_comments(text))
    scopes = []  # of each open brace: a namespace's name, or None
    start = 0
    for match in re.finditer(r"[{};]", clean):
        header = clean[start : match.start()]
        start = match.end()
        if match.group() == "}":
            scopes = scopes[:-1]
        elif match.group() == "{":
            scope = _SCOPE.search(header)
            found = _TYPE.search(header)
            if found and None not in scopes:
                line = cpp_text.line_of(clean, match.start())
                yield found.group(1), line, "" in scopes
            scopes.append((scope.group(1) or "") if scope else None)


def _check_parts(tree: SourceTree, name: str):
    for number, line in enumerate(tree.text(name).splitlines(), 1):
        match = _OURS.match(line)
        if match and match.group(1) != _namespace(name):
            yield Problem(name, number, f"is not in {_namespace(name)}")


def _check_names(places: dict):
    """places: (namespace, type) -> [(file, line, is in an unnamed namespace)]."""
    for (namespace, kind), found in places.items():
        named = [place for place in found if not place[2]]
        for name, line, unnamed in found:
            others = [other for other in named if other[:2] != (name, line)]
            if others:
                message = f"{namespace} has a {kind} already: {others[0][0]}"
                yield Problem(name, line, message)


def check(tree: SourceTree):
    places = collections.defaultdict(list)
    for name in tree.with_suffix(".h", ".cc"):
        if name.startswith("tests/"):
            continue  # may be in that of the part that it is about
        yield from _check_parts(tree, name)
        if _OF_TESTS.search(name):
            continue
        for kind, line, unnamed in types_of(tree.text(name)):
            places[_namespace(name), kind].append((name, line, unnamed))
    yield from _check_names(places)
