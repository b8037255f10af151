"""What another user of the host can do: nothing. Each attack is made by a process
of that user, against a daemon of root's and trainings of root's."""

import json
import os
import pathlib
import shutil
import socket
import stat
import subprocess
import unittest

import harness
import other_user
import wire

# Users who have neither files nor processes.
STRANGER, HERMIT = 64017, 64018
# Records nothing; records what is said to functions, texts too.
PLANS = (
    {"format": 1, "mode": "off"},
    {
        "format": 1,
        "mode": "full",
        "calls": [{"function": "*", "arguments": "*", "texts": ["mode", "name"]}],
    },
)


class Loopback(other_user.OtherUserCase):
    """A daemon on a port of loopback, which everybody can connect to."""

    def setUp(self):
        super().setUp()
        self.start_daemon()

    def test_its_own_user_needs_no_option(self):
        self.train("mine")
        self.assertIsNone(self.daemon.ctl("runs", "show", "mine")["owner"])

    def test_no_method_answers_another_user(self):
        methods = other_user.all_methods()
        self.assertGreater(len(methods), 40)
        garbage = self.home / "token"
        garbage.write_text("tc1." + "0" * 16 + "." + "0" * 64)
        garbage.chmod(0o600)
        os.chown(garbage, other_user.NOBODY, other_user.NOBODY)
        for method in [*methods, "/traincheck.v1.Control/Nothing"]:
            for extra in ({}, {"TRAINCHECK_TOKEN_FILE": str(garbage)}):
                with self.subTest(method, **extra):
                    code, text = self.raw_call(method, b"", **extra)
                    self.assertEqual(code, other_user.UNAUTHENTICATED, text)

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
        before = self.daemon.ctl("runs", "plan", "victim")
        for plan in PLANS:
            file = self.home / "plan.json"
            file.write_text(json.dumps(plan))
            done = self.ctl("runs", "plan", "victim", "--file", file)
            self.assertEqual(done.returncode, 3, done)
            self.assertIn(b"token", done.stderr)
        self.assertEqual(self.daemon.ctl("runs", "plan", "victim"), before)
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
        self.assertEqual(code, other_user.UNAUTHENTICATED, text)
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
        self.daemon.ctl("sets", "deploy", "builtin", "--experiment", "e")
        rules = self.home / "set.json"  # as good as it can be
        export = ["invariants", "export", "--set", "builtin", rules]
        done = harness.run_captured(
            [harness.DIST / "traincheckctl", "--server", self.daemon.address, *export],
            self.environment(),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        rules.chmod(0o644)
        before = self.daemon.ctl("sets", "list")
        for words in (
            ["invariants", "import", "--set", "builtin", rules],
            ["invariants", "import", "--set", "rules", rules],
            ["sets", "withdraw", "--experiment", "e"],
            ["sets", "disable", "51df97ea403bb4bf", "--reason", "mine"],
            ["silences", "add", "--rule", "51df97ea403bb4bf", "--comment", "c"],
        ):
            done = self.ctl(*words)
            self.assertEqual(done.returncode, 3, (words, done))
            self.assertIn(b"token", done.stderr, words)
        self.assertEqual(self.daemon.ctl("silences", "list"), [])
        self.assertEqual(self.daemon.ctl("sets", "list"), before)
        self.assertEqual(len(self.daemon.ctl("sets", "deployed")), 1)
        # Nothing was wrong with what he brought.
        self.daemon.ctl("invariants", "import", "--set", "rules", str(rules))

    def test_no_folder_is_written_or_removed(self):
        precious = self.folder / "copy.partial"
        precious.mkdir()
        (precious / "file").write_text("precious")
        self.assertEqual(self.ctl("backup", self.folder / "copy").returncode, 3)
        self.assertTrue((precious / "file").exists())
        self.assertFalse((self.folder / "copy").exists())

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


class Socket(other_user.OtherUserCase):
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


class NoRuntimeFolder(other_user.OtherUserCase):
    """A user whom no login has given one, as under Slurm and in containers."""

    def setUp(self):
        super().setUp()
        self.runtime = pathlib.Path(f"/tmp/traincheck-{HERMIT}")
        shutil.rmtree(self.runtime, ignore_errors=True)
        self.addCleanup(shutil.rmtree, self.runtime, ignore_errors=True)
        shutil.copy(harness.DIST / "traincheckd", self.open_folder)
        self.data = self.open_folder / "data"
        self.data.mkdir()
        os.chown(self.data, HERMIT, HERMIT)

    def start(self, address: str, *options: str) -> None:
        log = self.folder / "log"
        with open(log, "wb") as stderr:
            process = subprocess.Popen(
                [self.open_folder / "traincheckd", "--data-dir", self.data, *options],
                stderr=stderr,
                env=self.user_environment(),
                **self.identity(HERMIT),
            )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        harness.wait_until(
            lambda: f"listening address={address}" in log.read_text(), "the daemon"
        )

    def status(self, user: int, *options):
        return self.as_user(
            self.open_folder / "traincheckctl", *options, "status", user=user
        )

    def test_the_socket_is_in_a_folder_of_its_own(self):
        address = f"unix:{self.runtime}/traincheckd.sock"
        self.start(address)
        self.assertEqual(stat.S_IMODE(self.runtime.stat().st_mode), 0o700)
        own = self.status(HERMIT)
        self.assertEqual(own.returncode, 0, own.stderr)
        others = self.status(other_user.NOBODY, "--server", address)
        self.assertEqual(others.returncode, 4, others)

    def test_a_port_needs_no_option_but_its_own(self):
        port, self.lock = harness.take_port()
        address = f"127.0.0.1:{port}"
        self.start(address, "--listen", address)
        token = self.runtime / f"loopback-{port}.token"
        self.assertEqual(stat.S_IMODE(token.stat().st_mode), 0o600)
        own = self.status(HERMIT, "--server", address)
        self.assertEqual(own.returncode, 0, own.stderr)
        others = self.status(other_user.NOBODY, "--server", address)
        self.assertEqual(others.returncode, 3, others)


class Owners(other_user.OtherUserCase):
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
        plan = self.folder / "texts.json"
        plan.write_text(json.dumps(PLANS[1]))
        for words in (
            ["runs", "show", "hers"],
            ["runs", "delete", "hers"],
            ["runs", "keep", "hers"],
            ["runs", "plan", "hers"],
            ["runs", "plan", "hers", "--file", plan],
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

    def test_names_of_sets_are_not_taken_and_jobs_not_known(self):
        for run in ("hers-1",):
            self.assertEqual(self.train_of("alice", run).returncode, 0)
            self.daemon.run_ended(run)
        learn = ["infer", "--from", "hers-1", "--set", "rules", *harness.ONE_PROGRAM]
        done = self.ctl_of("alice", "owner", *learn)
        self.assertEqual(done.returncode, 0, done.stderr)
        [job] = self.daemon.ctl("jobs", "list")
        for command in ("show", "cancel"):
            hers, none = (
                self.ctl_of("bob", "owner", "jobs", command, id)
                for id in (job["id"], "j999")
            )
            self.assertEqual((hers.returncode, none.returncode), (3, 3), hers)
            self.assertEqual(hers.stderr.replace(job["id"], "j999"), none.stderr)
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
