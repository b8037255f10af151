"""What the original TrainCheck says of ten errors that nobody tuned to.

    tests/original.sh
    tests/original.sh --only svae_15,popt_516
    tests/original.sh --write docs/evaluation.md

The programs, chosen before any result was there: of the last twelve errors of the
catalogue at that time those that run in one process. For each of them:

    reference   the fixed variant under traincheck-collect, everything traced
    infer       traincheck-infer on that trace
    faulty      the program with its error, traced alike, and traincheck-check
    fixed       the fixed variant with another seed, traced alike, and checked

One command runs at a time; minutes are a processor's, since it may be shared. What
is done is kept in the cache folder, for each phase of each program, so that a run
that was stopped goes on. The folder of a program has the checker's own files
(failed.log) for reading. The last column of the table is filled by hand; --write
keeps what stands there.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
BEGIN, END = "<!-- original begin -->", "<!-- original end -->"
HEAD = (
    "| error | minutes of a processor | invariants | failed on faulty (there only) "
    "| failed on fixed | names the cause? |"
)
# The program, and the variable that holds the model that is tracked.
PROGRAMS = {
    "openul_178": "model",
    "ludwig_2100": "model",
    "anima_305": "model",
    "sbay_49": "model",
    "rover_814": "agent",
    "dfs_5654": "model",
    "popt_516": "model",
    "ultra_22189": "model",
    "aitk_1034": "model",
    "svae_15": "model",
}
STEPS = 8
# Its scaler skips the first seven, and the error comes in the middle.
LONGER = {"ultra_22189": 24}
LIMIT = 1800  # seconds a command
PHASES = ("reference", "infer", "faulty", "fixed")


def _processor() -> float:
    """Seconds of a processor that ended commands took, those they started too."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Failure(Exception):
    """A command of the original that ended badly, with its last words."""


def _folder() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base, "traincheckd/original")


def prepared(source: str, model: str, seed: int) -> str:
    """The program as the collector wants it: the tracked model has a variable.

    An attribute is bound to one first; nothing else changes but the seed.
    """
    source = source.replace("torch.manual_seed(0)", f"torch.manual_seed({seed})")
    attribute = rf"^( +)self\.{model} = (.+)$"
    bound = rf"\1{model} = \2\n\1self.{model} = {model}"
    return re.sub(attribute, bound, source, flags=re.MULTILINE)


def identities(log: pathlib.Path) -> dict:
    """Invariants of a failed.log: what they are, and how they are described."""
    text, at, found = log.read_text(), 0, {}
    while at < len(text.rstrip()):
        entry, at = json.JSONDecoder().raw_decode(text, at)
        invariant = entry["invariant"]
        key = invariant["relation"] + json.dumps(invariant["params"], sort_keys=True)
        found[key] = f"{invariant['relation']}: {invariant['text_description']}"
        at += len(text[at:]) - len(text[at:].lstrip())
    return found


class Trial:
    """One program: its folder, and what is known of it so far."""

    def __init__(self, folder: pathlib.Path, name: str) -> None:
        self.name, self.model, self.folder = name, PROGRAMS[name], folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.steps = LONGER.get(name, STEPS)
        self.source = (HERE / "errors" / f"{name}.py").read_text()
        self.file = folder / f"{name}.json"
        self.results = self._known()

    def _known(self) -> dict:
        """What was kept, unless the program, the pins or the length changed."""
        pins = (HERE / "original.txt").read_text()
        of = hashlib.sha256(f"{self.source}{pins}{self.steps}".encode()).hexdigest()
        if self.file.exists():
            kept = json.loads(self.file.read_text())
            if kept["of"] == of:
                return kept
        return {"of": of}

    def run(self) -> None:
        """The phases that are not done; ends at one that fails."""
        for phase in PHASES:
            if phase not in self.results:
                begin = time.monotonic(), _processor()
                try:
                    found = getattr(self, phase)()
                except Failure as failure:
                    found = {"failure": str(failure)}
                found["minutes"] = (_processor() - begin[1]) / 60
                found["by the clock"] = (time.monotonic() - begin[0]) / 60
                self.results[phase] = found
                self.file.write_text(json.dumps(self.results, indent=1) + "\n")
                print(f"{self.name} {phase}: {found['minutes']:.1f} min", flush=True)
            if "failure" in self.results[phase]:
                return

    def reference(self) -> dict:
        return self._collect("reference", fixed=True, seed=0)

    def infer(self) -> dict:
        self._command("infer", "traincheck-infer", "-f", "reference", "-o", "rules")
        return {"invariants": len((self.folder / "rules").read_text().splitlines())}

    def faulty(self) -> dict:
        return self._judged("faulty", fixed=False, seed=0)

    def fixed(self) -> dict:
        return self._judged("fixed", fixed=True, seed=1)

    def _collect(self, out: str, fixed: bool, seed: int) -> dict:
        shutil.rmtree(self.folder / out, ignore_errors=True)
        script = self.folder / f"{self.name}.py"
        script.write_text(prepared(self.source, self.model, seed))
        arguments = f"{'--fixed ' if fixed else ''}--steps {self.steps}"
        (self.folder / "run.sh").write_text(f"python3 {script.name} {arguments}\n")
        words = ["traincheck-collect", "--pyscript", script.name, "--shscript"]
        words += ["run.sh", "--models-to-track", self.model, "--output-dir", out]
        self._command(out, *words)
        lines = {}
        for trace in (self.folder / out).glob("*"):
            if trace.name.startswith(("trace_", "proxy_log")):
                with trace.open("rb") as file:
                    lines[trace.name] = sum(1 for _ in file)
        variables = sum(n for t, n in lines.items() if not t.startswith("trace_API"))
        return {"records": sum(lines.values()), "of variables": variables}

    def _judged(self, out: str, fixed: bool, seed: int) -> dict:
        found = self._collect(out, fixed, seed)
        words = ["traincheck-check", "-f", out, "-i", "rules", "--no-html-report"]
        self._command(f"check_{out}", *words, "-o", f"check_{out}")
        found["failed"] = identities(self.folder / f"check_{out}" / out / "failed.log")
        return found

    def _command(self, log: str, *words: str) -> None:
        """Runs one, with what it prints in a file of the program's folder."""
        path = self.folder / f"{log}.log"
        # `timeout` ends the trainings that a command started, too.
        limited = ["timeout", "--kill-after=10", str(LIMIT), *words]
        with path.open("w") as file:
            done = subprocess.run(
                limited, cwd=self.folder, stdout=file, stderr=subprocess.STDOUT
            )
        if done.returncode:
            last = path.read_text()[-400:]
            raise Failure(f"{words[0]} ended with {done.returncode}: {last}")


def row(name: str, results: dict, verdict: str) -> str:
    """A line of the table, as far as the phases went."""
    minutes = [f"{results[p]['minutes']:.1f}" for p in PHASES if p in results]
    invariants = str(results.get("infer", {}).get("invariants", ""))
    cells = [name, " + ".join(minutes), invariants]
    failed = {p: results.get(p, {}).get("failed") for p in ("faulty", "fixed")}
    if failed["faulty"] is None or failed["fixed"] is None:
        ended = [p for p in PHASES if "failure" in results.get(p, {})]
        cells += [f"no result: {ended[0]}" if ended else "not run", ""]
    else:
        alone = len(failed["faulty"].keys() - failed["fixed"].keys())
        cells += [f"{len(failed['faulty'])} ({alone})", str(len(failed["fixed"]))]
    return "| " + " | ".join([*cells, verdict]) + " |"


def verdicts(document: str) -> dict:
    """The last column of the table that the document has, by error."""
    part = document.split(BEGIN)[-1].split(END)[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines()]
    return {r[0]: r[-1] for r in rows if r[0] in PROGRAMS and len(r) == 6}


def main() -> None:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("--folder", type=pathlib.Path, default=_folder())
    cli.add_argument("--only", help="names of programs, with commas between")
    cli.add_argument("--write", type=pathlib.Path, help="the table, into a document")
    options = cli.parse_args()
    only = options.only.split(",") if options.only else list(PROGRAMS)
    trials = [Trial(options.folder, name) for name in PROGRAMS]
    for trial in trials:
        if trial.name in only:
            trial.run()
    document = options.write.read_text() if options.write else ""
    said = verdicts(document)
    rows = [row(t.name, t.results, said.get(t.name, "")) for t in trials]
    table = "\n".join([HEAD, "|---|---|---|---|---|---|", *rows])
    print(table)
    if options.write:
        before, rest = document.split(BEGIN)
        after = rest.split(END)[1]
        options.write.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


if __name__ == "__main__":
    main()
