"""Results of many runs as a table on the terminal and in a document."""

import pathlib
import re

from faults import KINDS

_RECORDS = {
    "none": "all records once",
    "counted": "records once or counted",
    "unknown": "records once, the rest counted or unknown",
}
_VERDICTS = {"equal": "verdicts equal", "unknown": "verdicts right or unknown"}


def checked(name: str) -> str:
    cost = KINDS[name].cost
    if not cost.stored:
        return "training untouched"
    losses = "losses up to the death" if cost.dies else "losses"
    return f"{losses}, {_RECORDS[cost.records]}, {_VERDICTS[cost.verdicts]}"


class Results:
    def __init__(self, names: list):
        self._rows = {name: [] for name in names}
        self.failed = 0

    def add(self, name, repeat, ranks, outcome, why, seconds) -> None:
        self._rows[name].append((outcome, why))
        self.failed += outcome == "failed"
        line = f"{outcome:8} {name} repeat {repeat} ranks {ranks} {seconds:.0f} s"
        print(line + (f": {why}" if why else ""), flush=True)

    def _result(self, name: str) -> tuple:
        """(runs, words)"""
        rows = self._rows[name]
        skipped = [why for outcome, why in rows if outcome == "skipped"]
        failed = [why for outcome, why in rows if outcome == "failed"]
        runs = len(rows) - len(skipped)
        words = f"{runs - len(failed)} of {runs} held" if runs else ""
        if skipped:
            words = f"{words} skipped: {skipped[0]}".strip()
        return runs, words

    def table(self) -> str:
        lines = []
        for name in self._rows:
            runs, words = self._result(name)
            lines.append(f"{name:26} {runs:4}  {checked(name):70} {words}")
        total = sum(len(rows) for rows in self._rows.values())
        lines.append(f"{len(self._rows)} faults, {total} runs, {self.failed} failed")
        return "\n".join(lines)

    def markdown(self, options) -> str:
        command = f"tests/fault/run.sh --seed {options.seed}"
        command += f" --repeats {options.repeats} --ranks {options.ranks}"
        lines = [f"`{command}`", ""]
        lines += ["| fault | what happens | runs | checked | result |"]
        lines += ["|---|---|---|---|---|"]
        for name in self._rows:
            runs, words = self._result(name)
            what = KINDS[name].what
            lines.append(f"| {name} | {what} | {runs} | {checked(name)} | {words} |")
        total = sum(self._result(name)[0] for name in self._rows)
        lines += ["", f"{len(self._rows)} kinds, {total} runs, {self.failed} failed."]
        return "\n".join(lines)


def fill_in(path: pathlib.Path, section: str, text: str) -> None:
    """Replaces what stands between the markers of the section."""
    begin, end = f"<!-- {section} begin -->", f"<!-- {section} end -->"
    document = path.read_text()
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(document):
        raise SystemExit(f"{path} has no section between {begin} and {end}")
    new = f"{begin}\n{text}\n{end}"
    path.write_text(pattern.sub(lambda _: new, document))
