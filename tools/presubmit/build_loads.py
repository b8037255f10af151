"""BUILD files load the rules that they use: current Bazel has none built in."""

import re

from source_tree import Problem, SourceTree

_CC = "@rules_cc//cc:defs.bzl"
_SHELL = "@rules_shell//shell:{}.bzl"
SOURCES = {
    **{rule: _CC for rule in ("cc_binary", "cc_import", "cc_library", "cc_test")},
    **{rule: _SHELL.format(rule) for rule in ("sh_binary", "sh_library", "sh_test")},
}
# Of no use here; who begins with one names its source above.
_OTHERS = re.compile(r"(py|java|proto|cc|sh)_(binary|library|test|import)$")
_SUFFIXES = ("BUILD.bazel", ".BUILD", ".bzl")
# They are where the rules come from.
_SHIMS = "bazel/shims/"

_LOAD = re.compile(r'^load\(\s*"([^"]+)"([^)]*)\)', re.MULTILINE)
_NAME = re.compile(r'"(\w+)"')
_CALL = re.compile(r"(?<![\w.\"])(native\.)?(\w+)\(")
_COMMENT = re.compile(r"#[^\n]*")


def _line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _check_text(name: str, text: str):
    text = _COMMENT.sub(lambda match: " " * len(match.group()), text)
    loaded = {}  # rule -> (source, line)
    for match in _LOAD.finditer(text):
        for rule in _NAME.findall(match.group(2)):
            loaded[rule] = (match.group(1), _line_of(text, match.start()))
    used = set()
    for match in _CALL.finditer(text):
        rule, line = match.group(2), _line_of(text, match.start())
        used.add(rule)
        if not _OTHERS.match(rule):
            continue
        source = SOURCES.get(rule)
        if source is None:
            yield Problem(name, line, f"no source of {rule} is known: {__name__}.py")
        elif match.group(1) or loaded.get(rule, ("",))[0] != source:
            yield Problem(name, line, f'load("{source}", "{rule}") is missing')
    for rule, (_, line) in loaded.items():
        if rule not in used:
            yield Problem(name, line, f"{rule} is loaded and not used")


def check(tree: SourceTree):
    for name in tree.with_suffix(*_SUFFIXES):
        if not name.startswith(_SHIMS):
            yield from _check_text(name, tree.text(name))
