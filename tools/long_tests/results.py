"""What parts did: kept outside the checkout, shown as a table in a document."""

import dataclasses
import json
import pathlib
import re
import subprocess

BEGIN, END = "<!-- long tests begin -->", "<!-- long tests end -->"
_SECTION = re.compile(re.escape(BEGIN) + "(.*?)" + re.escape(END), re.DOTALL)
_COLUMNS = ["part", "what", "commit", "date", "minutes", "seed", "result"]
# What is no part of what is tested.
_DOCUMENTS = (":!docs", ":!*.md")


@dataclasses.dataclass(frozen=True)
class Result:
    part: str
    commit: str  # in full, or as a document has it
    date: str  # YYYY-MM-DD
    seconds: float
    seed: int | None
    outcome: str  # "passed", "failed" or "out of time"


class Results:
    """All that ran on this machine, in order: a line of JSON each."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self._file = folder / "results.jsonl"

    def add(self, result: Result) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self._file, "a") as file:
            file.write(json.dumps(dataclasses.asdict(result)) + "\n")

    def all(self) -> list[Result]:
        if not self._file.exists():
            return []
        lines = self._file.read_text().splitlines()
        return [Result(**json.loads(line)) for line in lines]


class Checkout:
    """The commit at hand, and which others are as good as it."""

    def __init__(self, root: pathlib.Path):
        self._root = root
        self.commit = self._git("rev-parse", "HEAD").stdout.strip()
        self._same: dict = {}

    def _git(self, *arguments: str) -> subprocess.CompletedProcess:
        command = ["git", "-C", str(self._root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def changed(self) -> bool:
        """Is there anything that no commit has?"""
        return bool(self._git("status", "--porcelain").stdout)

    def same(self, commit: str) -> bool:
        """Is all but documents as at that commit?"""
        if commit not in self._same:
            done = self._git("diff", "--quiet", commit, "HEAD", "--", ".", *_DOCUMENTS)
            self._same[commit] = done.returncode == 0
        return self._same[commit]


def in_order(results: list[Result], checkout: Checkout) -> list[Result]:
    """Oldest first. Of one day, what the present commit has comes last: results of
    several machines have no other order."""
    return sorted(results, key=lambda r: (r.date, checkout.same(r.commit)))


def latest(results: list[Result]) -> dict:
    """part -> its last result."""
    return {result.part: result for result in results}


def passed(part: str, results: list[Result], checkout: Checkout) -> bool:
    """Did it pass on what the present commit has?"""
    return any(
        r.part == part and r.outcome == "passed" and checkout.same(r.commit)
        for r in results
    )


def next_part(parts, results: list[Result], checkout: Checkout):
    """The first that was not run, else the first that did not pass; or None."""
    left = [part for part in parts if not passed(part.name, results, checkout)]
    tried = {r.part for r in results if checkout.same(r.commit)}
    untried = [part for part in left if part.name not in tried]
    return next(iter(untried or left), None)


def _cells_of(result: Result | None) -> list[str]:
    """Those behind a part's name and what it does."""
    if result is None:
        return ["", "", "", "", "not run yet"]
    seed = "" if result.seed is None else str(result.seed)
    minutes = f"{result.seconds / 60:.0f}"
    return [result.commit[:9], result.date, minutes, seed, result.outcome]


def _line(cells: list[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _rows(document: str) -> dict:
    """part -> the cells of its row in the document's table."""
    found = _SECTION.search(document)
    if not found:
        raise SystemExit(f"no section between {BEGIN} and {END}")
    lines = [line for line in found.group(1).splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return {row[0]: row for row in rows if row != _COLUMNS}


def read_rows(document: str) -> list[Result]:
    """What the document's table has, also from other machines."""
    results = []
    for part, _, commit, date, minutes, seed, outcome in _rows(document).values():
        if commit:
            number = int(seed) if seed else None
            results.append(
                Result(part, commit, date, int(minutes) * 60, number, outcome)
            )
    return results


def fill_in(document: str, parts, last: dict) -> str:
    """The document with its table made anew. A part without a result keeps its row."""
    old = _rows(document)
    rows = [_line(_COLUMNS), "|---" * len(_COLUMNS) + "|"]
    for part in parts:
        keeps = part.name in old and part.name not in last
        cells = old[part.name][2:] if keeps else _cells_of(last.get(part.name))
        rows.append(_line([part.name, part.what, *cells]))
    text = "\n".join([BEGIN, *rows, END])
    return _SECTION.sub(lambda _: text, document)
