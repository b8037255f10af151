"""What the product says in words that people understand (CONTRIBUTING.md, "Words")."""

import json
import re

from source_tree import Problem, SourceTree

_LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
# What is wrong -> what to write.
_HABITS = (
    (
        re.compile(r"\b(tells?|told|telling)\b"),
        'write "records" or "says", not "tells"',
    ),
    (
        re.compile(r"(?<!there )\b(is|are|was|were) no\b"),
        'write "is not a", not "is no"',
    ),
    (re.compile(r"^(Of|Who|Whose) "), 'a sentence begins with its subject, not "{0}"'),
    (re.compile(r"\bnot so that\b"), "say what is so"),
)
# What people read of a built-in rule.
_READ = ("headline", "why", "fix")


def _found(text: str):
    for habit, advice in _HABITS:
        found = habit.search(text)
        if found:
            yield advice.format(found.group(0).strip())


def _literals(tree: SourceTree):
    for name in tree.with_suffix(".h", ".cc"):
        if "test" in name:
            continue
        for number, line in enumerate(tree.text(name).splitlines(), 1):
            if line.lstrip().startswith(("//", "#include")):
                continue
            for literal in _LITERAL.findall(line):
                yield name, number, literal


def _rules(tree: SourceTree):
    for name in tree.with_suffix(".json"):
        if not name.startswith("invariants/library/"):
            continue
        text = tree.text(name)
        for rule in json.loads(text)["invariants"]:
            for key in _READ:
                said = rule["origin"][key]
                number = text[: text.index(json.dumps(said, ensure_ascii=False))].count(
                    "\n"
                )
                yield name, number + 1, said


def check(tree: SourceTree):
    for name, number, said in (*_literals(tree), *_rules(tree)):
        for advice in _found(said):
            yield Problem(name, number, f"{advice}: {said[:60]!r}")
