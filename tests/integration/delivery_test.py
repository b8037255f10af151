"""Nothing is lost and nobody is hurt, whatever is killed."""

import os
import signal
import socket
import subprocess
import time
import unittest

import harness


class Books(harness.TrainingCase):
    def assert_books_balance(self, shown: dict, lost: int = 0) -> None:
        rings = [ring for process in shown["processes"] for ring in process["rings"]]
        self.assertTrue(rings)
        stored = 0
        for ring in rings:
            self.assertEqual(ring["offered"], ring["committed"] + ring["dropped"], ring)
            self.assertGreaterEqual(ring["committed"], ring["stored"], ring)
            stored += ring["stored"]
        committed = sum(ring["committed"] for ring in rings)
        self.assertEqual(committed, stored + lost, rings)
        self.assertEqual(shown["dropped"], 0)
        self.assertEqual(shown["lost"], lost)
        self.assertEqual(shown["records"], stored)


class Accounting(Books):
    daemon_options = ("--lost-after", "2")

    def learn_rules(self, daemon) -> None:
        done = self.monitored(
            harness.PIPELINES / "mlp_ddp.py",
            *("--steps", "20"),
            options=("--run", "ref", "--collect"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        daemon.run_ended("ref")
        daemon.ctl("infer", *harness.ONE_PROGRAM, "--from", "ref", "--set", "rules")

    def kill_and_restart(self, daemon, run: str) -> None:
        """Kills the daemon once 300 more records of the run are stored."""

        def stored() -> int:
            seen = daemon.ctl("runs", "list")
            return sum(row["records"] for row in seen if row["id"] == run)

        before = stored()
        harness.wait_until(lambda: stored() > before + 300, "records of the run")
        daemon.kill()
        time.sleep(0.5)
        daemon.start()

    def verdicts(self, daemon, run: str) -> tuple:
        check = daemon.run_ended(run)["check"]
        keys = ("invariant_id", "first_step", "last_step", "count", "ranks", "sites")
        violations = daemon.ctl("violations", "list", "--run", run)
        rules = {row["id"]: row["invariant_id"] for row in violations}
        rows = sorted(
            str([row[key] for key in keys])
            + f" of {rules[row['incident']]}, from {rules.get(row['cause'])}"
            for row in violations
        )
        summary = ("decided", "total", "violated", "not_applied", "unknown")
        return rows, [check[key] for key in summary]

    def test_daemon_killed_while_two_ranks_stream(self):
        daemon = self.start_daemon()
        self.learn_rules(daemon)
        script = harness.SCRIPTS / "drift_ddp.py"
        arguments = ("--steps=200", "--fault-step=40", "--sleep=0.02")
        calm = self.monitored(
            script, *arguments, options=("--run", "calm", "--check", "rules")
        )
        self.assertEqual(calm.returncode, 0, calm.stderr)

        training = self.monitored_start(
            script, *arguments, options=("--run", "shaken", "--check", "rules")
        )
        for _ in range(2):
            self.kill_and_restart(daemon, "shaken")
            self.assertIsNone(training.poll(), "the run was over too early")
        out, err = training.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(training.returncode, 0, err)
        self.assertEqual(out, calm.stdout)
        self.assert_books_balance(daemon.run_ended("shaken"))
        self.assert_books_balance(daemon.run_ended("calm"))
        self.assertEqual(self.verdicts(daemon, "shaken"), self.verdicts(daemon, "calm"))
        rows, (decided, *_) = self.verdicts(daemon, "calm")
        self.assertGreater(len(rows), 2)
        self.assertGreater(decided, 5)

    def main_ring(self, shown: dict) -> dict:
        (process,) = shown["processes"]
        return next(ring for ring in process["rings"] if ring["ring"] == 1)

    def test_rank_killed(self):
        daemon = self.start_daemon()
        script = harness.SCRIPTS / "single.py"
        done = self.monitored(
            script,
            *("--steps", "50", "--kill-at", "17"),
            options=("--run", "killed", "--collect"),
        )
        self.assertEqual(done.returncode, 128 + signal.SIGKILL, done.stderr)
        killed = daemon.run_ended("killed")
        self.assertEqual(killed["status"], "lost")
        self.assert_books_balance(killed)
        (rank,) = killed["processes"]
        self.assertEqual((rank["rank"], rank["state"]), (0, "lost"))
        self.assertEqual(rank["last_step"], 16)
        self.assertIn("died at step 17", rank["reason"])

        # The same program that leaves in order at the same place wrote the same
        # records and then, at its exit, a few more: nothing is missing above.
        self.monitored(
            script,
            *("--steps", "50", "--sys-exit-at", "17"),
            options=("--run", "left", "--collect"),
        )
        left = self.main_ring(daemon.run_ended("left"))["stored"]
        stored = self.main_ring(killed)["stored"]
        self.assertLess(stored, left)
        self.assertGreaterEqual(stored, left - 3)

    def start_single(self, daemon, *arguments: str):
        """A training that has closed steps, and the pid of its relay."""
        training = self.monitored_start(
            harness.SCRIPTS / "single.py",
            *arguments,
            options=("--run", "r", "--collect"),
        )
        daemon.await_first_steps()
        (relay,) = harness.relay_pids(str(self.folder))
        return training, relay

    def test_relay_killed(self):
        """Another relay takes over what the dead one had not delivered."""
        daemon = self.start_daemon()
        arguments = ("--steps", "150", "--sleep", "0.02", "--print-digest")
        plain = self.plain(harness.SCRIPTS / "single.py", *arguments)
        training, relay = self.start_single(daemon, *arguments)
        os.kill(relay, signal.SIGKILL)
        out, err = training.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(training.returncode, 0, err)
        self.assertEqual(out, plain.stdout)
        shown = daemon.run_ended("r")
        self.assertEqual(shown["status"], "ended")
        self.assert_books_balance(shown)
        self.assertEqual(shown["last_step"], 149)

    def test_relay_and_rank_killed(self):
        """How much lay in the rings nobody can know."""
        daemon = self.start_daemon()
        training, relay = self.start_single(daemon, "--steps", "900", "--sleep", "0.02")
        (process,) = daemon.ctl("runs", "show", "r")["processes"]
        os.kill(process["pid"], signal.SIGSTOP)
        os.kill(relay, signal.SIGKILL)
        os.kill(process["pid"], signal.SIGKILL)
        training.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(training.returncode, 128 + signal.SIGKILL)
        process = harness.wait_until(
            lambda: next(
                (
                    p
                    for p in daemon.ctl("runs", "show", "r")["processes"]
                    if p["state"] == "lost"
                ),
                None,
            ),
            "the process to be shown as lost",
        )
        self.assertIsNone(process["lost"])
        self.assertIn("relay", process["reason"])


class AnotherStore(harness.TrainingCase):
    """What a spool file holds goes to a store that has nothing of the process."""

    def transfer(self, daemon, what: str, rules) -> None:
        command = [harness.DIST / "traincheckctl", "--server", daemon.address]
        command += ["invariants", what, "--set", "rules", rules]
        subprocess.run(
            list(map(str, command)),
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=harness.PATIENCE_S,
        )

    def begin(self, *arguments: str):
        """A checked training whose daemon was killed; its pid and its rules."""
        script = harness.SCRIPTS / "single.py"
        first = self.start_daemon()
        self.monitored(script, "--steps", "20", options=("--run", "ref", "--collect"))
        first.run_ended("ref")
        first.ctl("infer", "--from", "ref", "--set", "rules")
        rules = self.folder / "rules.json"
        self.transfer(first, "export", rules)
        training = self.monitored_start(
            script,
            *arguments,
            options=("--run", "r", "--check", "rules", "--drain-timeout", "2"),
            TRAINCHECK_GRACE="1",
        )
        shown = harness.wait_until(
            lambda: next(
                (
                    r
                    for r in first.ctl("runs", "list")
                    if r["id"] == "r" and r["last_step"]
                ),
                None,
            ),
            "first steps of the run",
        )
        (process,) = first.ctl("runs", "show", shown["id"])["processes"]
        first.kill()
        return training, process["pid"], rules

    def deliver(self, rules) -> dict:
        """Sends the spool to a new store; shows the run as checked there."""
        folder = self.folder / "second"
        folder.mkdir()
        second = harness.Daemon(folder)
        second.start()
        self.addCleanup(second.kill)
        sent = second.ctl("spool", "send", str(self.folder / "spool"))
        self.assertEqual([row["result"] for row in sent], ["delivered"], sent)
        self.assertIn("no set", second.run_ended("r")["check"]["error"])
        self.transfer(second, "import", rules)
        shown = harness.wait_until(
            lambda: next(
                (
                    run
                    for run in [second.run_ended("r")]
                    if run["check"]["error"] is None
                ),
                None,
            ),
            "the check against the imported set",
        )
        return shown

    def test_definitions_come_with_the_spool(self):
        training, _, rules = self.begin("--steps", "150", "--sleep", "0.02")
        _, err = training.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(training.returncode, 0, err)
        shown = self.deliver(rules)
        (process,) = shown["processes"]
        ring = next(r for r in process["rings"] if r["ring"] == 0)
        self.assertEqual(ring["stored"], ring["committed"])
        self.assertNotIn("definitions", process["reason"])
        self.assertGreater(process["lost"], 0)
        self.assertEqual(shown["last_step"], 149)
        self.assertGreater(shown["check"]["decided"], 0)
        self.assertEqual(shown["check"]["violated"], 0, shown["check"])

    def test_without_definitions_nothing_is_judged(self):
        """A relay that is killed leaves what it had spooled, and nothing more."""
        training, pid, rules = self.begin("--steps", "1000", "--sleep", "0.02")
        spool = self.folder / "spool"
        harness.wait_until(
            lambda: sum(f.stat().st_size for f in spool.rglob("*.spool")) > 20_000,
            "a spool file",
        )
        (relay,) = harness.relay_pids(str(self.folder))
        os.kill(pid, signal.SIGSTOP)
        os.kill(relay, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        training.communicate(timeout=harness.PATIENCE_S)
        shown = self.deliver(rules)
        (process,) = shown["processes"]
        self.assertIsNone(process["lost"])
        self.assertIn("definitions are missing", process["reason"])
        self.assertGreater(process["records"], 0)
        check = shown["check"]
        self.assertEqual((check["decided"], check["violated"]), (0, 0), check)


class StoppedRelay(Books):
    def test_rank_killed_while_its_relay_cannot_read(self):
        """What lies in the rings at the death is read after it."""
        daemon = self.start_daemon()
        gate = self.folder / "gate"
        training = self.monitored_start(
            harness.SCRIPTS / "single.py",
            *("--steps", "60", "--gate", str(gate), "--gate-at", "10"),
            *("--kill-at", "40"),
            options=("--run", "r", "--collect", "--drain-timeout", "1"),
        )
        daemon.await_first_steps()
        (relay,) = harness.relay_pids(str(self.folder))
        os.kill(relay, signal.SIGSTOP)
        self.assertLess(daemon.ctl("runs", "show", "r")["last_step"], 10)
        gate.touch()
        training.wait(harness.PATIENCE_S)
        os.kill(relay, signal.SIGCONT)
        shown = daemon.run_ended("r")
        self.assertEqual(shown["last_step"], 39)
        self.assertIn("died at step 40", shown["processes"][0]["reason"])
        self.assert_books_balance(shown)


class WithoutServer(harness.TrainingCase):
    script = harness.SCRIPTS / "single.py"
    arguments = ("--steps", "30", "--print-digest", "--exit-code", "7")

    def assert_untouched(self, done, plain) -> None:
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertEqual(done.stdout, plain.stdout)

    def test_no_server(self):
        plain = self.plain(self.script, *self.arguments)
        done = self.monitored(
            self.script, *self.arguments, TRAINCHECK_GRACE="1", options=("--collect",)
        )
        self.assert_untouched(done, plain)
        # One warning of each process that notices.
        for told in ("records are spooled until", "records are spooled in"):
            self.assertEqual(done.stderr.count(told), 1, done.stderr)

    def test_server_that_hangs(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            preload = str(harness.DIST / "libtraincheck_agent.so")
            plain_start = time.monotonic()
            plain = self.plain(self.script, *self.arguments)
            plain_s = time.monotonic() - plain_start
            start = time.monotonic()
            done = self.plain(
                self.script,
                *self.arguments,
                LD_PRELOAD=preload,
                TRAINCHECK_SERVER=address,
                TRAINCHECK_GRACE="1",
            )
            delay_s = time.monotonic() - start - plain_s
        self.assert_untouched(done, plain)
        # Promised: 0.1 s at start and 2 s at exit.
        self.assertLess(delay_s, 10 * 2.1)

    def test_server_that_comes_within_the_grace_gets_the_spool(self):
        daemon = harness.Daemon(self.folder)
        done = self.plain(
            self.script,
            *self.arguments,
            LD_PRELOAD=str(harness.DIST / "libtraincheck_agent.so"),
            TRAINCHECK_SERVER=daemon.address,
            TRAINCHECK_RUN="late",
            TRAINCHECK_GRACE="60",
        )
        self.assertEqual(done.returncode, 7, done.stderr)
        daemon.start()
        self.addCleanup(daemon.kill)
        shown = harness.wait_until(
            lambda: next(
                (r for r in daemon.ctl("runs", "list") if r["status"] == "ended"), None
            ),
            "the spooled run",
        )
        self.assertEqual(shown["id"], "late")
        self.assertEqual(shown["lost"], 0)
        self.assertGreater(shown["records"], 500)
        self.assertEqual(shown["last_step"], 29)

    def test_missing_relay_and_core(self):
        plain = self.plain(self.script, *self.arguments)
        lonely = self.folder / "libtraincheck_agent.so"
        lonely.write_bytes((harness.DIST / "libtraincheck_agent.so").read_bytes())
        done = self.plain(self.script, *self.arguments, LD_PRELOAD=str(lonely))
        self.assert_untouched(done, plain)
        self.assertLessEqual(len(done.stderr.splitlines()), 2, done.stderr)

    def test_disabled(self):
        plain = self.plain(self.script, *self.arguments)
        done = self.plain(
            self.script,
            *self.arguments,
            LD_PRELOAD=str(harness.DIST / "libtraincheck_agent.so"),
            TRAINCHECK_DISABLE="1",
        )
        self.assert_untouched(done, plain)
        self.assertEqual(done.stderr, plain.stderr)


if __name__ == "__main__":
    unittest.main()
