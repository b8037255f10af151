"""False alarms by the thresholds of inference, on healthy programs.

Each of the programs of tests/errors/references.py is recorded in full twice, the
second time with another seed. For each pair of thresholds:

    others   each program against the rules learned from all others: rules that
             were decided, and those that were violated
    again    the second run of each program against the rules learned from the
             first runs of all: the rules that are the program's own too

    tests/bench/run.sh false_alarms.py
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import soak

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "errors"))

from references import REFERENCES


def record(setting: soak.Setting, run: str, name: str, arguments: tuple) -> None:
    bare = {k: v for k, v in os.environ.items() if not k.startswith("TRAINCHECK_")}
    bare.update(OMP_NUM_THREADS="1", TRAINCHECK_BUDGET="off")
    bare["TRAINCHECK_SPOOL_DIR"] = str(setting.folder / "spool")
    command = [soak.DIST / "traincheckctl", "--server", setting.address, "run"]
    command += ["--run", run, "--experiment", name, "--collect", "--full", "--"]
    command += [sys.executable, ROOT / "tests" / "pipelines" / f"{name}.py"]
    with open(setting.folder / f"{run}.log", "wb") as log:
        subprocess.run([*command, *arguments], stdout=log, stderr=log, env=bare,
                       check=True)  # fmt: skip


class Counted:
    """Rules of several checks, and the texts of those that were violated."""

    def __init__(self):
        self.decided, self.texts = 0, []

    def check(self, setting: soak.Setting, run: str, rules: str) -> None:
        command = [soak.DIST / "traincheckctl", "--server", setting.address]
        command += ["-o", "json", "check", "--run", run, "--set", rules]
        done = subprocess.run(command, capture_output=True)
        found = soak.json.loads(done.stdout)
        self.decided += found["coverage"]["decided"]
        for verdict in found["verdicts"]:
            if verdict["verdict"] == "violated":
                self.texts.append(f"{run}: {verdict['text']}")


def infer(setting: soak.Setting, runs: list, name: str, options: list) -> int:
    learned = setting.ctl("infer", "--from", ",".join(runs), "--set", name, *options)
    return learned["invariants"]


def measure(setting: soak.Setting, programs: int, chance: float) -> list:
    """Prints a row; returns the texts of the alarms."""
    options = ["--min-programs", str(programs), "--max-chance", str(chance)]
    names = list(REFERENCES)
    others, again = Counted(), Counted()
    for name in names:
        infer(setting, [n for n in names if n != name], "others", options)
        others.check(setting, name, "others")
    rules = infer(setting, names, "all", options)
    for name in names:
        again.check(setting, f"{name}-again", "all")
    print(
        f"{programs:>8}  {chance:>7}  {rules:>5}  {others.decided:>7}  "
        f"{len(others.texts):>6}  {again.decided:>7}  {len(again.texts):>6}",
        flush=True,
    )
    return others.texts + again.texts


def main():
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("--programs", default="1,2,3,4")
    cli.add_argument("--chances", default="0.2,0.05,0.01,0.001")
    cli.add_argument("--texts", action="store_true", help="print the alarms")
    options = cli.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        setting = soak.Setting(pathlib.Path(folder))
        try:
            for name, arguments in REFERENCES.items():
                record(setting, name, name, arguments)
                record(setting, f"{name}-again", name, (*arguments, "--seed", "4711"))
            print("                           others           again")
            print("programs   chance  rules  decided  alarms  decided  alarms")
            for programs in map(int, options.programs.split(",")):
                for chance in map(float, options.chances.split(",")):
                    for text in measure(setting, programs, chance):
                        if options.texts:
                            print(f"    {text}")
        finally:
            setting.daemon.terminate()
            setting.daemon.wait()


if __name__ == "__main__":
    main()
