"""What the product says in words that people understand (CONTRIBUTING.md, "Words").

Read are the string literals of the product's C++ and Python, what people are shown of
built-in rules, and documents. Tests are not: what they say is for developers.
"""

import ast
import json
import re

from source_tree import Problem, SourceTree

# What is wrong -> what to write.
_HABITS = (
    (
        re.compile(r"\b(tells?|told|telling)\b"),
        'write "records" or "says", not "tells"',
    ),
    (
        re.compile(r"(?<![Tt]here )\b(is|are|was|were) no\b(?! longer)"),
        'write "is not a", not "is no"',
    ),
    (
        re.compile(r"(?:^|[.:;!?] )(Of|Who|Whose) "),
        'a sentence begins with its subject, not "{0}"',
    ),
    (re.compile(r"\bnot so that\b"), "say what is so"),
    (
        re.compile(r"\b(?<!copy )(?<!instance )of itself\b"),
        'write "of its own" or "built in", not "of itself"',
    ),
)
# What people read of a built-in rule.
_READ = ("headline", "why", "fix")
# Comments, and literals that the compiler joins: raw ones, and those in quotes.
_CPP = re.compile(
    r"""//[^\n]*|/\*.*?\*/|'(?:[^'\\\n]|\\.)'|\#include[^\n]*
    |R"(?P<mark>[^(\s]*)\((?P<raw>.*?)\)(?P=mark)"
    |(?P<text>"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*)""",
    re.DOTALL | re.VERBOSE,
)
_QUOTED = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
# Code, and links, of a document; rows of tables made from what programs said.
_MARKDOWN_CODE = re.compile(
    r"^```.*?^```|`[^`]*`|\]\([^)]*\)", re.DOTALL | re.MULTILINE
)
_NOT_READ = (
    "CONTRIBUTING.md",  # lists the habits
    "CHANGELOG.md",  # keeps what was said
    "docs/built-in-rules.md",  # made from what is read here
)
_WITH_TABLES_OF_RUNS = "docs/evaluation.md"


def _found(text: str):
    for habit, advice in _HABITS:
        for found in habit.finditer(text):
            words = found.group(found.lastindex or 0)
            yield found.start(), advice.format(words)


def _is_test(name: str) -> bool:
    """Is it a test, or a helper of tests?"""
    return "test" in name


def _cpp(tree: SourceTree):
    for name in tree.with_suffix(".h", ".cc"):
        if _is_test(name):
            continue
        text = tree.text(name)
        for found in _CPP.finditer(text):
            said = found["raw"]
            if found["text"]:
                said = "".join(_QUOTED.findall(found["text"])).replace(r"\n", "\n")
            if said:
                yield name, text.count("\n", 0, found.start()) + 1, said


def _docstrings(tree: ast.AST) -> set:
    """Nodes of texts that only developers read."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def _python(tree: SourceTree):
    for name in tree.with_suffix(".py"):
        if not name.startswith("agent/") or _is_test(name):
            continue
        parsed = ast.parse(tree.text(name))
        skipped = _docstrings(parsed)
        for node in ast.walk(parsed):
            # One word may be a name of the program.
            if isinstance(node, ast.Constant) and " " in str(node.value):
                if id(node) not in skipped:
                    yield name, node.lineno, str(node.value)


def _rules(tree: SourceTree):
    for name in tree.with_suffix(".json"):
        if not name.startswith("invariants/library/"):
            continue
        text = tree.text(name)
        for rule in json.loads(text)["invariants"]:
            for key in _READ:
                said = rule["origin"][key]
                at = text.index(json.dumps(said, ensure_ascii=False))
                yield name, text.count("\n", 0, at) + 1, said


def _blank(found: re.Match) -> str:
    """As many lines without a word."""
    return "`" + "\n" * found.group(0).count("\n") + "`"


def _documents(tree: SourceTree):
    for name in tree.with_suffix(".md"):
        if name in _NOT_READ or name.startswith("tests/"):
            continue
        text = _MARKDOWN_CODE.sub(_blank, tree.text(name))
        line = 1
        for paragraph in re.split(r"(\n\s*\n)", text):
            yield from _paragraph(name, line, paragraph)
            line += paragraph.count("\n")


def _paragraph(name: str, line: int, text: str):
    rows = text.split("\n")
    if any(row.startswith("|") for row in rows):
        # Each cell is a text of its own.
        for number, row in enumerate(rows):
            if row.startswith("|") and name != _WITH_TABLES_OF_RUNS:
                for cell in row.strip("|").split("|"):
                    yield name, line + number, cell.strip()
        return
    # A sentence goes on in the next line.
    yield name, line, text.replace("\n", " ")


def check(tree: SourceTree):
    for read in (_cpp, _python, _rules, _documents):
        for name, line, said in read(tree):
            for at, advice in _found(said):
                around = said[max(0, at - 10) : at + 50]
                yield Problem(name, line, f"{advice}: {around!r}")
