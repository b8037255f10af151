"""C and C++ as clang-format writes them, Python as black does."""

import re
import shutil
import subprocess

from source_tree import Problem, SourceTree

_CLANG_LINE = re.compile(r"^(?P<path>[^:\n]+):(?P<line>\d+):\d+: (error|warning): ")
_BLACK_LINE = re.compile(r"^(would reformat|error: cannot format) (?P<path>[^:\n]+)")


def _run(tree: SourceTree, command: list) -> str:
    done = subprocess.run(
        command,
        cwd=tree.root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    return done.stderr if done.returncode != 0 else ""


def _relative(tree: SourceTree, path: str) -> str:
    return path.removeprefix(str(tree.root.resolve()) + "/")


def _first_lines(stderr: str, pattern: re.Pattern) -> dict:
    """The first line that the tool names, for each path that it names."""
    found = {}
    for text in stderr.splitlines():
        match = pattern.match(text)
        if match:
            line = int(match.groupdict().get("line", 1))
            found.setdefault(match.group("path"), line)
    return found


def _check_tool(tree: SourceTree, files: list, command: list, pattern: re.Pattern):
    if not files:
        return
    tool = command[0]
    if shutil.which(tool) is None:
        yield Problem(files[0], 0, f"{tool} is not installed: tools/setup.sh")
        return
    stderr = _run(tree, command + files)
    found = _first_lines(stderr, pattern)
    for path, line in found.items():
        yield Problem(_relative(tree, path), line, f"not formatted by {tool}")
    if stderr and not found:
        yield Problem(files[0], 0, f"{tool} failed: {stderr.strip()[-200:]}")


def check(tree: SourceTree):
    yield from _check_tool(
        tree,
        tree.with_suffix(".h", ".cc", ".c"),
        ["clang-format", "--dry-run", "-Werror", "--style=file"],
        _CLANG_LINE,
    )
    yield from _check_tool(
        tree, tree.with_suffix(".py", ".pyi"), ["black", "--check"], _BLACK_LINE
    )
