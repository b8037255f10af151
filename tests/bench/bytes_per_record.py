"""Bytes that a record takes: in the rings and in the store.

Runs a real two-rank training under a daemon and divides what the store holds by
what the agents committed. A call is its begin and end record together; the
share of calls is read from a run whose state records were counted apart.

    tests/bench/run.sh bytes_per_record.py
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

DIST = pathlib.Path(os.environ.pop("TRAINCHECK_DIST"))

# Calls only: inner module calls of a model that nobody trains.
CALLS = """
import torch
net = torch.nn.Sequential(*[torch.nn.Identity() for _ in range(8)])
x = torch.zeros(1)
with torch.no_grad():
    for _ in range({rounds}):
        net(x)
"""


def ctl(address: str, *arguments: str):
    command = [DIST / "traincheckctl", "--server", address, "-o", "json", *arguments]
    return json.loads(
        subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    )


def measure(address: str, run: str, command: list) -> dict:
    subprocess.run(
        [DIST / "traincheckctl", "--server", address, "run", "--run", run]
        + ["--collect", "--", sys.executable, *command],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while (shown := ctl(address, "runs", "show", run))["status"] == "running":
        time.sleep(0.1)
    return shown


def report(name: str, shown: dict) -> None:
    records = shown["records"]
    ring_bytes = sum(
        ring["stored_position"]
        for process in shown["processes"]
        for ring in process["rings"]
    )
    print(
        f"{name}: {records} records, {ring_bytes / records:.1f} B a record in the "
        f"ring, {shown['stored_bytes'] / records:.2f} B a record on disk"
    )


def main() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        address_file = pathlib.Path(folder) / "address"
        daemon = subprocess.Popen(
            [DIST / "traincheckd", "--data-dir", f"{folder}/data"]
            + ["--listen", "127.0.0.1:0", "--port-file", address_file],
            stderr=subprocess.DEVNULL,
        )
        try:
            while not address_file.exists():
                time.sleep(0.05)
            address = address_file.read_text().strip()
            calls = measure(address, "calls", ["-c", CALLS.format(rounds=20000)])
            report("calls only", calls)
            print(
                f"  a call (begin and end): "
                f"{2 * calls['stored_bytes'] / calls['records']:.2f} B on disk"
            )
            report(
                "CNN under DDP, two ranks",
                measure(address, "cnn", ["tests/pipelines/cnn_ddp.py", "--steps=60"]),
            )
        finally:
            daemon.terminate()
            daemon.wait()


if __name__ == "__main__":
    main()
