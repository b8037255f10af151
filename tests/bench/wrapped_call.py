"""What a wrapped call costs: begin and end recorded, with two tensors told, and
switched off.

Prints nanoseconds a call above the plain one, for functions and a method that do
nothing. Runs with TRAINCHECK_DIST (tests/bench/run.sh sets it) against the
real relay without a server. The minimum of many rounds counts: everything else
on the machine only adds.
"""

import importlib.machinery
import importlib.util
import os
import tempfile
import time

import torch

CALLS = 20_000
ROUNDS = 300
TARGETS = {"on": 100, "off": 30}
TENSORS_TARGET = 200
X, Y = torch.ones(4, 4), torch.ones(4)


def load_core():
    dist = os.path.abspath(os.environ["TRAINCHECK_DIST"])
    path = os.path.join(dist, "libtraincheck_agent_core.so")
    loader = importlib.machinery.ExtensionFileLoader("traincheck_core", path)
    spec = importlib.util.spec_from_file_location(
        "traincheck_core", path, loader=loader
    )
    core = importlib.util.module_from_spec(spec)
    loader.exec_module(core)
    core.bind_torch()
    return core


def function(x):
    return x


def pair(x, y):
    return x


class Plain:
    def method(self, x):
        return x


class Wrapped(Plain):
    pass


def time_function(fn):
    calls = range(CALLS)
    start = time.perf_counter_ns()
    for _ in calls:
        fn(1)
    return (time.perf_counter_ns() - start) / CALLS


def time_pair(fn):
    calls, x, y = range(CALLS), X, Y
    start = time.perf_counter_ns()
    for _ in calls:
        fn(x, y)
    return (time.perf_counter_ns() - start) / CALLS


def time_method(value):
    calls = range(CALLS)
    start = time.perf_counter_ns()
    for _ in calls:
        value.method(1)
    return (time.perf_counter_ns() - start) / CALLS


def best(measure, subject):
    return min(measure(subject) for _ in range(ROUNDS))


def calibrate(core):
    """The core's clock knows its scale once two steps have closed."""
    for _ in range(4):
        core.step_optimizer(1)
        time.sleep(0.06)


def main():
    os.environ["TRAINCHECK_LOG"] = "off"
    os.environ["TRAINCHECK_SERVER"] = "127.0.0.1:9"
    os.environ["TRAINCHECK_GRACE"] = "0"
    os.environ["TRAINCHECK_SPOOL_DIR"] = tempfile.mkdtemp()
    core = load_core()
    wrapped = core.wrap(function, "bench.function", "other")
    Wrapped.method = core.wrap(Plain.method, "bench.Plain.method", "other")
    calibrate(core)
    for name, measure, plain, subject in (
        ("function", time_function, function, wrapped),
        ("method", time_method, Plain(), Wrapped()),
    ):
        base = best(measure, plain)
        print(f"{name}: plain {base:.0f} ns")
        for switch in ("on", "off"):
            core.set_recording(switch == "on")
            added = best(measure, subject) - base
            print(f"  {switch}: +{added:.0f} ns (target {TARGETS[switch]})")
        core.set_recording(True)
    two = core.wrap(pair, "bench.pair", "other")
    core.set_content(two, ([("x", 0, 0), ("y", 1, 0)], None, None))
    added = best(time_pair, two) - best(time_pair, pair)
    print(f"two tensors told: +{added:.0f} ns (target {TENSORS_TARGET})")


if __name__ == "__main__":
    main()
