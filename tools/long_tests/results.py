"""What parts did: kept outside the checkout, shown as a table in a document."""

import dataclasses
import json
import pathlib
import re
import subprocess

BEGIN, END = "<!-- long tests begin -->", "<!-- long tests end -->"
_HEAD = "| part | what | commit | date | minutes | seed | result |"
# What is no part of what is tested.
_DOCUMENTS = (":!docs", ":!*.md")


@dataclasses.dataclass(frozen=True)
class Result:
    part: str
    commit: str
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

    def latest(self) -> dict:
        """part -> its last result."""
        return {result.part: result for result in self.all()}


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


def passed(part: str, results: list[Result], checkout: Checkout) -> bool:
    """Did it pass here, on what the present commit has?"""
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


def row_of(part, result: Result | None) -> str:
    if result is None:
        return f"| {part.name} | {part.what} | | | | | not run yet |"
    seed = "" if result.seed is None else result.seed
    return (
        f"| {part.name} | {part.what} | {result.commit[:9]} | {result.date} "
        f"| {result.seconds / 60:.0f} | {seed} | {result.outcome} |"
    )


def fill_in(document: str, parts, latest: dict) -> str:
    """The document with its table made anew. What ran elsewhere keeps its row."""
    pattern = re.compile(re.escape(BEGIN) + "(.*?)" + re.escape(END), re.DOTALL)
    found = pattern.search(document)
    if not found:
        raise SystemExit(f"no section between {BEGIN} and {END}")
    old = {
        line.split("|")[1].strip(): line.split("|", 3)[3]
        for line in found.group(1).splitlines()
        if line.startswith("| ")
    }
    rows = []
    for part in parts:
        if part.name in latest or part.name not in old:
            rows.append(row_of(part, latest.get(part.name)))
        else:
            rows.append(f"| {part.name} | {part.what} |{old[part.name]}")
    text = "\n".join([BEGIN, _HEAD, "|---|---|---|---|---|---|---|", *rows, END])
    return document[: found.start()] + text + document[found.end() :]
