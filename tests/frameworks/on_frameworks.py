"""The programs on frameworks: which there are, and whose Python runs them."""

import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "errors"))

import catalogue

ERRORS = catalogue.read(FOLDER / "errors.json")
# What tools/frameworks.sh does not install everywhere.
_PACKAGES = re.compile(
    r"^(?:from|import) (timm|torchvision|deepspeed|ignite|skorch|gpytorch|keras|fastai|"
    r"monai|torchrl|stable_baselines3|sentence_transformers)\b",
    re.MULTILINE,
)


def python() -> pathlib.Path | None:
    """That of tools/frameworks.sh; None: it was not run."""
    environments = pathlib.Path(sys.executable).parents[2]
    found = sorted(
        environments.glob("frameworks-*/complete"), key=lambda it: it.stat().st_mtime
    )
    return found[-1].parent / "bin/python" if found else None


def runnable(folder: str) -> list[pathlib.Path]:
    """The programs of healthy/ or errors/ whose frameworks are there."""
    interpreter = python()
    if interpreter is None:
        return []
    scripts = sorted((FOLDER / folder).glob("*.py"))
    wanted = {name for s in scripts for name in _PACKAGES.findall(s.read_text())}
    there = {name for name in wanted if _has(interpreter, name)}
    return [s for s in scripts if set(_PACKAGES.findall(s.read_text())) <= there]


def _has(interpreter: pathlib.Path, package: str) -> bool:
    look = (
        f"import importlib.util as u, sys; sys.exit(u.find_spec('{package}') is None)"
    )
    return subprocess.run([interpreter, "-c", look]).returncode == 0
