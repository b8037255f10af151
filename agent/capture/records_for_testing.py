"""Runs programs with the core loaded and decodes what they recorded."""

import atexit
import json
import os
import select
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from fields_for_testing import decode_fields
from fields_for_testing import list_fields

CORE = os.path.abspath("agent/capture/libtraincheck_agent_core.so")
_HERE = os.path.dirname(os.path.abspath(__file__))
RELAY = os.path.join(_HERE, "relay_for_testing.py")
SERVER = os.path.join(_HERE, "torch_server_for_testing.py")
WARNINGS = "ignore::DeprecationWarning"
PATIENCE_S = 120

PRELUDE = """
import importlib.machinery, importlib.util, os, sys
def _load(path):
    loader = importlib.machinery.ExtensionFileLoader("traincheck_core", path)
    spec = importlib.util.spec_from_file_location("traincheck_core", path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
core = _load(os.environ["TRAINCHECK_TEST_CORE"])
"""

# Binds torch as start() does, with a hook module that does nothing.
TORCH_PRELUDE = (
    "import torch\n"
    + PRELUDE
    + """
core.bind_torch()
from torch import nn
def variable(tensor, name="w", **facts):
    facts = dict(root_class="Net", root=1, kind=1, owner_class="x", alias_group=0) | facts
    return core.define_variable(tensor, name, **facts)
def states(tensors, what=core.STATE_DATA, point=core.POINT_PRE_STEP):
    core.record_states(point, what, [variable(t) for t in tensors], tensors)
"""
)

TYPES = {
    1: "padding",
    2: "clock",
    3: "begin",
    4: "end",
    5: "raised",
    6: "state",
    7: "scalar",
    8: "enter",
    9: "exit",
    10: "mark",
    11: "place",
    12: "drops",
    13: "checkpoint",
    14: "statistics",
    15: "rows",
    16: "deferred",
    32: "string",
    33: "function",
    34: "site",
    35: "object",
    36: "variable",
    37: "hold",
    38: "replica_group",
    39: "process",
    40: "process_group",
    41: "collective",
}
FIXED = {
    "padding": ("", ()),
    "clock": ("QQQ", ("monotonic", "realtime", "next_call")),
    "begin": ("IIII", ("function", "site", "call", "distance")),
    "end": ("II", ("call", "function")),
    "raised": ("II", ("call", "function")),
    "state": ("IBBH", ("variable", "point", "content", "deferred")),
    "deferred": ("Q", ("first",)),
    "scalar": ("IBBHIId", ("object", "point", "r", "group", "name", "r2", "value")),
    "enter": ("II", ("function", "site")),
    "exit": ("II", ("function", "site")),
    "mark": ("IIQ", ("object", "site", "value")),
    "place": ("iiiI", ("rank", "world", "local_rank", "source")),
    "drops": ("Q", ("dropped",)),
    "checkpoint": ("IBBHQ", ("key", "point", "content", "reserved", "digest")),
    "statistics": (
        "IBBHddQQ",
        ("variable", "point", "of", "reserved", "norm", "absmax", "nans", "infs"),
    ),
    "rows": ("IBBHQQ", ("variable", "point", "of", "reserved", "first", "rows")),
    "collective": ("IIQ", ("group", "reserved", "sequence")),
}


class Record(dict):
    """Attributes: type, flags and the fixed part; fields[number] is a list."""

    __getattr__ = dict.__getitem__


def decode(data):
    records, at = [], 0
    while at < len(data):
        size, number, flags, _ = struct.unpack_from("<HBBI", data, at)
        assert size >= 8 and size % 8 == 0, f"torn record at {at}"
        name = TYPES[number]
        layout, names = FIXED.get(name, ("II", ("id", "aux")))
        values = struct.unpack_from("<" + layout, data, at + 8)
        record = Record(zip(names, values), type=name, flags=flags)
        rest = data[at + 8 + struct.calcsize("<" + layout) : at + size]
        if name in ("state", "rows", "deferred"):
            record["digests"] = struct.unpack(f"<{len(rest) // 8}Q", rest)
        elif name not in ("padding", "clock"):
            record["fields"] = decode_fields(rest)
            record["listed"] = list_fields(rest)
        if name != "padding":
            records.append(record)
        at += size
    return records


def _runs(pid):
    """False also for a zombie, which whoever adopted it reaps when it likes."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


# StateContent and DeferredFlag of record_format.h
HAS_DATA, HAS_GRAD, GRAD_IS_ZERO, DATA_IS_ZERO, UNREADABLE = 1, 2, 8, 16, 64
_IS_ZERO, _NO_DIGEST = 1, 2
IS_FINITE, NOT_FINITE = 4, 8


def _join(record, came):
    """(content, digests) with what came later; takes it out of `came`."""
    content, digests = record.content, []
    assert content & UNREADABLE and not content & (HAS_DATA | HAS_GRAD)
    unreadable = record.deferred & UNREADABLE
    number = record.digests[-1]
    for bit, zero in ((HAS_DATA, DATA_IS_ZERO), (HAS_GRAD, GRAD_IS_ZERO)):
        if not record.deferred & bit:
            continue
        assert number in came, f"digest {number} does not come"
        digest, flags = came.pop(number)
        number += 1
        if flags & _NO_DIGEST:
            unreadable = UNREADABLE
        else:
            digests.append(digest)
            content |= bit | (zero if flags & _IS_ZERO else 0)
    return content & ~UNREADABLE | unreadable, digests


class Process:
    """What one process recorded."""

    def __init__(self, folder, pid):
        self.rings, self.counters = {}, {}
        for name in os.listdir(folder):
            if not name.startswith(f"{pid}.") or name.endswith(".json"):
                continue
            ring = int(name.split(".")[1])
            with open(os.path.join(folder, name), "rb") as file:
                self.rings[ring] = decode(file.read())
            counters = os.path.join(folder, name + ".json")
            if not os.path.exists(counters):
                continue  # its relay died and no other has got the ring
            with open(counters) as file:
                self.counters[ring] = json.load(file)
        self.definitions = {}
        for record in self.rings[0]:
            self.definitions.setdefault(record.type, {})[record.id] = record

    def text(self, number):
        return self.definitions["string"][number].fields[32][0].decode()

    def function(self, record):
        return self.function_name(record.function)

    def function_name(self, number):
        return self.text(self.definitions["function"][number].fields[33][0])

    def site(self, record):
        """(file name, line, function)"""
        fields = self.definitions["site"][record.site].fields
        file = os.path.basename(self.text(fields[36][0]))
        return file, fields[37][0], self.text(fields[38][0])

    def calls(self, ring=1):
        """("begin"|"end"|"raised", function) of one ring."""
        return [
            (record.type, self.function(record))
            for record in self.of("begin", "end", "raised", ring=ring)
        ]

    def of(self, *types, ring=1):
        return [record for record in self.rings[ring] if record.type in types]

    def joined_states(self):
        """(variable, point, content, digests) of each state, as if no digest had come
        later. Every deferred digest comes once, and belongs to a state."""
        came = {}
        for record in self.of("deferred"):
            words = record.digests
            for i in range(0, len(words), 2):
                number = record.first + i // 2
                assert number not in came, f"digest {number} comes twice"
                came[number] = words[i], words[i + 1]
        states = []
        for record in self.of("state"):
            content, digests = record.content, record.digests
            if record.deferred:
                content, digests = _join(record, came)
            states.append((record.variable, record.point, content, tuple(digests)))
        assert not came, f"no state waits for the digests {sorted(came)}"
        return states


def _others_environment():
    """The tests' own variables are no settings of the agent."""
    return {k: v for k, v in os.environ.items() if not k.startswith("TRAINCHECK_")}


class _TorchServer:
    """Runs programs that begin with the import of torch, without importing it anew for
    each: see torch_server_for_testing.py."""

    _process = None

    @classmethod
    def serves(cls, prelude, variables):
        """What is read while torch is imported cannot be changed any more."""
        early = any(name.startswith(("LD_", "OMP_", "PYTHON")) for name in variables)
        return prelude.startswith(TORCH_PRELUDE) and not early

    @classmethod
    def run(cls, script, environment):
        server = cls._started()
        out, err = script + ".out", script + ".err"
        program = dict(script=script, environment=environment, out=out, err=err)
        server.stdin.write(json.dumps(program) + "\n")
        server.stdin.flush()
        if not select.select([server.stdout], [], [], PATIENCE_S)[0]:
            raise subprocess.TimeoutExpired(script, PATIENCE_S)
        code = int(server.stdout.readline())
        with open(out) as told, open(err) as complaints:
            return subprocess.CompletedProcess(
                script, code, told.read(), complaints.read()
            )

    @classmethod
    def _started(cls):
        if cls._process is None:
            cls._process = subprocess.Popen(
                [sys.executable, SERVER],
                env=dict(_others_environment(), PYTHONWARNINGS=WARNINGS),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            atexit.register(cls._end)
        return cls._process

    @classmethod
    def _end(cls):
        cls._process.stdin.close()
        cls._process.wait(PATIENCE_S)


class Recording:
    """One run of a program: result, and what its processes recorded."""

    def __init__(self, code, with_relay=True, prelude=PRELUDE, **variables):
        with tempfile.TemporaryDirectory() as folder:
            self.folder = folder
            self._make_agent_folder(with_relay)
            script = os.path.join(folder, "script.py")
            with open(script, "w") as file:
                file.write(prelude + code)
            environment = dict(
                _others_environment(),
                TRAINCHECK_TEST_CORE=CORE,
                TRAINCHECK_TEST_OUT=folder,
                TRAINCHECK_AGENT_DIR=folder,
                PYTHONWARNINGS=WARNINGS,
                **variables,
            )
            if _TorchServer.serves(prelude, variables):
                self.result = _TorchServer.run(script, environment)
            else:
                self.result = subprocess.run(
                    [sys.executable, script],
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=PATIENCE_S,
                )
            self._wait_for_relays()
            self._read()

    def _make_agent_folder(self, with_relay):
        if not with_relay:
            return
        path = os.path.join(self.folder, "traincheck-relay")
        with open(path, "w") as file:
            file.write(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{RELAY}"\n')
        os.chmod(path, 0o700)

    def _wait_for_relays(self):
        relays = self._notes()
        deadline = time.monotonic() + 15
        while any(_runs(relay["pid"]) for relay in relays):
            assert time.monotonic() < deadline, "a relay does not end"
            time.sleep(0.01)

    def _notes(self):
        notes = []
        for name in os.listdir(self.folder):
            if name.startswith("relay."):
                with open(os.path.join(self.folder, name)) as file:
                    notes.append(json.load(file))
        return notes

    def _read(self):
        self.relays = self._notes()
        pids = {
            int(name.split(".")[0])
            for name in os.listdir(self.folder)
            if name.endswith(".json") and name[0].isdigit()
        }
        self.processes = [Process(self.folder, pid) for pid in sorted(pids)]

    @property
    def process(self):
        assert len(self.processes) == 1, self.result.stderr
        return self.processes[0]


class CoreCase(unittest.TestCase):
    """A test whose programs must end well and print nothing on stderr."""

    PRELUDE = PRELUDE

    def record(self, code, **options):
        recording = Recording(code, prelude=self.PRELUDE, **options)
        stderr = recording.result.stderr
        self.assertEqual(recording.result.returncode, 0, stderr)
        self.assertFalse(stderr, stderr)
        return recording
