"""Runs programs under the real agent and asks the facts about the records."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

CORE = pathlib.Path("agent/capture/libtraincheck_agent_core.so").resolve()
PRELOAD = pathlib.Path("agent/preload/libtraincheck_agent.so").resolve()
RELAY = pathlib.Path("agent/capture/relay_for_testing.py").resolve()
MODULE = pathlib.Path("agent/python/module").resolve()
DUMP = pathlib.Path("tests/clocks/clock_dump").resolve()
GAPS = pathlib.Path("tests/clocks/fact_gaps").resolve()


def install(folder):
    """Makes an agent's folder of it."""
    for library in (CORE, PRELOAD):
        shutil.copy(library, folder)
    relay = folder / "traincheck-relay"
    relay.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{RELAY}"\n')
    relay.chmod(0o755)
    (folder / "out").mkdir()


def run(folder, *command):
    """Runs a Python program; watched, unless folder is None."""
    # The tests' own variables are no settings of the agent.
    others = {k: v for k, v in os.environ.items() if not k.startswith("TRAINCHECK_")}
    environment = {**others, "TRAINCHECK_TEST_MODULE": str(MODULE)}
    if folder is not None:
        environment.update(
            LD_PRELOAD=str(folder / PRELOAD.name),
            TRAINCHECK_AGENT_DIR=str(folder),
            TRAINCHECK_SERVER="127.0.0.1:9",
            TRAINCHECK_TEST_OUT=str(folder / "out"),
        )
    return subprocess.run(
        [sys.executable, *map(str, command)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=1800,
    )


def facts(folder, pid):
    """What the facts say of a process."""
    return _ask(folder, pid, DUMP)


def gaps(folder, pid, times):
    """What they say where records are missing: see fact_gaps_main.cc."""
    return _ask(folder, pid, GAPS, times)


def _ask(folder, pid, program, *more):
    # Its relay may need a moment.
    ended = folder / "out" / f"{pid}.0.json"
    deadline = time.monotonic() + 120
    while not ended.exists():
        assert time.monotonic() < deadline, f"no records of process {pid}"
        time.sleep(0.02)
    command = [program, folder / "out", str(pid), *map(str, more)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)
