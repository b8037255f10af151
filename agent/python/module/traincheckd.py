"""Tells traincheckd what it cannot find out by itself about a training.

    import traincheckd

    for batch in batches:
        ...
        traincheckd.step()                    # a training step ends here

    with traincheckd.stage("evaluation"):     # whatever gradients say
        evaluate(model)

    traincheckd.track(weights, name="prior")  # what no model or optimizer holds

Every function may be called whether or not the program is watched: without the
agent nothing happens. None raises, prints or changes anything of the training,
and none is ever needed. docs/python-module.md says what each does.
"""

import sys as _sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal as _Literal
    from typing import TypeVar as _TypeVar

    _T = _TypeVar("_T")

__all__ = ["stage", "step", "track"]


def _tell(function: str, *arguments: object) -> object:
    # The agent's half is there from the import of torch on.
    agent = _sys.modules.get("_traincheck.user")
    if agent is None:
        return None
    try:
        return getattr(agent, function)(*arguments)
    except Exception:
        return None


def step() -> None:
    """A training step of this thread ends here, from now on only here."""
    _tell("step")


class stage:
    """What the code of this thread does from here on, until the next call.

    "training", "evaluation" or "init"; None: what follows from the calls. As a
    context manager it goes back to what was before.
    """

    def __init__(self, name: "str | None") -> None:
        self._before = _tell("name_stage", name)

    def __enter__(self) -> "stage":
        return self

    def __exit__(self, *exception: object) -> "_Literal[False]":
        _tell("return_to_stage", self._before)
        return False


def track(obj: "_T", name: "str | None" = None) -> "_T":
    """Watches a module, an optimizer or a tensor; returns it.

    name is what reports call it; needed for a tensor.
    """
    _tell("track", obj, name)
    return obj
