"""From the end of an offending step to the violation, while the training runs:
TrainCheck's online checker and this system.

    tests/bench/vs_traincheck.sh online [--pause-ms MS] [--epochs N] [--json FILE]

Both learn from one healthy run of vs_traincheck_train.py and watch the faulty one,
whose optimizer moves nothing in any step. It waits --pause-ms after each step. The
time of a step is that from its end, by the training's own clock, to the first
violation that has a record of this step: with TrainCheck to the detection time that
its checker notes, with traincheckd until `traincheckctl -o json violations watch` has
printed that a violation reaches the step. TrainCheck records each step (its default
is each tenth after the first ten); all else is the default of both.
"""

import argparse
import bisect
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]

LEARNED = ["--seed", "1"]
CATCH_UP_S = 600  # patience with a checker that is behind
LOOK_S = 0.5


def ends_of_steps(system, label: str) -> list:
    """Moments by CLOCK_MONOTONIC, the beginning of the training first."""
    text = (system.folder / f"{label}.times").read_text()
    return [float(line) for line in text.split()]


def theirs(system, label: str, words: list) -> dict:
    """Step -> seconds until the online checker found a violation in it."""
    trained: dict = {}
    more = ("--invariants", "invariants.json", "--sampling-interval", "1")

    def train() -> None:
        trained.update(system.collect("online", label, words, *more))

    training = threading.Thread(target=train)
    training.start()
    while training.is_alive() and not list((system.folder / label).glob("trace_*")):
        time.sleep(LOOK_S / 10)
    command = system.command(
        *("online check", "traincheck-onlinecheck", "-f", label),
        *("-i", "invariants.json", "-o", f"{label}-online", "--no-html-report"),
    )
    with open(system.folder / f"{label}-online.log", "wb") as log:
        checker = subprocess.Popen(
            [str(word) for word in command],
            cwd=system.folder,
            env=system.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        system.daemons.add(checker.pid)  # no part of the training's command
        training.join()
        failed = system.folder / f"{label}-online" / "failed.log"
        _wait_until_still(failed)
        checker.send_signal(signal.SIGINT)
        checker.wait()
    if trained["status"] != "ok":
        raise SystemExit(f"traincheck-collect: {trained['status']}")
    return _first_detections(system, failed, ends_of_steps(system, label))


def _wait_until_still(file: pathlib.Path) -> None:
    """Until the checker has written nothing for a while: it never ends by itself."""
    size, since = -1, time.monotonic()
    deadline = since + CATCH_UP_S
    while time.monotonic() < min(since + 30, deadline):
        now = file.stat().st_size if file.exists() else -1
        if now != size:
            size, since = now, time.monotonic()
        time.sleep(LOOK_S)


def _first_detections(system, failed: pathlib.Path, ends: list) -> dict:
    import vs_traincheck_systems as of

    found: dict = {}
    for result in of.objects(failed):
        records = [r["time"] / 1e9 for r in result["trace"] if "time" in r]
        # Records belong to the step that ends next; number 0 is what was before.
        step = bisect.bisect_left(ends, max(records, default=0.0))
        if not 0 < step < len(ends):
            continue
        waited = result["detection_time"] / 1e9 - ends[step]
        found[step] = min(waited, found.get(step, waited))
    return found


def ours(system, label: str, words: list) -> dict:
    """Step -> seconds until `watch` had printed a violation that reaches it."""
    import harness

    ctl = [str(harness.DIST / "traincheckctl"), "-o", "json"]
    watch = subprocess.Popen(
        [*ctl, "violations", "watch", "--run", label, "--wait"],
        env=system.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    system.daemons.add(watch.pid)
    seen: list = []

    def read() -> None:
        for line in watch.stdout:
            seen.append((time.monotonic(), json.loads(line)["last_step"]))

    reader = threading.Thread(target=read)
    reader.start()
    trained = system.watch(label, words)
    if trained["status"] != "ok":
        raise SystemExit(f"traincheckctl run: {trained['status']}")
    reader.join()
    watch.wait()
    ends = ends_of_steps(system, label)
    found = {}
    # The last step is closed by the end of the training.
    for step in range(1, len(ends) - 1):
        at = next((at for at, last in seen if last >= step - 1), None)
        if at is not None:
            found[step] = at - ends[step]
    return found


def figures(found: dict, steps: int) -> dict:
    """In milliseconds."""
    waited = sorted(1e3 * seconds for seconds in found.values())
    if not waited:
        raise SystemExit("no step was found")
    return {
        "found": len(waited),
        "steps": steps,
        "median_ms": statistics.median(waited),
        "p99_ms": waited[min(len(waited) - 1, int(0.99 * len(waited)))],
        "worst_ms": waited[-1],
    }


def compare(folder: pathlib.Path, options) -> dict:
    import cost_processes
    import vs_traincheck_systems as of

    cost_processes.adopt_orphans()
    faulty = ["--seed", "2", "--fault", "--epochs", str(options.epochs)]
    faulty += ["--pause-ms", str(options.pause_ms)]
    steps = 13 * options.epochs
    daemon = of.Traincheckd(folder / "traincheckd", 60 * options.limit)
    other = of.TrainCheck(folder / "traincheck", 60 * options.limit, options.traincheck)
    results = {}
    try:
        for system, measure in ((other, theirs), (daemon, ours)):
            for done in (system.train("learned", LEARNED), system.infer("learned")):
                if done["status"] != "ok":
                    raise SystemExit(f"{system.name}: {done['status']}")
            results[system.name] = figures(measure(system, "online", faulty), steps)
    finally:
        daemon.stop()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pause-ms", type=float, default=200)
    parser.add_argument("--epochs", type=int, default=8, help="of 13 steps")
    parser.add_argument("--limit", type=float, default=15, help="minutes of a command")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--traincheck", type=pathlib.Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vs-traincheck-") as folder:
        results = compare(pathlib.Path(folder).resolve(), options)
    rows = list(next(iter(results.values())))
    print(f"{'':12}" + "".join(f"{name:>14}" for name in results))
    for row in rows:
        values = "".join(f"{result[row]:14,.0f}" for result in results.values())
        print(f"{row:12}{values}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
