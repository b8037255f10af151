"""The programs that are measured: healthy ones, and errors with their fixed
variants.
"""

import dataclasses
import pathlib
import re
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "errors"))

import catalogue
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
    return found


def errors() -> list[Error]:
    found = []
    for error in catalogue.ERRORS:
        script = TESTS / "errors" / f"{error.name}.py"
        arguments = tuple(error.arguments)
        found.append(
            Error(
                Program(error.name, script, arguments),
                Program(error.name, script, (*arguments, "--fixed")),
                error.trigger_step,
                error.what,
            )
        )
    return found
