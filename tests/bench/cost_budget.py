"""Does the budget hold where recording every step in full takes several times the
step? budget_train.py with and without the agent, by turns.

    tests/bench/run.sh cost_budget.py --pairs 15

Shown are the agent's own share by its own clock and the ratio of the step times,
both over the steps after warm-up and the first decisions; before them what
recording in full takes without a budget.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]
import harness
from cost_statistics import median_interval

PLAN = {"format": 1, "mode": "full", "sample": {"every": 1, "warm_up": 64}}
FULL = {"steps": 120, "skip": 40}


class Bench:
    def __init__(self, folder: pathlib.Path, steps: int, skip: int):
        self.folder = folder
        self.length = {"steps": steps, "skip": skip}
        self.daemon = harness.Daemon(folder).start()
        self.plan = folder / "plan.json"
        self.plan.write_text(json.dumps(PLAN))

    def train(self, watched: bool, length=None, **extra: str) -> dict:
        out = self.folder / "out.json"
        command = [sys.executable, str(HERE / "budget_train.py"), "--out", str(out)]
        for name, value in (length or self.length).items():
            command += [f"--{name}", str(value)]
        env = {**harness.others_environment(), "OMP_NUM_THREADS": "1", **extra}
        if watched:
            ctl = [str(harness.DIST / "traincheckctl"), "--server", self.daemon.address]
            command = ctl + ["run", "--plan", str(self.plan), "--"] + command
            env["TRAINCHECK_SPOOL_DIR"] = str(self.folder / "spool")
        subprocess.run(command, env=env, stderr=subprocess.DEVNULL, check=True)
        return json.loads(out.read_text())


def _line(name: str, values: list, form: str) -> str:
    middle, low, high = median_interval(values)
    interval = "-" if low is None else f"{low:{form}} to {high:{form}}"
    spread = f"{min(values):{form}} to {max(values):{form}}"
    return f"| {name} | {middle:{form}} | {interval} | {spread} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--skip", type=int, default=600)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(pathlib.Path(folder), options.steps, options.skip)
        try:
            plain, watched = [], []
            whole = bench.train(True, FULL, TRAINCHECK_BUDGET="off")["step_s"]
            for pair in range(options.pairs):
                for with_agent in (True, False) if pair % 2 else (False, True):
                    found = bench.train(with_agent)
                    (watched if with_agent else plain).append(found)
        finally:
            bench.daemon.stop()
    step = median_interval([run["step_s"] for run in plain])[0]
    print(f"step {1e3 * step:.1f} ms; every step in full: {whole / step:.1f} times\n")
    print("| with the default budget | median | 95% | all |\n|---|---|---|---|")
    print(_line("own share, %", [run["own_percent"] for run in watched], ".2f"))
    ratios = [b["step_s"] / a["step_s"] for a, b in zip(plain, watched)]
    print(_line("step time, ratio", ratios, ".3f"))


if __name__ == "__main__":
    main()
