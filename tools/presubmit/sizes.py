"""Sizes: what no longer fits into a reader's head is split or says why.

Header 250 lines, source 500, function 60, parameters 5 (in C and C++; Python
names its arguments at the call). A file over it has a comment with "size:" and the reason in its first 30 lines; a function has it on
one of the 8 lines above its opening brace or the 3 below.
"""

import ast
import re

import cpp_functions
from source_tree import Problem, SourceTree

MAX_HEADER_LINES = 250
MAX_SOURCE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 5

_REASON = re.compile(r"(//|#|\*).*\bsize:\s*\S+")


def _excused(lines: list, first: int, last: int) -> bool:
    """A reason stands on one of the lines first..last, counted from 1."""
    return any(_REASON.search(line) for line in lines[max(0, first - 1) : last])


def _check_length(name: str, lines: list):
    limit = MAX_HEADER_LINES if name.endswith(".h") else MAX_SOURCE_LINES
    if len(lines) > limit and not _excused(lines, 1, 30):
        yield Problem(name, 1, f"{len(lines)} lines, the limit is {limit}")


def _check_function(name: str, lines: list, function):
    if _excused(lines, function.first_line - 8, function.first_line + 3):
        return
    if function.lines > MAX_FUNCTION_LINES:
        yield Problem(
            name,
            function.declared_line,
            f"{function.name} has {function.lines} lines, "
            f"the limit is {MAX_FUNCTION_LINES}",
        )
    if function.parameters > MAX_PARAMETERS:
        yield Problem(
            name,
            function.declared_line,
            f"{function.name} has {function.parameters} parameters, "
            f"the limit is {MAX_PARAMETERS}",
        )


def _python_functions(text: str):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield cpp_functions.Function(
                name=node.name,
                first_line=node.lineno,
                last_line=node.end_lineno,
                declared_line=node.lineno,
                parameters=0,
            )


def check(tree: SourceTree):
    for name in tree.with_suffix(".h", ".cc", ".c", ".py"):
        text = tree.text(name)
        lines = text.splitlines()
        yield from _check_length(name, lines)
        find = cpp_functions.find_functions
        try:
            found = list((_python_functions if name.endswith(".py") else find)(text))
        except SyntaxError as error:
            yield Problem(name, error.lineno or 0, f"no Python: {error.msg}")
            continue
        for function in found:
            yield from _check_function(name, lines, function)
