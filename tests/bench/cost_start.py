"""What the preload costs a program that starts: import torch, and /bin/true."""

import os
import pathlib
import subprocess
import sys
import time

import harness
from cost_statistics import median_interval

IMPORT = """
import time
start = time.perf_counter()
import torch
print(time.perf_counter() - start)
"""
TRUES = 40  # a block; one is too short to be timed


def _environment(dist: pathlib.Path, with_agent: bool) -> dict:
    env = harness.others_environment()
    env.update(OMP_NUM_THREADS="1", PYTHONPATH="")
    if with_agent:
        # Nobody listens: what is measured is the start.
        env["LD_PRELOAD"] = str(dist / "libtraincheck_agent.so")
        env["TRAINCHECK_SERVER"] = "127.0.0.1:9"
        env["TRAINCHECK_GRACE"] = "0"
    return env


def _import_s(env: dict) -> float:
    command = [sys.executable, "-c", IMPORT]
    return float(subprocess.run(command, env=env, stdout=subprocess.PIPE).stdout)


def _true_s(env: dict) -> float:
    start = time.perf_counter()
    for _ in range(TRUES):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], env), 0)
    return (time.perf_counter() - start) / TRUES


def _pairs(measure, environments, count: int) -> list:
    measure(environments[0]), measure(environments[1])  # files into memory
    found = []
    for pair in range(count):
        order = (1, 0) if pair % 2 else (0, 1)
        times = {at: measure(environments[at]) for at in order}
        found.append((times[0], times[1]))
    return found


def _interval(values: list, form: str) -> str:
    _, low, high = median_interval(values)
    return "-" if low is None else f"{low:{form}} to {high:{form}}"


def measure(pairs: int, dist: pathlib.Path) -> None:
    environments = [_environment(dist, False), _environment(dist, True)]
    imports = _pairs(_import_s, environments, pairs)
    trues = _pairs(_true_s, environments, pairs)
    print("\n| start | without, ms | with, ms | difference | 95% |")
    print("|---|---|---|---|---|")
    rows = (
        ("`import torch`", imports, [b / a for a, b in imports], ".3f", " times"),
        ("`/bin/true`", trues, [1e3 * (b - a) for a, b in trues], ".3f", " ms"),
    )
    for name, found, differences, form, unit in rows:
        plain = 1e3 * median_interval([a for a, _ in found])[0]
        watched = 1e3 * median_interval([b for _, b in found])[0]
        middle = median_interval(differences)[0]
        print(
            f"| {name} | {plain:.2f} | {watched:.2f} | {middle:{form}}{unit} | "
            f"{_interval(differences, form)} |"
        )
