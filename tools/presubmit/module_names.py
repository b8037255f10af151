"""What a test or a tool uses of another module is there.

Python finds a name that has moved only where it is used, which in a test of whole
processes is minutes later. Of all that mypy says, these folders are asked for names
alone: tests need no types.
"""

import pathlib
import re
import shutil
import subprocess

import strict_types
from source_tree import Problem, SourceTree

# Each is a folder of modules that import each other by their plain names.
_FOLDERS = (
    "tests/bench",
    "tests/clocks",
    "tests/deploy",
    "tests/evaluation",
    "tests/fault",
    "tests/gpu",
    "tests/integration",
    "tests/quick",
    "tests/upgrade",
    "tools",
    "tools/long_tests",
    "tools/presubmit",
)
_SHARED = ("tests", "tests/integration")  # where the others' helpers are
_LINE = re.compile(r"^(?P<name>[^:]+):(?P<line>\d+): error: (?P<text>.*)$")
_ABOUT_NAMES = re.compile(
    r"Module has no attribute|Module .* has no attribute|\[name-defined\]|\[syntax\]"
)


def _complaints(root: pathlib.Path, folder: str, names: list) -> list:
    """Lines of mypy about `names`, relative to `folder`."""
    done = subprocess.run(
        [
            "mypy",
            "--python-version=3.11",
            "--check-untyped-defs",
            "--ignore-missing-imports",
            "--explicit-package-bases",
            "--show-error-codes",
            "--no-error-summary",
            f"--cache-dir={strict_types.cache_folder()}",
            *names,
        ],
        cwd=root / folder,
        env={
            "PATH": "/usr/bin:/bin",
            "MYPYPATH": ":".join(str(root / path) for path in (folder, *_SHARED)),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.stdout.splitlines()


def check(tree: SourceTree):
    modules: dict = {}
    for name in tree.with_suffix(".py"):
        path = pathlib.PurePosixPath(name)
        modules.setdefault(str(path.parent), []).append(path.name)
    ours = [folder for folder in _FOLDERS if folder in modules]
    if ours and shutil.which("mypy") is None:
        yield Problem(ours[0], 0, "mypy is not installed: tools/setup.sh")
        return
    root = tree.root.resolve()
    for folder in ours:
        for text in _complaints(root, folder, modules[folder]):
            match = _LINE.match(text)
            if match and _ABOUT_NAMES.search(match["text"]):
                path = (root / folder / match["name"]).resolve().relative_to(root)
                yield Problem(str(path), int(match["line"]), match["text"])
