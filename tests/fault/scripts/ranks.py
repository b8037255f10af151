"""Starts one process a rank, as torchrun does, without its cost.

    ranks.py --nproc 2 --out DIR [--nofile N] train.py ARGUMENTS...

Ends with the code of the first rank that failed (128 + n for signal n), having
ended the others, and writes it to DIR/exit.
"""

import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import time


def start(rank, world, port, limit, command):
    environment = dict(
        os.environ,
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )

    def lower():
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    return subprocess.Popen(
        [sys.executable, *command], env=environment, preexec_fn=lower if limit else None
    )


def wait(ranks):
    """The first code other than that of rank 0's clean end; ends the rest."""

    def end_ranks(number, _):
        for process in ranks:
            process.terminate()
        codes.append(-number)

    codes = []
    signal.signal(signal.SIGTERM, end_ranks)
    running = list(ranks)
    while running:
        for process in list(running):
            if process.poll() is not None:
                running.remove(process)
                codes.append(process.returncode)
        if any(code < 0 or code == 1 for code in codes):
            for process in running:
                process.terminate()
            deadline = time.monotonic() + 5
            while any(p.poll() is None for p in running):
                if time.monotonic() > deadline:
                    for process in running:
                        process.kill()
                time.sleep(0.01)
            return next(c for c in codes if c < 0 or c == 1)
        time.sleep(0.01)
    return ranks[0].returncode


def main():
    arguments = sys.argv[1:]
    options = {}
    while arguments[0].startswith("--"):
        options[arguments[0]] = arguments[1]
        arguments = arguments[2:]
    out = pathlib.Path(options["--out"])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    world = int(options["--nproc"])
    limit = int(options.get("--nofile", 0))
    command = [*arguments, f"--out={out}"]
    ranks = [start(rank, world, port, limit, command) for rank in range(world)]
    code = wait(ranks)
    code = 128 - code if code < 0 else code
    (out / "exit.new").write_text(str(code))
    os.rename(out / "exit.new", out / "exit")
    sys.exit(code)


if __name__ == "__main__":
    main()
