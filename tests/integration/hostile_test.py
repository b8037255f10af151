"""Garbage, floods, lies and wrong versions end their own stream and nothing else."""

import os
import pathlib
import random
import signal
import socket
import struct
import subprocess
import unittest

import harness
import wire

_RAW_CALL = [
    path
    for folder in ("", "bazel-bin")
    if (path := pathlib.Path(folder, "tests/integration/raw_call")).exists()
]
INVALID_ARGUMENT, RESOURCE_EXHAUSTED, FAILED_PRECONDITION = 3, 8, 9
UNIMPLEMENTED = 12
# Of a daemon that holds one client's worth of anything: measured 60 to 90.
MAX_RSS_MIB = 512


class RawCall:
    """A call of raw messages; open until result()."""

    def __init__(self, daemon: harness.Daemon, method: str):
        self._process = subprocess.Popen(
            [str(_RAW_CALL[0].resolve()), daemon.address, method],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def send(self, *messages: bytes) -> "RawCall":
        for message in messages:
            self._process.stdin.write(struct.pack("<I", len(message)) + message)
        self._process.stdin.flush()
        return self

    def result(self):
        """Half-closes; returns (code, text, replies)."""
        out, _ = self._process.communicate(timeout=harness.PATIENCE_S)
        *replies, status = out.splitlines()
        _, code, text = status.split(b" ")
        raw = [bytes.fromhex(reply.split()[1].decode()) for reply in replies]
        message = bytes.fromhex(text.decode()).decode()
        return int(code), message, raw


class HostileCase(harness.TrainingCase):
    def call(self, *messages: bytes, method=wire.INGEST):
        return RawCall(self.daemon, method).send(*messages).result()

    def connect(self) -> socket.socket:
        host, port = self.daemon.address.rsplit(":", 1)
        return socket.create_connection((host, int(port)))

    def peak_mib(self) -> int:
        status = pathlib.Path(f"/proc/{self.daemon.pid}/status").read_text()
        line = next(l for l in status.splitlines() if l.startswith("VmHWM"))
        return int(line.split()[1]) // 1024

    def assert_serves(self, run: str) -> None:
        """An honest process is served to its end, within bounded memory."""
        record = wire.step_closed(0)
        code, text, replies = self.call(
            wire.hello(run),
            wire.records_batch(0, 0, record, 1),
            wire.goodbye(1),
        )
        self.assertEqual(code, 0, text)
        self.assertGreater(len(replies), 1)
        shown = self.daemon.ctl("runs", "show", run)
        self.assertEqual((shown["lost"], shown["records"]), (0, 1), shown)
        self.assertLess(self.peak_mib(), MAX_RSS_MIB)


class HostileConnections(HostileCase):
    def test_garbage_and_silent_connections_disturb_nobody(self):
        daemon = self.start_daemon()
        noise = random.Random(7)
        silent = [self.connect() for _ in range(20)]
        for _ in range(50):
            with self.connect() as stream:
                try:
                    stream.sendall(noise.randbytes(noise.randint(1, 5000)))
                except OSError:
                    pass  # refused already
        # A valid HTTP/2 opening, then garbage frames.
        with self.connect() as stream:
            stream.sendall(_PREFACE + noise.randbytes(4000))
        done = self.monitored(
            harness.SCRIPTS / "single.py",
            "--steps",
            "10",
            options=("--run", "r", "--collect"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = daemon.run_ended("r")
        self.assertEqual(shown["status"], "ended")
        self.assertEqual(shown["lost"], 0)
        self.assertEqual(shown["quarantined_batches"], 0)
        for stream in silent:
            stream.close()
        self.assertEqual(daemon.stop(), 0)

    def test_floods_of_http2_frames_disturb_nobody(self):
        self.start_daemon()
        # :method POST, :scheme http, :path / and no END_STREAM.
        headers = b"\x83\x86\x84"
        resets = b"".join(
            _frame(1, 4, stream, headers) + _frame(3, 0, stream, b"\0\0\0\x08")
            for stream in range(1, 20_001, 2)
        )
        floods = {
            "pings": _frame(6, 0, 0, b"12345678") * 20_000,
            "settings": _frame(4, 0, 0, b"\0\x04\0\0\xff\xff") * 20_000,
            "rapid resets": resets,
            "open streams": b"".join(
                _frame(1, 4, stream, headers) for stream in range(1, 20_001, 2)
            ),
            "headers without end": _frame(1, 0, 1, headers)
            + _frame(9, 0, 1, b"\x40\x01a\x01b" * 2000) * 2000,
            "windows": _frame(8, 0, 0, b"\x7f\xff\xff\xff") * 1000,
            "data": _frame(0, 0, 1, b"x" * 16_000) * 200,
        }
        held = []
        for number, (name, frames) in enumerate(floods.items()):
            with self.subTest(name):
                stream = self.connect()
                held.append(stream)
                stream.settimeout(5)
                try:
                    stream.sendall(_PREFACE + _frame(4, 0, 0, b"") + frames)
                except OSError:
                    pass  # refused, or not read any more
                self.assert_serves(f"run-{number}")
        for stream in held:
            stream.close()
        self.assertEqual(self.daemon.stop(), 0)


class HostileStreams(HostileCase):
    def test_wrong_openings_are_refused_by_name(self):
        daemon = self.start_daemon()
        record = wire.records_batch(0, 0, wire.step_closed(0), 1)
        good = wire.hello()
        cases = [
            ("no hello", [record], INVALID_ARGUMENT, "first message"),
            ("nothing", [b""], INVALID_ARGUMENT, "first message"),
            (
                "future",
                [wire.hello(versions=(90, 91))],
                UNIMPLEMENTED,
                "update the server",
            ),
            ("past", [wire.hello(versions=(0, 0))], UNIMPLEMENTED, "update the"),
            ("upside down", [wire.hello(versions=(2, 1))], INVALID_ARGUMENT, "above"),
            ("path", [wire.hello("../../etc/x")], INVALID_ARGUMENT, "characters other"),
            ("control", [wire.hello("a\x1b[2J")], INVALID_ARGUMENT, "Hello.run"),
            ("long", [wire.hello("a" * 200)], INVALID_ARGUMENT, "limit is 128"),
            ("host", [wire.hello(host="a\nb")], INVALID_ARGUMENT, "process.host"),
            ("utf-8", [wire.hello(host=b"\xc3\x28")], None, ""),
            ("garbage", [b"\xff" * 100], None, ""),
            ("lengths", [b"\x0a\xff\xff\xff\xff\x0f"], None, ""),
            (
                "oversize",
                [wire.batch(0, b"x" * (3 << 20), 8, [])],
                RESOURCE_EXHAUSTED,
                "limit",
            ),
            ("huge", [wire.batch(0, b"x" * (17 << 20), 8, [])], RESOURCE_EXHAUSTED, ""),
        ]
        for name, messages, code, words in cases:
            with self.subTest(name):
                got, text, _ = self.call(*messages)
                self.assertNotEqual(got, 0)
                if code is not None:
                    self.assertEqual(got, code, text)
                self.assertIn(words, text)
        self.assertEqual(daemon.ctl("status")["runs"], [])
        got, text, _ = self.call(good, good)
        self.assertEqual((got, text), (INVALID_ARGUMENT, "a second Hello"))
        self.assert_serves("honest")
        self.assertEqual(daemon.stop(), 0)

    def test_lying_batches_are_quarantined_and_the_stream_goes_on(self):
        daemon = self.start_daemon()
        record = wire.step_closed(0)
        longer = struct.pack("<H", 4096) + record[2:]
        where = [(1, 0, 24, 1)]
        frame = wire.frame(record)
        lies = [
            ("no frame", b"x" * 40, 24, where),
            ("bomb, small claim", wire.bomb(64 << 20), 24, where),
            ("bomb, largest claim", wire.bomb(64 << 20), 8 << 20, [(1, 0, 8 << 20, 1)]),
            ("two frames", frame * 2, 24, where),
            ("record longer than its batch", wire.frame(longer), 24, where),
            ("wrong count", frame, 24, [(1, 0, 24, 7)]),
            ("backwards", frame, 24, [(1, 24, 0, 1)]),
            ("odd position", frame, 24, [(1, 3, 27, 1)]),
            ("beyond the end", frame, 24, [(1, 0, 1 << 62, 1)]),
            ("wraps", frame, 24, [(1, 2**64 - 8, 16, 1)]),
            ("no slices", frame, 24, []),
        ]
        batches = [
            wire.batch(number, payload, plain, slices)
            for number, (_, payload, plain, slices) in enumerate(lies)
        ]
        last = wire.records_batch(len(lies), 0, record, 1)
        code, text, replies = self.call(
            wire.hello("lies"), *batches, last, wire.goodbye(1)
        )
        self.assertEqual(code, 0, text)
        self.assertIn(replies[-1], _last_words(len(lies) + 1))
        shown = daemon.ctl("runs", "show", "lies")
        self.assertEqual(shown["quarantined_batches"], len(lies))
        self.assertEqual(shown["records"], 1)
        self.assert_serves("honest")

    def test_over_the_limits_ends_the_stream(self):
        self.start_daemon()
        frame = wire.frame(wire.step_closed(0))
        limits = {
            "plain_bytes": (0, frame, (8 << 20) + 1, [(1, 0, 24, 1)]),
            "slices": (0, frame, 24, [(1, 0, 24, 1)] * 2000),
            "slices.ring": (0, frame, 24, [(1 << 31, 0, 24, 1)]),
            "number": (1 << 63, frame, 24, [(1, 0, 24, 1)]),
            "payload": (0, b"x" * ((1 << 20) + 1), 24, [(1, 0, 24, 1)]),
        }
        for number, (name, batch) in enumerate(limits.items()):
            with self.subTest(name):
                code, text, _ = self.call(
                    wire.hello(pid=10 + number), wire.batch(*batch)
                )
                self.assertEqual(code, RESOURCE_EXHAUSTED, text)
                self.assertIn("Batch." + name, text)
        self.assert_serves("honest")

    def test_nobody_takes_the_name_of_a_live_process(self):
        daemon = self.start_daemon()
        live = RawCall(daemon, wire.INGEST).send(wire.hello("r", pid=7))
        harness.wait_until(lambda: daemon.ctl("status")["runs"], "the first stream")
        code, text, _ = self.call(wire.hello("r", pid=7))
        self.assertEqual(code, FAILED_PRECONDITION, text)
        self.assertIn("pid 7 on host node", text)
        # Another process of the same pid is somebody else.
        record = wire.records_batch(0, 0, wire.step_closed(0), 1)
        code, text, _ = self.call(
            wire.hello("r", pid=7, ticks=2), record, wire.goodbye(1)
        )
        self.assertEqual(code, 0, text)
        code, text, replies = live.send(record, wire.goodbye(1)).result()
        self.assertEqual(code, 0, text)
        self.assertIn(replies[-1], _last_words(1))
        shown = daemon.ctl("runs", "show", "r")
        self.assertEqual((shown["lost"], shown["records"]), (0, 2), shown)


class HostileSets(HostileCase):
    def import_set(self, text: str, name: str = "s"):
        return self.call(wire.message((1, name), (2, text)), method=wire.IMPORT_SET)

    def test_sets_that_would_crush_the_daemon_are_refused(self):
        daemon = self.start_daemon()
        deep = "[" * 1_000_000 + "]" * 1_000_000
        object_deep = '{"a":' * 1_000_000 + "1" + "}" * 1_000_000
        cases = [
            ("deep arrays", deep, "nested deeper"),
            ("deep objects", object_deep, "nested deeper"),
            ("deep inside", _set(_invariant(deep)), "nested deeper"),
            ("cut off", "[" * 4_000_000, "nested deeper"),
            ("numbers", "[" + "0," * 4_000_000 + "0]", "not an object"),
            ("many", _set(",".join([_invariant("{}")] * 80_000)), "invariants[0]"),
            ("exponent", _set(_invariant("1e999999")), ""),
            ("empty", "", "not valid JSON"),
            ("surrogate", _set(_invariant('"\\ud800"')), ""),
        ]
        for name, text, words in cases:
            with self.subTest(name):
                code, error, _ = self.import_set(text)
                self.assertEqual(code, INVALID_ARGUMENT, error)
                self.assertIn(words, error)
        # A million of them are more than a message may have.
        million = _set(",".join([_invariant("{}")] * 1_000_000))
        code, error, _ = self.import_set(million)
        self.assertEqual(code, RESOURCE_EXHAUSTED, error)
        for name in ("", "../../x", "a\x1b[2J", "a\n", "x" * 65, "caf\u00e9"):
            code, error, _ = self.import_set(_set(""), name)
            if name:  # without one the document's own is taken
                self.assertEqual(code, INVALID_ARGUMENT, error)
                self.assertTrue(error.isprintable(), repr(error))
        self.assert_serves("honest")
        self.assertEqual(daemon.stop(), 0)


class HostileTraining(HostileCase):
    def test_corrupt_handover_is_refused_by_the_relay(self):
        daemon = self.start_daemon()
        gate = self.folder / "gate"
        training = self.monitored_start(
            harness.SCRIPTS / "single.py",
            *("--steps", "20", "--gate", str(gate), "--gate-at", "10"),
            "--scribble-ring",
            options=("--run", "r", "--collect", "--drain-timeout", "1"),
        )
        daemon.await_first_steps()
        # What is scribbled over has not been read yet.
        (relay,) = harness.relay_pids(str(self.folder))
        os.kill(relay, signal.SIGSTOP)
        gate.touch()
        self.assertEqual(training.wait(harness.PATIENCE_S), 0)
        os.kill(relay, signal.SIGCONT)
        shown = daemon.run_ended("r")
        self.assertEqual(daemon.ctl("status")["runs"], [])
        self.assertGreater(shown["lost"] or 0, 0, shown)


_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """An HTTP/2 frame."""
    size = struct.pack(">I", len(payload))[1:]
    return size + struct.pack(">BBI", kind, flags, stream) + payload


def _last_words(next_batch: int) -> list:
    """What the daemon may answer to a goodbye: it asks to gather records for a
    millisecond for each open stream, and another test's may not have ended yet."""
    return [
        wire.message((2, wire.message((1, next_batch), (2, 1), (3, streams))))
        for streams in range(1, 9)
    ]


def _invariant(parameters: str) -> str:
    return (
        '{"id":"0","relation":"Consistent","parameters":{"x":' + parameters + "},"
        '"precondition":{"all":[]},"scope":"general","experiments":[],"support":0}'
    )


def _set(invariants: str) -> str:
    return (
        '{"format":"traincheck-invariants","format_version":1,"name":"s",'
        '"version":1,"runs":[],"created_unix_ns":0,"invariants":[' + invariants + "]}"
    )


if __name__ == "__main__":
    unittest.main()
