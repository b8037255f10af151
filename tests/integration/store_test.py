"""The daemon's data: deleted, kept, retained, copied, of an older format, and
on a disk that is full."""

import pathlib
import subprocess
import tarfile
import time
import unittest

import harness

FIXTURE = pathlib.Path("server/store/testdata/store-format-1.tar.gz").resolve()


def bytes_of(folder: pathlib.Path) -> int:
    total = 0
    for entry in folder.rglob("*"):
        try:
            total += entry.stat().st_size if entry.is_file() else 0
        except FileNotFoundError:
            pass
    return total


class StoreCase(harness.TrainingCase):
    def unpack_fixture(self) -> None:
        with tarfile.open(FIXTURE) as archive:
            archive.extractall(self.folder)

    def ctl(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [str(harness.DIST / "traincheckctl"), "--server", self.daemon.address]
            + list(arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=harness.PATIENCE_S,
        )

    def runs(self) -> list:
        return [run["id"] for run in self.daemon.ctl("runs", "list")]


class OlderFormat(StoreCase):
    daemon_options = ("--lost-after", "2")

    def test_a_data_directory_of_format_1_is_read_and_its_check_goes_on(self):
        self.unpack_fixture()
        daemon = self.start_daemon()
        # A daemon that knows no owners refuses it from now on.
        form = (self.folder / "data/FORMAT").read_text()
        self.assertEqual(form, "traincheckd store 2\n")
        self.assertEqual(self.runs(), ["ref", "drifted", "cut"])
        self.assertEqual(daemon.ctl("runs", "show", "ref")["records"], 1648)
        drifted = daemon.ctl("runs", "show", "drifted")
        self.assertEqual(drifted["records"], 2220)
        self.assertEqual(drifted["check"]["violated"], 5)
        self.assertTrue(drifted["check"]["finished"])
        self.assertEqual(len(daemon.ctl("violations", "list", "--run", "drifted")), 5)
        self.assertEqual(daemon.ctl("sets", "show", "rules")["invariants"], 22)
        cut = daemon.run_ended("cut")
        self.assertEqual(cut["status"], "lost")
        self.assertEqual(cut["records"], 1948)
        self.assertEqual(cut["check"]["violated"], 0)
        self.assertEqual(cut["check"]["decided"], 22)
        learned = daemon.ctl("infer", "--from", "ref", "--set", "again")
        # How many is up to the relations and thresholds of this version.
        self.assertGreaterEqual(learned["invariants"], 10)

    def test_a_newer_format_is_refused_and_left_alone(self):
        self.unpack_fixture()
        data = self.folder / "data"
        (data / "FORMAT").write_text("traincheckd store 99\n")
        before = sorted((p.name, p.stat().st_mtime_ns) for p in data.rglob("*"))
        command = [harness.DIST / "traincheckd", "--data-dir", data]
        done = subprocess.run(
            [*map(str, command), "--listen", f"unix:{self.folder}/daemon.sock"],
            stderr=subprocess.PIPE,
            text=True,
            timeout=harness.PATIENCE_S,
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("store format 99, this program knows", done.stderr)
        after = sorted((p.name, p.stat().st_mtime_ns) for p in data.rglob("*"))
        self.assertEqual(before, after)


class Deletion(StoreCase):
    daemon_options = ("--lost-after", "2")

    def test_deleted_runs_are_gone_with_their_room(self):
        self.unpack_fixture()
        daemon = self.start_daemon()
        daemon.run_ended("cut")
        done = self.ctl("runs", "delete", "drifted", "none", "ref")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn('no run "none"', done.stderr)
        self.assertIn("deleted run drifted: 2220 records", done.stdout)
        self.assertEqual(self.runs(), ["cut"])
        self.assertEqual(daemon.ctl("violations", "list"), [])
        daemon.kill()
        daemon.start()
        self.assertEqual(self.runs(), ["cut"])
        self.assertEqual(daemon.ctl("violations", "list"), [])
        # The id is free again.
        done = self.monitored(
            harness.SCRIPTS / "single.py", options=("--run", "ref", "--collect")
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(daemon.run_ended("ref")["records"], 0)

    def test_a_run_in_progress_is_not_deleted(self):
        daemon = self.start_daemon()
        training = self.monitored_start(
            harness.PIPELINES / "mlp_ddp.py",
            *("--steps", "5000"),
            options=("--run", "live", "--collect"),
        )
        harness.wait_until(lambda: "live" in self.runs(), "the run")
        done = self.ctl("runs", "delete", "live")
        self.assertEqual(done.returncode, 3)
        self.assertIn("run live has not ended", done.stderr)
        self.assertIsNone(training.poll())
        self.assertEqual(daemon.ctl("runs", "show", "live")["status"], "running")


class Retention(StoreCase):
    daemon_options = (
        *("--lost-after", "2", "--retain-check", "0.2"),
        *("--retain-days", "0.00001"),
    )

    def test_records_go_and_what_was_found_stays(self):
        self.unpack_fixture()
        self.daemon = harness.Daemon(self.folder, "--lost-after", "2").start()
        self.addCleanup(self._end_daemon, self.daemon)
        self.assertIn("is kept", self.ctl("runs", "keep", "ref").stdout)
        self.daemon.stop()
        daemon = self.start_daemon()

        def dropped(run):
            return daemon.ctl("runs", "show", run)["records_deleted"]

        harness.wait_until(lambda: dropped("drifted"), "retention")
        harness.wait_until(lambda: dropped("cut"), "retention")
        self.assertIsNone(dropped("ref"))
        drifted = daemon.ctl("runs", "show", "drifted")
        self.assertEqual(drifted["records"], 2220)
        self.assertEqual(drifted["stored_bytes"], 0)
        refused = self.ctl("infer", "--from", "drifted", "--set", "new")
        self.assertEqual(refused.returncode, 3)
        self.assertIn("deleted by retention", refused.stderr)
        self.assertEqual(drifted["check"]["violated"], 5)
        self.assertEqual(len(daemon.ctl("violations", "list", "--run", "drifted")), 5)
        daemon.kill()
        daemon.start()
        shown = daemon.run_ended("drifted")
        self.assertEqual(shown["check"]["violated"], 5)
        self.assertGreater(daemon.ctl("runs", "show", "ref")["stored_bytes"], 0)
        self.assertIn(
            "left to retention", self.ctl("runs", "keep", "--off", "ref").stdout
        )
        time.sleep(1)  # five looks: a set was learned from it
        self.assertIsNone(dropped("ref"))
        daemon.ctl("sets", "delete", "rules")
        harness.wait_until(lambda: dropped("ref"), "retention of ref")


class Backup(StoreCase):
    daemon_options = ("--lost-after", "2")

    def test_a_backup_made_while_a_run_streams_shows_all_runs(self):
        self.unpack_fixture()
        daemon = self.start_daemon()
        self.monitored_start(
            harness.PIPELINES / "mlp_ddp.py",
            *("--steps", "5000"),
            options=("--run", "live", "--collect"),
        )

        def records():
            if "live" not in self.runs():
                return 0
            return daemon.ctl("runs", "show", "live")["records"]

        harness.wait_until(lambda: records() > 500, "records of the run")
        before = records()
        folder = self.folder / "backup"
        made = daemon.ctl("backup", str(folder))
        self.assertEqual(made["folder"], str(folder))
        self.assertGreater(made["bytes"], 0)
        harness.wait_until(lambda: records() > before, "more records")
        again = self.ctl("backup", str(folder))
        self.assertEqual(again.returncode, 3)
        self.assertIn("exists already", again.stderr)

        restored_folder = self.folder / "restored"
        restored_folder.mkdir()
        folder.rename(restored_folder / "data")
        restored = harness.Daemon(restored_folder, *self.daemon_options).start()
        self.addCleanup(restored.kill)
        self.assertEqual(
            {run["id"] for run in restored.ctl("runs", "list")},
            {"ref", "drifted", "cut", "live"},
        )
        live = restored.ctl("runs", "show", "live")
        self.assertGreaterEqual(live["records"], before)
        self.assertEqual(len(restored.ctl("violations", "list")), 5)
        ids = {d.ctl("status")["server"]["store_id"] for d in (daemon, restored)}
        self.assertEqual(len(ids), 2)


class FullDisk(StoreCase):
    def test_status_says_that_nothing_is_acknowledged_until_there_is_room(self):
        data = self.folder / "data"
        data.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", str(data)],
            stderr=subprocess.PIPE,
            text=True,
        )
        if mounted.returncode != 0:
            self.skipTest(f"may not mount a tmpfs here: {mounted.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", str(data)])
        daemon = self.start_daemon()
        ballast = data / "ballast"
        ballast.write_bytes(b"x" * (300 << 20))
        done = self.monitored(
            harness.SCRIPTS / "single.py",
            options=("--run", "full", "--collect", "--drain-timeout", "1"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        server = daemon.ctl("status")["server"]
        self.assertIn("is full", server["store_error"])
        self.assertLess(server["free_bytes"], 128 << 20)
        self.assertIn(
            "STORE NOT WRITABLE, nothing is acknowledged", self.ctl("status").stdout
        )
        ballast.unlink()
        shown = daemon.run_ended("full")
        self.assertGreater(shown["records"], 0)
        self.assertEqual(shown["lost"], 0)
        self.assertIsNone(daemon.ctl("status")["server"]["store_error"])


if __name__ == "__main__":
    unittest.main()
