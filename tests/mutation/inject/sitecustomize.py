"""Puts one fault into every Python process of a training: MUTATION names
it, faults.py makes it. On PYTHONPATH of the training only."""

import os
import pathlib
import sys

_NAME = os.environ.get("MUTATION")


def _is_training() -> bool:
    """Launchers and helpers are left alone; spawned ranks are not."""
    words = getattr(sys, "orig_argv", sys.argv)
    return not any(
        word.endswith(("torchrun", "torch.distributed.run")) for word in words
    )


if _NAME and _is_training():
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    import faults

    faults.FAULTS[_NAME].make(int(os.environ.get("MUTATION_STEP", "4")))
