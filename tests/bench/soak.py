"""The daemon's memory while two ranks stream for an hour.

A small data-parallel training runs under `traincheckctl run --check` at a
steady pace. Every ten seconds a line of the CSV file says what the daemon and
the relays keep in memory and how far the store has grown. At the end: the
medians of the first and last quarter after the warm-up and the slope between.
The learning rate is another one in each step, so that what is kept of every
value shows. Exit code 1: the daemon grew by more than --most-growth.

    tests/bench/soak.sh --minutes 60 --csv soak.csv
"""

import argparse
import csv
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

DIST = pathlib.Path(os.environ["TRAINCHECK_DIST"]).resolve()
TRAINING = pathlib.Path(__file__).resolve().with_name("soak_train.py")
PERIOD_S = 10
COLUMNS = (
    "seconds daemon_rss_kib daemon_anon_kib daemon_peak_kib daemon_threads "
    "daemon_fds relays_rss_kib records store_kib"
).split()


class Setting:
    """A daemon in a folder of its own, and traincheckctl."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        address_file = folder / "address"
        with open(folder / "traincheckd.log", "wb") as log:
            self.daemon = subprocess.Popen(
                [DIST / "traincheckd", "--data-dir", folder / "data"]
                + ["--listen", "127.0.0.1:0", "--port-file", address_file],
                stderr=log,
            )
        while not address_file.exists():
            time.sleep(0.05)
        self.address = address_file.read_text().strip()

    def ctl(self, *arguments: str):
        command = [DIST / "traincheckctl", "--server", self.address, "-o", "json"]
        done = subprocess.run([*command, *arguments], capture_output=True, check=True)
        return json.loads(done.stdout)

    def train(self, run: str, seconds: float, rate: int, *options: str):
        """Starts the training; its output goes to a file of the folder."""
        # The benchmark's own variables are no settings of the agent.
        environment = dict(
            {k: v for k, v in os.environ.items() if not k.startswith("TRAINCHECK_")},
            OMP_NUM_THREADS="1",
            TRAINCHECK_SPOOL_DIR=str(self.folder / "spool"),
            TRAINCHECK_BUDGET="off",  # every step is recorded in full
        )
        command = [DIST / "traincheckctl", "--server", self.address, "run"]
        command += ["--run", run, *options, "--", sys.executable, TRAINING]
        with open(self.folder / f"{run}.log", "wb") as log:
            return subprocess.Popen(
                [*command, f"--seconds={seconds}", f"--rate={rate}"],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def relays(self) -> list[int]:
        """Relays whose environment names the folder."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if (entry / "comm").read_text().startswith("traincheck-rela"):
                    if str(self.folder).encode() in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
            except OSError:
                continue
        return found


def memory(pid: int) -> dict:
    """The VmRSS, RssAnon, VmHWM (KiB) and Threads of a process, 0 if gone."""
    values = dict.fromkeys(("VmRSS", "RssAnon", "VmHWM", "Threads"), 0)
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return values
    for line in lines:
        key, _, rest = line.partition(":")
        if key in values:
            values[key] = int(rest.split()[0])
    return values


def sample(setting: Setting, run: str, start: float) -> list:
    pid = setting.daemon.pid
    daemon = memory(pid)
    runs = {row["id"]: row for row in setting.ctl("runs", "list", "--all")}
    files = (setting.folder / "data").rglob("*")
    return [
        round(time.monotonic() - start, 1),
        daemon["VmRSS"],
        daemon["RssAnon"],
        daemon["VmHWM"],
        daemon["Threads"],
        len(os.listdir(f"/proc/{pid}/fd")),
        sum(memory(relay)["VmRSS"] for relay in setting.relays()),
        runs[run]["records"] if run in runs else 0,
        sum(f.stat().st_blocks // 2 for f in files if f.is_file()),
    ]


def watch(setting: Setting, training, run: str, csv_path: pathlib.Path) -> list:
    """One row every PERIOD_S until the training has ended."""
    rows = []
    start = time.monotonic()
    with open(csv_path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(COLUMNS)
        while training.poll() is None:
            rows.append(sample(setting, run, start))
            out.writerow(rows[-1])
            file.flush()
            time.sleep(max(0.0, start + len(rows) * PERIOD_S - time.monotonic()))
    return rows


def report(rows: list, column: str, warm_up_s: float) -> float:
    """How much more the last quarter takes than the first, in MiB."""
    at = COLUMNS.index(column)
    rows = [row for row in rows if row[0] >= warm_up_s]
    if len(rows) < 8:
        print(f"{column}: too few samples after the warm-up")
        return 0.0
    values = [row[at] for row in rows]
    quarter = len(rows) // 4
    hours = [row[0] / 3600 for row in rows]
    slope, _ = statistics.linear_regression(hours, values)
    first = statistics.median(values[:quarter]) / 1024
    last = statistics.median(values[-quarter:]) / 1024
    print(
        f"{column}: median {first:.1f} MiB in the first quarter, {last:.1f} MiB in the "
        f"last; slope {slope / 1024:+.2f} MiB an hour; "
        f"{min(values) / 1024:.1f} to {max(values) / 1024:.1f} MiB"
    )
    return last - first


def soak(setting: Setting, options) -> None:
    learning = setting.train("reference", 5, options.rate, "--collect")
    if learning.wait() != 0:
        raise SystemExit((setting.folder / "reference.log").read_text())
    while setting.ctl("runs", "show", "reference")["status"] == "running":
        time.sleep(0.2)
    learned = setting.ctl("infer", "--from", "reference", "--set", "rules")
    training = setting.train(
        "soak", 60 * options.minutes, options.rate, "--check", "rules"
    )
    try:
        rows = watch(setting, training, "soak", options.csv)
    finally:
        if training.poll() is None:
            os.killpg(training.pid, signal.SIGKILL)
    shown = setting.ctl("runs", "show", "soak")
    check = shown["check"]
    print(
        f"{options.minutes:g} minutes, exit code {training.returncode}, "
        f"{shown['records']} records of {(shown['last_step'] or 0) + 1} steps, "
        f"dropped {shown['dropped']}, lost {shown['lost']}; "
        f"{learned['invariants']} invariants, {check['decided']} decided, "
        f"{check['violated']} violated, finished: {check['finished']}"
    )
    warm_up_s = 60 * (
        options.minutes / 3 if options.warm_up is None else options.warm_up
    )
    grown = report(rows, "daemon_rss_kib", warm_up_s)
    for column in ("daemon_anon_kib", "relays_rss_kib"):
        report(rows, column, warm_up_s)
    if grown > options.most_growth:
        raise SystemExit(f"the daemon grew by {grown:.1f} MiB")


def main() -> None:
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--minutes", type=float, default=60)
    cli.add_argument("--rate", type=int, default=20, help="steps a second")
    cli.add_argument(
        "--warm-up",
        type=float,
        help="minutes in which the store's caches fill; a third of the time",
    )
    cli.add_argument(
        "--most-growth",
        type=float,
        default=8,
        help="MiB of the daemon, from the first quarter to the last",
    )
    cli.add_argument("--csv", type=pathlib.Path, default=pathlib.Path("soak.csv"))
    options = cli.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="soak-"))
    setting = Setting(folder)
    try:
        soak(setting, options)
    finally:
        setting.daemon.terminate()
        setting.daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
