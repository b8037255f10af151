"""The agent's hooks, which run inside the user's training, are typed in full."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from source_tree import Problem, SourceTree

_FOLDER = "agent/python"
_HOOKS = f"{_FOLDER}/hooks"
# As the agent imports them.
_PACKAGE = "_traincheck"
_LINE = re.compile(rf"^{_PACKAGE}/(?P<path>[^:]+):(?P<line>\d+): error: (?P<text>.*)$")


def _cache_folder() -> pathlib.Path:
    """What mypy knows of the standard library: half of its time."""
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base, "traincheckd/mypy")


def _run_mypy(root: pathlib.Path, folder: str) -> subprocess.CompletedProcess:
    """In `folder`, where the hooks are the package that they are at run time."""
    (pathlib.Path(folder) / _PACKAGE).symlink_to(root.resolve() / _HOOKS)
    config = root.resolve() / _FOLDER / "mypy.ini"
    return subprocess.run(
        ["mypy", f"--config-file={config}", "--no-error-summary", "-p", _PACKAGE],
        cwd=folder,
        env={
            "PATH": "/usr/bin:/bin",
            "MYPYPATH": f"{folder}:{root.resolve() / _FOLDER}",
            "MYPY_CACHE_DIR": str(_cache_folder()),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def check(tree: SourceTree):
    if not any(name.startswith(_HOOKS) for name in tree.with_suffix(".py")):
        return
    if shutil.which("mypy") is None:
        yield Problem(_HOOKS, 0, "mypy is not installed: tools/setup.sh")
        return
    with tempfile.TemporaryDirectory() as folder:
        done = _run_mypy(tree.root, folder)
    found = False
    for text in done.stdout.splitlines():
        match = _LINE.match(text)
        if match:
            found = True
            path = f"{_HOOKS}/{match['path']}"
            yield Problem(path, int(match["line"]), match["text"])
    if done.returncode != 0 and not found:
        yield Problem(_HOOKS, 0, f"mypy failed: {done.stdout.strip()[-300:]}")
