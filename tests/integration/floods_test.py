"""Another user of the host, without and with a token, who takes what there is:
memory, streams, connections, places to wait. Whoever trains loses nothing."""

import contextlib
import resource
import subprocess
import unittest

import harness
import other_user
import wire

WATCH = "/traincheck.v1.Control/WatchViolations"
MESSAGE_MIB = 15
MESSAGES = 60
# What the daemon needs besides, for a while.
ELSE_MIB = 100


class FloodCase(other_user.OtherUserCase):
    def large_hello(self) -> bytes:
        return wire.message((1, wire.message((5, "a" * (MESSAGE_MIB << 20)))))

    @contextlib.contextmanager
    def training(self, run: str):
        """One that goes on until the block is left, and has then lost nothing."""
        hold = self.folder / f"{run}.hold"
        process = self.monitored_start(
            harness.SCRIPTS / "ranks.py",
            *("--hold", str(hold)),
            options=("--run", run, "--collect"),
        )
        harness.wait_until(lambda: self.records(run), "records")
        yield
        hold.touch()
        _, err = process.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(process.returncode, 0, err)
        shown = self.daemon.run_ended(run)
        self.assertEqual((shown["lost"], shown["dropped"]), (0, 0))

    def records(self, run: str) -> int:
        shown = [r for r in self.daemon.ctl("runs", "list") if r["id"] == run]
        return shown[0]["records"] if shown else 0


class Strangers(FloodCase):
    """Without a token."""

    def setUp(self):
        super().setUp()
        self.start_daemon()

    def test_large_messages_at_once_take_no_memory(self):
        with self.training("r"):
            before = self.peak_mib()
            ends = self.raw_calls(MESSAGES, wire.INGEST, self.large_hello())
            self.assertEqual(
                {code for code, _ in ends}, {other_user.UNAUTHENTICATED}, ends
            )
            self.assertLess(self.peak_mib() - before, ELSE_MIB)

    def test_watchers_take_no_place(self):
        held = self.hold_calls(300, WATCH, b"")
        own = self.start_watcher()
        with self.training("r"):
            pass
        self.assertIsNone(own.poll(), "the own watcher was refused")
        out, _ = held.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(out.count(b"status 16 "), 300)

    def start_watcher(self):
        watcher = subprocess.Popen(
            [harness.DIST / "traincheckctl", "--server", self.daemon.address]
            + ["violations", "watch", "--all"],
            stdout=subprocess.DEVNULL,
            env=harness.others_environment(),
        )
        self.addCleanup(watcher.wait)
        self.addCleanup(watcher.kill)
        return watcher

    def test_connections_that_are_held_end_nothing(self):
        files = 450
        resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE, (files, files))
        with self.training("r"):
            before = self.records("r")
            held = self.hold_connections(2 * files)
            harness.wait_until(
                lambda: "connections are refused" in self.daemon.log.read_text(),
                "the refusal",
            )
            held.kill()
            held.communicate()
            harness.wait_until(self.answers, "a connection for its own user")
            self.assertGreaterEqual(self.records("r"), before)

    def hold_connections(self, count: int):
        host, port = self.daemon.address.rsplit(":", 1)
        code = (
            "import socket, sys, time\n"
            f"held = [socket.create_connection(('{host}', {port}))"
            f" for _ in range({count})]\n"
            "print(len(held), flush=True)\n"
            "sys.stdin.read()"
        )
        process = subprocess.Popen(
            ["/usr/bin/python3", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.user_environment(),
            **self.identity(other_user.NOBODY),
        )
        self.addCleanup(self._end_process, process)
        self.assertEqual(process.stdout.readline().strip(), str(count).encode())
        return process

    def answers(self) -> bool:
        done = harness.run_captured(
            [harness.DIST / "traincheckctl", "--server", self.daemon.address, "status"],
            harness.others_environment(),
        )
        return done.returncode == 0


class TokensOfTheirOwn(FloodCase):
    """With a token of another owner's."""

    daemon_options = ("--wire-bytes", str(64 << 20), "--max-streams-of-owner", "20")

    def setUp(self):
        super().setUp()
        self.start_daemon()
        self.relay = {"TRAINCHECK_TOKEN_FILE": self.token_of_nobody("relay", "bob")}

    def test_large_messages_at_once_take_what_the_limit_allows(self):
        with self.training("r"):
            before = self.peak_mib()
            ends = self.raw_calls(
                MESSAGES, wire.INGEST, self.large_hello(), **self.relay
            )
            self.assertEqual(len(ends), MESSAGES)
            self.assertNotIn(0, [code for code, _ in ends])
            self.assertLess(self.peak_mib() - before, 64 + ELSE_MIB)

    def test_streams_are_as_many_as_one_owner_may_have(self):
        # Of a process each: a second stream of one would be refused for that.
        for pid in range(20):
            hello = wire.hello("his", pid=100 + pid)
            self.hold_calls(1, wire.INGEST, hello, **self.relay)
        flood = self.hold_calls(30, wire.INGEST, wire.hello("his"), **self.relay)
        with self.training("r"):
            pass
        out, _ = flood.communicate(timeout=harness.PATIENCE_S)
        refused = [
            bytes.fromhex(line.split(b" ")[2].decode())
            for line in out.splitlines()
            if line.startswith(b"status %d " % other_user.RESOURCE_EXHAUSTED)
        ]
        self.assertEqual(len(refused), 30, out)
        self.assertIn(b"20 streams of owner bob are open", refused[0])

    def test_watchers_keep_nobody_from_records_and_lists(self):
        viewer = {"TRAINCHECK_TOKEN_FILE": self.token_of_nobody("viewer", "bob")}
        held = self.hold_calls(300, WATCH, b"", **viewer)
        with self.training("r"):
            self.assertTrue(self.daemon.ctl("violations", "list") == [])
        out, _ = held.communicate(timeout=harness.PATIENCE_S)
        self.assertGreaterEqual(
            out.count(b"status %d " % other_user.RESOURCE_EXHAUSTED), 44
        )


if __name__ == "__main__":
    unittest.main()
