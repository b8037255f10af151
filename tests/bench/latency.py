"""From the end of an offending step to `violations watch`.

    tests/bench/run.sh latency.py [--steps N] [--pause-ms MS] [--json FILE]

Two ranks break a rule in every step (latency_train.py), checked by the built-in rules.
The time of a step is that from its end on the last rank until `traincheckctl -o json
violations watch` has printed that the violation reaches it.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

import harness

RUN = "latency"
FAULT_STEP = 20
RULE = "bypasses"  # in its headline


class Watch(threading.Thread):
    """Reads what `watch` prints: (nanoseconds, last step) of the rule's violation."""

    def __init__(self, daemon: harness.Daemon):
        super().__init__()
        ctl = [harness.DIST / "traincheckctl", "--server", daemon.address, "-o", "json"]
        self._process = subprocess.Popen(
            [*ctl, "violations", "watch", "--run", RUN, "--wait"],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.seen: list = []

    def run(self) -> None:
        for line in self._process.stdout:
            now = time.time_ns()
            violation = json.loads(line)
            if RULE in violation["headline"]:
                self.seen.append((now, violation["last_step"]))
        self._process.wait()


def ends_of_steps(folder: pathlib.Path) -> dict:
    """Step -> when the last rank ended it, nanoseconds."""
    ends: dict = {}
    for stamps in folder.glob("rank*"):
        for line in stamps.read_text().splitlines():
            step, at = map(int, line.split())
            ends[step] = max(ends.get(step, 0), at)
    return ends


def measure(folder: pathlib.Path, steps: int, pause_ms: float) -> list:
    """Milliseconds of each offending step."""
    daemon = harness.Daemon(folder).start()
    try:
        watch = Watch(daemon)
        watch.start()
        ctl = [harness.DIST / "traincheckctl", "--server", daemon.address]
        script = [HERE / "latency_train.py", "--stamps", folder, "--steps", steps]
        script += ["--fault-step", FAULT_STEP, "--pause-ms", pause_ms]
        done = harness.run_captured(
            [*ctl, "run", "--run", RUN, "--", sys.executable, *script],
            harness.others_environment(),
        )
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        watch.join()
    finally:
        daemon.stop()
    ends = ends_of_steps(folder)
    times = []
    # The last one is closed by the end of the training.
    for step in range(FAULT_STEP, steps - 1):
        seen = next((at for at, last in watch.seen if last >= step), None)
        if seen is None:
            raise SystemExit(f"step {step} was never seen")
        times.append((seen - ends[step]) / 1e6)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--pause-ms", type=float, default=50)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        times = measure(pathlib.Path(folder), arguments.steps, arguments.pause_ms)
    shares = statistics.quantiles(times, n=100)
    result = {
        "steps": len(times),
        "median_ms": statistics.median(times),
        "p99_ms": shares[98],
        "worst_ms": max(times),
    }
    for name, value in result.items():
        print(f"{name:12} {value:8.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
