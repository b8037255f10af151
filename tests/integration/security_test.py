"""What another user of the host can do: nothing. Each attack is made by a process
of that user, against a daemon of root's and trainings of root's."""

import json
import os
import pathlib
import re
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import harness
import wire

NOBODY = 65534
# A user who has neither files nor processes.
STRANGER = 64017
UNAUTHENTICATED, PERMISSION_DENIED, UNAVAILABLE = 16, 7, 14
_RAW_CALL = next(
    path.resolve()
    for folder in ("", "bazel-bin")
    if (path := pathlib.Path(folder, "tests/integration/raw_call")).exists()
)
_TABLE = pathlib.Path("server/access/method_roles.cc")


def all_methods() -> list:
    return re.findall(r'\{"(/traincheck\.v1\.\w+/\w+)"', _TABLE.read_text())


def becomes_others() -> bool:
    """Root, and not of a user namespace that has nobody else."""
    rows = pathlib.Path("/proc/self/uid_map").read_text().splitlines()
    ranges = [(int(first), int(count)) for first, _, count in map(str.split, rows)]
    return os.geteuid() == 0 and any(
        first <= NOBODY < first + count for first, count in ranges
    )


@unittest.skipUnless(becomes_others(), "only root becomes another user")
class OtherUserCase(harness.TrainingCase):
    """A folder into which everybody may look, with our clients in it."""

    def setUp(self):
        super().setUp()
        self.open_folder = pathlib.Path(tempfile.mkdtemp(prefix="tc-open-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, self.open_folder, ignore_errors=True)
        self.open_folder.chmod(0o755)
        for program in (harness.DIST / "traincheckctl", _RAW_CALL):
            shutil.copy(program, self.open_folder)
        self.home = self.open_folder / "nobody"
        self.home.mkdir()
        os.chown(self.home, NOBODY, NOBODY)

    def as_user(self, *command, user=NOBODY, stdin=b"", **extra: str):
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), **extra}
        return subprocess.run(
            [*map(str, command)],
            input=stdin,
            capture_output=True,
            timeout=harness.PATIENCE_S,
            user=user,
            group=user,
            extra_groups=[],
            cwd="/",
            env=environment,
        )

    def ctl(self, *arguments, address=None, **extra):
        server = ["--server", address or self.daemon.address]
        return self.as_user(
            self.open_folder / "traincheckctl", *server, *arguments, **extra
        )

    def raw_call(self, method: str, *messages: bytes, **extra):
        """(code, text) of a call of nobody's."""
        framed = b"".join(struct.pack("<I", len(m)) + m for m in messages)
        done = self.as_user(
            self.open_folder / "raw_call",
            self.daemon.address,
            method,
            stdin=framed,
            **extra,
        )
        _, code, text = done.stdout.splitlines()[-1].split(b" ")
        return int(code), bytes.fromhex(text.decode()).decode()

    def train(self, run: str) -> None:
        done = self.monitored(
            harness.SCRIPTS / "single.py",
            *("--steps", "10"),
            options=("--run", run, "--collect"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.daemon.run_ended(run)


class Loopback(OtherUserCase):
    """A daemon on a port of loopback, which everybody can connect to."""

    def setUp(self):
        super().setUp()
        self.start_daemon()

    def test_its_own_user_needs_no_option(self):
        self.train("mine")
        self.assertIsNone(self.daemon.ctl("runs", "show", "mine")["owner"])

    def test_no_method_answers_another_user(self):
        methods = all_methods()
        self.assertGreater(len(methods), 40)
        garbage = self.home / "token"
        garbage.write_text("tc1." + "0" * 16 + "." + "0" * 64)
        garbage.chmod(0o600)
        os.chown(garbage, NOBODY, NOBODY)
        for method in [*methods, "/traincheck.v1.Control/Nothing"]:
            for extra in ({}, {"TRAINCHECK_TOKEN_FILE": str(garbage)}):
                with self.subTest(method, **extra):
                    code, text = self.raw_call(method, b"", **extra)
                    self.assertEqual(code, UNAUTHENTICATED, text)

    def test_what_other_users_ran_and_found_is_not_shown(self):
        self.train("secret-run")
        for words in (
            ["runs", "list"],
            ["runs", "show", "secret-run"],
            ["sets", "list"],
            ["violations", "list"],
            ["status"],
            ["token", "list"],
        ):
            done = self.ctl(*words)
            self.assertEqual(done.returncode, 3, (words, done))
            self.assertNotIn(b"secret-run", done.stdout)
            self.assertIn(b"token", done.stderr)

    def test_a_training_is_neither_steered_nor_ended_nor_forged(self):
        hold = self.folder / "hold"
        training = self.monitored_start(
            harness.SCRIPTS / "ranks.py",
            *("--hold", str(hold)),
            options=("--run", "victim", "--collect"),
        )
        process = harness.wait_until(self._streaming, "the stream of the training")
        plan = self.home / "off.json"
        plan.write_text('{"format":1,"mode":"off"}')
        self.assertEqual(
            self.ctl("runs", "plan", "victim", "--file", plan).returncode, 3
        )
        # What everybody on the host can know of the process.
        ticks = pathlib.Path(f"/proc/{process['pid']}/stat").read_text()
        forged = wire.hello(
            "victim",
            pid=process["pid"],
            ticks=int(ticks.rsplit(")", 1)[1].split()[19]),
            host=process["host"],
            resumes=1,
        )
        far = wire.records_batch(0, 1 << 62, wire.step_closed(10**6), 1)
        code, text = self.raw_call(wire.INGEST, forged, far, wire.goodbye(1))
        self.assertEqual(code, UNAUTHENTICATED, text)
        hold.touch()
        _, err = training.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(training.returncode, 0, err)
        shown = self.daemon.run_ended("victim")
        self.assertEqual((shown["status"], shown["lost"]), ("ended", 0))
        self.assertEqual(shown["quarantined_batches"], 0)
        self.assertLess(shown["last_step"], 10**6)

    def _streaming(self):
        runs = self.daemon.ctl("runs", "list")
        if not runs:
            return None
        shown = self.daemon.ctl("runs", "show", "victim")
        live = [p for p in shown["processes"] if p["state"] == "streaming"]
        return live[0] if live and live[0]["records"] else None

    def test_rules_are_neither_brought_in_nor_switched_off(self):
        rules = self.home / "set.json"
        rules.write_text("{}")
        for words in (
            ["invariants", "import", "--set", "rules", rules],
            ["sets", "disable", "51df97ea403bb4bf", "--reason", "mine"],
            ["silences", "add", "--rule", "51df97ea403bb4bf", "--comment", "c"],
        ):
            self.assertEqual(self.ctl(*words).returncode, 3, words)
        self.assertEqual(self.daemon.ctl("silences", "list"), [])

    def test_no_folder_is_written_or_removed(self):
        precious = self.folder / "copy.partial"
        precious.mkdir()
        (precious / "file").write_text("precious")
        self.assertEqual(self.ctl("backup", self.folder / "copy").returncode, 3)
        self.assertTrue((precious / "file").exists())
        self.assertFalse((self.folder / "copy").exists())

    def test_large_messages_of_strangers_take_no_memory(self):
        before = self._rss_mib()
        large = wire.message((1, wire.message((5, "a" * (15 << 20)))))
        for _ in range(10):
            code, text = self.raw_call(wire.INGEST, large)
            self.assertEqual(code, UNAUTHENTICATED, text)
        self.assertLess(self._rss_mib() - before, 64)

    def _rss_mib(self) -> int:
        status = pathlib.Path(f"/proc/{self.daemon.pid}/status").read_text()
        line = next(l for l in status.splitlines() if l.startswith("VmRSS"))
        return int(line.split()[1]) // 1024

    def test_the_daemons_tokens_are_for_its_user_alone(self):
        port = self.daemon.address.rsplit(":", 1)[1]
        runtime = self.as_user("true") and pathlib.Path(
            f"/tmp/traincheck-{os.geteuid()}"
        )
        if not runtime.exists():
            runtime = pathlib.Path(f"/run/user/{os.geteuid()}/traincheck")
        for path in (
            self.daemon.data_dir / "admin.token",
            runtime / f"loopback-{port}.token",
        ):
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
            self.assertNotEqual(self.as_user("cat", path).returncode, 0)

    def test_a_token_that_others_can_read_is_not_used(self):
        loose = self.folder / "token"
        shutil.copy(self.daemon.data_dir / "admin.token", loose)
        loose.chmod(0o644)
        done = harness.run_captured(
            [
                harness.DIST / "traincheckctl",
                *("--server", self.daemon.address, "--token-file", loose),
                "status",
            ],
            harness.others_environment(),
        )
        self.assertEqual(done.returncode, 4)
        self.assertIn("mode 0644", done.stderr)


class Socket(OtherUserCase):
    """The default: a socket in a folder of the user's."""

    def test_another_user_cannot_even_connect(self):
        runtime = self.open_folder / "run"
        runtime.mkdir(mode=0o700)
        environment = harness.others_environment()
        environment["XDG_RUNTIME_DIR"] = str(runtime)
        daemon, log = self._start(environment)
        address = f"unix:{runtime}/traincheck/traincheckd.sock"
        harness.wait_until(lambda: address in log.read_text(), "the daemon")
        own = harness.run_captured(
            [harness.DIST / "traincheckctl", "status"], environment
        )
        self.assertEqual(own.returncode, 0, own.stderr)
        second, second_log = self._start(environment, "second")
        self.assertEqual(second.wait(harness.PATIENCE_S), 1)
        self.assertIn("another traincheckd listens", second_log.read_text())
        for mode in (0o700, 0o755):  # whatever becomes of the folders
            runtime.chmod(mode)
            (runtime / "traincheck").chmod(mode)
            done = self.ctl("runs", "list", address=address)
            self.assertEqual(done.returncode, 4, done)

    def _start(self, environment, name="data", **options):
        log = self.folder / f"{name}.log"
        with open(log, "wb") as stderr:
            process = subprocess.Popen(
                [harness.DIST / "traincheckd", "--data-dir", self.folder / name],
                stderr=stderr,
                env=environment,
                **options,
            )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, log

    def test_a_folder_that_another_user_made_first_is_not_used(self):
        taken = pathlib.Path(f"/tmp/traincheck-{STRANGER}")
        self.addCleanup(shutil.rmtree, taken, ignore_errors=True)
        made = self.as_user("mkdir", "-m", "0777", taken)
        self.assertEqual(made.returncode, 0, made.stderr)
        data = self.open_folder / "data"
        data.mkdir()
        os.chown(data, STRANGER, STRANGER)
        shutil.copy(harness.DIST / "traincheckd", self.open_folder)
        done = self.as_user(
            self.open_folder / "traincheckd",
            *("--data-dir", data / "store"),
            user=STRANGER,
        )
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(b"is not a folder of yours alone", done.stderr)
        self.assertEqual(list(taken.iterdir()), [])
        # Nor does a client meet whoever waits in it.
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(taken / "traincheckd.sock"))
            listener.listen()
            listener.setblocking(False)
            (taken / "traincheckd.sock").chmod(0o777)
            done = self.as_user(
                self.open_folder / "traincheckctl", "status", user=STRANGER
            )
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(b"is not a folder of yours alone", done.stderr)
            with self.assertRaises(BlockingIOError):
                listener.accept()


class Owners(OtherUserCase):
    """Two owners with tokens of one daemon: neither has anything to do with what
    the other has."""

    def setUp(self):
        super().setUp()
        self.start_daemon()
        for owner in ("alice", "bob"):
            for role in ("relay", "viewer", "owner"):
                self.daemon.ctl(
                    *("token", "create", "--role", role, "--owner", owner),
                    *("--out", str(self.token(owner, role))),
                )

    def token(self, owner: str, role: str) -> pathlib.Path:
        return self.folder / f"{owner}.{role}"

    def ctl_of(self, owner, role, *words):
        return harness.run_captured(
            [
                harness.DIST / "traincheckctl",
                *("--server", self.daemon.address),
                *("--token-file", self.token(owner, role)),
                *("-o", "json"),
                *words,
            ],
            self.environment(),
        )

    def listed(self, owner: str, *words) -> list:
        done = self.ctl_of(owner, "viewer", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def train_of(self, owner: str, run: str, role="relay"):
        return self.monitored(
            harness.SCRIPTS / "single.py",
            *("--steps", "10"),
            options=("--run", run, "--collect"),
            TRAINCHECK_TOKEN_FILE=str(self.token(owner, role)),
        )

    def test_runs_are_their_owners(self):
        self.assertEqual(self.train_of("alice", "hers").returncode, 0)
        self.daemon.run_ended("hers")
        self.assertEqual(
            [r["id"] for r in self.listed("alice", "runs", "list")], ["hers"]
        )
        self.assertEqual(self.listed("bob", "runs", "list"), [])
        self.assertEqual(self.listed("bob", "violations", "list"), [])
        for words in (
            ["runs", "show", "hers"],
            ["runs", "delete", "hers"],
            ["runs", "keep", "hers"],
            ["runs", "plan", "hers"],
            ["check", "--run", "hers", "--set", "builtin"],
            ["compare", "hers", "hers"],
            ["infer", "--from", "hers", "--set", "taken"],
        ):
            done = self.ctl_of("bob", "owner", *words)
            self.assertEqual(done.returncode, 3, (words, done))
            self.assertIn("there is no run", done.stderr, words)
        # A training of bob's that takes her id is not stopped and not mixed in.
        done = self.train_of("bob", "hers")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.daemon.ctl("runs", "show", "hers")["processes"]), 1)
        done = self.ctl_of("alice", "owner", "runs", "delete", "hers")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_names_of_sets_are_not_taken(self):
        for run in ("hers-1",):
            self.assertEqual(self.train_of("alice", run).returncode, 0)
            self.daemon.run_ended(run)
        learn = ["infer", "--from", "hers-1", "--set", "rules", *harness.ONE_PROGRAM]
        done = self.ctl_of("alice", "owner", *learn)
        self.assertEqual(done.returncode, 0, done.stderr)
        exported = self.folder / "set.json"
        done = self.ctl_of(
            "bob", "viewer", "invariants", "export", "--set", "rules", exported
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        forge = ["invariants", "import", "--set", "rules", exported]
        for words in (forge, ["sets", "delete", "rules"]):
            done = self.ctl_of("bob", "owner", *words)
            self.assertEqual(done.returncode, 3, done)
            self.assertIn("belongs to another owner", done.stderr)
        versions = [s for s in self.daemon.ctl("sets", "list") if s["name"] == "rules"]
        self.assertEqual((versions[0]["version"], versions[0]["owner"]), (1, "alice"))
        self.assertEqual(self.ctl_of("alice", "owner", *forge).returncode, 0)

    def test_roles_are_kept(self):
        for role, words in (
            ("relay", ["runs", "list"]),
            ("viewer", ["runs", "delete", "x"]),
            ("viewer", ["silences", "list"]),
            ("owner", ["backup", str(self.folder / "copy")]),
            ("owner", ["token", "list"]),
            ("owner", ["sets", "deploy", "builtin", "--experiment", "e"]),
        ):
            done = self.ctl_of("alice", role, *words)
            if words[0] == "silences":
                self.assertEqual(done.returncode, 0, done.stderr)
                continue
            self.assertEqual(done.returncode, 3, (role, words, done))
            self.assertIn("needs a token with the role", done.stderr)
        # A viewer's training is not recorded, and is not disturbed.
        done = self.train_of("alice", "viewed", role="viewer")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.daemon.ctl("runs", "list"), [])

    def test_a_revoked_token_ends_what_is_open_and_records_wait(self):
        hold = self.folder / "hold"
        training = self.monitored_start(
            harness.SCRIPTS / "ranks.py",
            *("--hold", str(hold)),
            options=("--run", "r", "--collect"),
            TRAINCHECK_TOKEN_FILE=str(self.token("alice", "relay")),
        )
        harness.wait_until(self._records, "records")
        ids = {
            t["role"]: t["id"]
            for t in self.daemon.ctl("token", "list")
            if t["owner"] == "alice"
        }
        self.daemon.ctl("token", "revoke", ids["relay"])
        spool = self.folder / "spool"
        harness.wait_until(lambda: list(spool.glob("*.spool")), "the spool")
        # Another token in its place: the relay goes on by itself.
        self.daemon.ctl(
            *("token", "create", "--role", "relay", "--owner", "alice"),
            *("--out", str(self.token("alice", "relay"))),
        )
        harness.wait_until(self._streaming, "the delivery")
        hold.touch()
        _, err = training.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(training.returncode, 0, err)
        self.assertEqual(err.count("does not take them"), 1, err)
        shown = self.daemon.run_ended("r")
        self.assertEqual((shown["lost"], shown["dropped"]), (0, 0))

    def test_one_owners_runs_do_not_fill_the_disk(self):
        # Kept, the first run stays above the limit whatever retention deletes.
        self.assertEqual(self.train_of("alice", "first").returncode, 0)
        self.daemon.run_ended("first")
        self.daemon.ctl("runs", "keep", "first")
        self.daemon.stop()
        self.daemon.options = ("--owner-bytes", "1000")
        self.daemon.start()
        # Administrators are not concerned, and alice trains on.
        self.train("other")
        self.assertEqual(self.train_of("alice", "second").returncode, 0)
        self.assertNotIn(
            "second", [run["id"] for run in self.listed("alice", "runs", "list")]
        )
        spool = self.folder / "spool"
        harness.wait_until(lambda: list(spool.glob("*.spool")), "the spool")
        self.assertIn("the runs of owner alice take", self.daemon.log.read_text())
        # With more room nothing is missing.
        self.daemon.stop()
        self.daemon.options = ("--owner-bytes", "off")
        self.daemon.start()

        def sent():
            done = self.ctl_of("alice", "relay", "spool", "send", str(spool))
            self.assertEqual(done.returncode, 0, done.stderr)
            return not list(spool.glob("*.spool"))

        harness.wait_until(sent, "the delivery")
        for run in ("first", "second"):
            shown = self.daemon.run_ended(run)
            self.assertEqual((shown["lost"], shown["dropped"]), (0, 0))

    def _records(self):
        runs = self.daemon.ctl("runs", "list")
        return runs and runs[0]["records"]

    def _streaming(self):
        shown = self.daemon.ctl("runs", "show", "r")
        return shown["processes"][0]["state"] == "streaming"


if __name__ == "__main__":
    unittest.main()
