"""Silent errors that others met, and the programs that reproduce them."""

import json
import pathlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Error:
    name: str  # of the program, without .py
    source: str
    what: str
    cause: str  # the call or line that is to be blamed, named in advance
    # The first optimizer step, from 0, whose forward, update or file is not what it
    # should be, in a run without --steps. What is wrong before training counts to 0.
    trigger_step: int
    arguments: tuple = ()


def read(file: pathlib.Path) -> list[Error]:
    """Those of a file that has a list of the fields above."""
    rows = json.loads(file.read_text())
    return [Error(**{**row, "arguments": (*row.get("arguments", ()),)}) for row in rows]


ERRORS = read(pathlib.Path(__file__).with_name("catalogue.json"))


def table():
    """The list as Markdown."""
    lines = ["| file | source | mechanism | step | cause |", "|---|---|---|---|---|"]
    for e in ERRORS:
        row = (f"{e.name}.py", e.source, e.what, str(e.trigger_step), e.cause)
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
