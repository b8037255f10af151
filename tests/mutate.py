"""What rules are worth for a script of yours: faults are put into it, one at a time.

    tests/mutate.sh train.py --epochs 2
    tests/mutate.sh --set my-rules=rules.json --torchrun 2 train.py

Runs the healthy script once and then with each fault of tests/mutation/faults.py,
and prints which ones some rule finds. A rule that the healthy run breaks counts for
nothing. Faults that the script gives no occasion for (no checkpoint, no workers)
change nothing and are not found.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from mutation.faults import FAULTS

HERE = pathlib.Path(__file__).resolve().parent
INJECT = HERE / "mutation" / "inject"


class Bench:
    """A daemon of its own, and trainings under it."""

    def __init__(self, folder: pathlib.Path, options: argparse.Namespace) -> None:
        self._dist = pathlib.Path(os.environ["TRAINCHECK_DIST"])
        self._options = options
        address = folder / "address"
        self._daemon = subprocess.Popen(
            [
                self._dist / "traincheckd",
                f"--data-dir={folder / 'data'}",
                "--listen=127.0.0.1:0",
                f"--port-file={address}",
            ],
            stderr=(folder / "traincheckd.log").open("w"),
        )
        while not address.exists() or not address.read_text():
            if self._daemon.poll() is not None:
                sys.exit((folder / "traincheckd.log").read_text())
        # Settings of yours are not the trial's.
        others = {
            k: v for k, v in os.environ.items() if not k.startswith("TRAINCHECK_")
        }
        self._environment = {
            **others,
            "TRAINCHECK_SERVER": address.read_text().strip(),
            "TRAINCHECK_SPOOL_DIR": str(folder / "spool"),
            "TRAINCHECK_BUDGET": "off",
        }

    def close(self) -> None:
        self._daemon.terminate()
        self._daemon.wait()

    def ctl(self, *words: str, **environment: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [self._dist / "traincheckctl", *words],
            env={**self._environment, **environment},
            capture_output=True,
            text=True,
        )

    def train(self, run: str, fault: str | None) -> dict | None:
        """Violations of the run by id of their rule; None: the training failed."""
        environment = {}
        if fault is not None:
            former = os.environ.get("PYTHONPATH")
            path = [str(INJECT)] + ([former] if former else [])
            environment["PYTHONPATH"] = os.pathsep.join(path)
            environment["MUTATION"] = fault
            environment["MUTATION_STEP"] = str(self._options.step)
        check = ("--check", self._options.check) if self._options.check else ()
        done = self.ctl(
            "run", "--run", run, *check, "--", *self._command(), **environment
        )
        if done.returncode != 0:
            print(done.stderr[-2000:], file=sys.stderr)
            return None
        listed = self.ctl("-o", "json", "violations", "list", "--run", run)
        return {row["invariant_id"]: row for row in json.loads(listed.stdout)}

    def _command(self) -> list:
        options = self._options
        if options.torchrun == 0:
            return [sys.executable, *options.script]
        return [
            sys.executable,
            *("-m", "torch.distributed.run", "--standalone"),
            f"--nproc-per-node={options.torchrun}",
            *options.script,
        ]


def _words(found: dict) -> str:
    first = min(
        found.values(),
        key=lambda row: (row["grade"] != "alert", row["first_step"] or 0),
    )
    step = first["first_step"]
    grade = "" if first["grade"] == "alert" else "advice, "
    return f"{grade}step {'?' if step is None else step}: {first['text']}"


def _options() -> argparse.Namespace:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument(
        "--set",
        dest="sets",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="rules to check against beside the built-in ones, as exported",
    )
    cli.add_argument("--torchrun", type=int, default=0, metavar="N", help="ranks")
    cli.add_argument("--step", type=int, default=4, help="at which faults begin")
    cli.add_argument("--only", help="names of faults, with commas between")
    cli.add_argument("--json", type=pathlib.Path, help="write all results there")
    cli.add_argument("script", nargs=argparse.REMAINDER, help="with its arguments")
    options = cli.parse_args()
    if not options.script:
        cli.error("a script is missing")
    options.faults = options.only.split(",") if options.only else list(FAULTS)
    unknown = [name for name in options.faults if name not in FAULTS]
    if unknown:
        cli.error(f"no such fault: {', '.join(unknown)}")
    options.check = ",".join(named.split("=", 1)[0] for named in options.sets)
    return options


def _take_sets(bench: Bench, sets: list) -> None:
    for named in sets:
        name, file = named.split("=", 1)
        imported = bench.ctl("invariants", "import", "--set", name, file)
        if imported.returncode != 0:
            sys.exit(imported.stderr)


def _try_each(bench: Bench, options: argparse.Namespace) -> dict:
    healthy = bench.train("healthy", None)
    if healthy is None:
        sys.exit("mutate: the script fails without a fault")
    for row in healthy.values():
        print(f"healthy, and broken all the same: {row['text']}")
    results = {}
    for name in options.faults:
        fault = FAULTS[name]
        if fault.ranks and options.torchrun < 2:
            continue
        found = bench.train(name, name)
        results[name] = {"what": fault.what, "by": None}
        if found is None:
            print(f"failed   {name}: the training ended with an error")
            continue
        found = {rule: row for rule, row in found.items() if rule not in healthy}
        results[name]["by"] = sorted(found)
        said = _words(found) if found else fault.what
        print(f"{'found   ' if found else 'missed  '} {name}: {said}", flush=True)
    return results


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(pathlib.Path(folder), options)
        try:
            _take_sets(bench, options.sets)
            results = _try_each(bench, options)
        finally:
            bench.close()
    count = sum(bool(row["by"]) for row in results.values())
    print(f"{count} of {len(results)} faults found")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
