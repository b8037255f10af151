"""Python that runs inside the user's training is typed in full."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from source_tree import Problem, SourceTree

_FOLDER = "agent/python"
# By the names that they are imported by; the finder is compiled in.
_SOURCES = {
    "_traincheck": f"{_FOLDER}/hooks",
    "traincheckd.py": f"{_FOLDER}/module/traincheckd.py",
    "finder.py": "agent/preload/finder.py",
}
_LINE = re.compile(
    r"^(?P<top>[^/:]+)(?P<rest>[^:]*):(?P<line>\d+): error: (?P<text>.*)$"
)


def cache_folder() -> pathlib.Path:
    """What mypy knows of the standard library: half of its time."""
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base, "traincheckd/mypy")


def _run_mypy(root: pathlib.Path, folder: str) -> subprocess.CompletedProcess:
    """In `folder`, where the sources have the names that they have at run time."""
    modules = []
    for name, path in _SOURCES.items():
        if (root / path).exists():
            (pathlib.Path(folder) / name).symlink_to(root.resolve() / path)
            modules += ["-p", name.removesuffix(".py")]
    config = root.resolve() / _FOLDER / "mypy.ini"
    return subprocess.run(
        ["mypy", f"--config-file={config}", "--no-error-summary", *modules],
        cwd=folder,
        env={
            "PATH": "/usr/bin:/bin",
            "MYPYPATH": f"{folder}:{root.resolve() / _FOLDER}",
            "MYPY_CACHE_DIR": str(cache_folder()),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def check(tree: SourceTree):
    ours = tuple(_SOURCES.values())
    if not any(name.startswith(ours) for name in tree.with_suffix(".py")):
        return
    if shutil.which("mypy") is None:
        yield Problem(_FOLDER, 0, "mypy is not installed: tools/setup.sh")
        return
    with tempfile.TemporaryDirectory() as folder:
        done = _run_mypy(tree.root, folder)
    found = False
    for text in done.stdout.splitlines():
        match = _LINE.match(text)
        if match:
            found = True
            path = _SOURCES[match["top"]] + match["rest"]
            yield Problem(path, int(match["line"]), match["text"])
    if done.returncode != 0 and not found:
        yield Problem(_FOLDER, 0, f"mypy failed: {done.stdout.strip()[-300:]}")
