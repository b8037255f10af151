"""What a fault is: where it strikes, and what it is allowed to cost."""

import dataclasses
import errno
import pathlib
import random

from setting import STEPS, Setting


class Skipped(Exception):
    """This machine does not let us do that; the text says what."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """The rule that holds for a fault. The default: nothing at all.

    dies      a rank may die of it: losses are a prefix of the undisturbed ones
    records   "none" is lost; "counted": what is missing is in the books as
              dropped or lost; "unknown": how much is lost may be unknown
    verdicts  "equal" to those of the undisturbed run; "unknown": what is
              missing must be shown as unknown
    spool     files may remain in the spool folder
    stored    False: the run may not be there at all
    relays    relays may outlive the check
    restarts  the training is started again, and nothing is missing of that
    """

    dies: bool = False
    records: str = "none"
    verdicts: str = "equal"
    spool: bool = False
    stored: bool = True
    relays: bool = False
    restarts: bool = False


NOTHING = Cost()
COUNTED = Cost(records="counted", verdicts="unknown")
UNKNOWN = Cost(records="unknown", verdicts="unknown")
KILLED_RANK = Cost(dies=True, verdicts="unknown")
NOT_STORED = Cost(records="unknown", verdicts="unknown", stored=False, spool=True)


def fill_disk(path: pathlib.Path) -> None:
    """Writes the file until its disk is full."""
    with open(path, "wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


class Fault:
    """One kind. strike() happens at a random step between first and last."""

    name = ""
    what = ""
    cost = NOTHING
    first, last = 3, STEPS - 8
    # Does the daemon run before the training starts?
    daemon_first = True
    # Of the training when no rank dies.
    exit_code = 5

    def __init__(self, draw: random.Random):
        self.draw = draw
        self.step = draw.randint(self.first, self.last)

    def prepare(self, s: Setting) -> None:
        """Before daemon and training start."""

    def strike(self, s: Setting) -> None:
        """When rank 0 has done self.step steps."""

    def after(self, s: Setting) -> None:
        """When the training is over: make the daemon reachable again."""

    def rank(self, s: Setting) -> int:
        return self.draw.randrange(s.ranks)
