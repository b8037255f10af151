"""What the agent takes of a step and of a call of a module, in microseconds.

    tests/bench/run.sh own_time.py --rounds 3

own_time_train.py has 100 parameters of 16 elements at most and one optimizer, so that
what is left is hooks and records (--size 512: of 1 MiB, whose digests are most of it);
the time is that of the agent's own clock. `early`
are steps before the budget's first decision, `late` those after it. Shown is the median
of the steps, and of the rounds. The modes are those of cost.py.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]
import cost
import harness

STEPS = 700
EARLY, LATE = slice(20, 250), slice(400, STEPS)


class Bench(cost.Bench):
    def figures(self, mode: str, run: str) -> dict:
        out = self.folder / "own_times"
        script = str(HERE / "own_time_train.py")
        command = [sys.executable, script, "--steps", str(STEPS), "--out", str(out)]
        command += ["--size", str(self.options.size)]
        environment = self.watched(mode, "own_time", run)
        subprocess.run(command, env=environment, check=True)
        rows = [tuple(map(float, row.split())) for row in out.read_text().splitlines()]
        steps, roots = zip(*rows)
        return {
            "a step, early": statistics.median(steps[EARLY]),
            "a step, late": statistics.median(steps[LATE]),
            "a step, late, mean": statistics.mean(steps[LATE]),
            "a root without parameters": statistics.median(roots[EARLY]),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=4, help="a weight's rows")
    parser.add_argument("--modes", default="skeleton,bare,builtin")
    options = parser.parse_args()
    options.steps, options.set = STEPS, None
    modes = options.modes.split(",")
    found: dict = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, pathlib.Path(folder))
        try:
            for turn in range(options.rounds):
                for mode in modes:
                    for name, value in bench.figures(mode, f"{mode}-{turn}").items():
                        found.setdefault((mode, name), []).append(value)
        finally:
            bench.daemon.stop()
    print("| mode | what | us |\n|---|---|---|")
    for (mode, name), values in found.items():
        print(f"| {mode} | {name} | {statistics.median(values):.1f} |")


if __name__ == "__main__":
    main()
