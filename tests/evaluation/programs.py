"""The programs that are measured: healthy ones, and errors with their fixed
variants.
"""

import dataclasses
import hashlib
import pathlib
import re
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "errors"))
sys.path.insert(0, str(TESTS / "frameworks"))

import catalogue
import on_frameworks
from references import REFERENCES

# Shared by programs, or none.
_NO_PROGRAM = {"ranks"}
# Those whose default is made for timing.
_FEWER_STEPS = ("--steps", "16")
_LONG = {"gat", "gcn", "lstm_lm", "transformer_lm", "resnet18", "mixer_ddp"}
_LONG |= {"dcgan", "siamese"}
_OPTIMIZERS = re.compile(
    r"\b(SGD|Adam|AdamW|Adamax|Adadelta|Adagrad|Adafactor|ASGD|LBFGS|Muon|NAdam|"
    r"RAdam|RMSprop|Rprop|SparseAdam)\("
)


@dataclasses.dataclass(frozen=True)
class Program:
    name: str  # of the experiment
    script: pathlib.Path
    arguments: tuple = ()
    python: pathlib.Path = pathlib.Path(sys.executable)

    def optimizers(self) -> frozenset:
        """Names of torch's optimizer classes that the script constructs."""
        return frozenset(_OPTIMIZERS.findall(self.script.read_text()))


@dataclasses.dataclass(frozen=True)
class Error:
    faulty: Program
    fixed: Program
    trigger_step: int
    what: str


def healthy() -> list[Program]:
    """By name."""
    found = []
    for script in sorted((TESTS / "pipelines").glob("*.py")):
        if script.stem not in _NO_PROGRAM:
            arguments = REFERENCES.get(script.stem, ())
            if script.stem in _LONG:
                arguments = _FEWER_STEPS
            found.append(Program(script.stem, script, arguments))
    python = on_frameworks.python()
    for script in on_frameworks.runnable("healthy"):
        found.append(Program(script.stem, script, python=python))
    return found


def errors() -> list[Error]:
    """Of programs on frameworks, those whose frameworks are there."""
    found = []
    for error in catalogue.ERRORS:
        script = TESTS / "errors" / f"{error.name}.py"
        found.append(_error(error, script, pathlib.Path(sys.executable)))
    runnable = {script.stem: script for script in on_frameworks.runnable("errors")}
    for error in on_frameworks.ERRORS:
        if error.name in runnable:
            script = runnable[error.name]
            found.append(_error(error, script, on_frameworks.python()))
    return found


def drawn(count: int, seed: int) -> set[str]:
    """Names of so many errors, and of so many healthy programs. A program is drawn by
    its name, so that others which are added later take the place of few."""

    def order(name: str) -> bytes:
        return hashlib.sha256(f"{seed} {name}".encode()).digest()

    names = [[error.faulty.name for error in errors()], [p.name for p in healthy()]]
    return {name for kind in names for name in sorted(kind, key=order)[:count]}


def _error(error: catalogue.Error, script: pathlib.Path, python: pathlib.Path) -> Error:
    arguments = tuple(error.arguments)
    return Error(
        Program(error.name, script, arguments, python),
        Program(error.name, script, (*arguments, "--fixed"), python),
        error.trigger_step,
        error.what,
    )
