"""Where records of real trainings wait for a daemon, and how they get there."""

import fcntl
import json
import os
import unittest

import harness


class SpoolPlaces(harness.TrainingCase):
    def setUp(self):
        super().setUp()
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.state = self.folder / "state" / "traincheck" / "spool"
        own = self.temporary / f"traincheck-{os.getuid()}"
        self.on_node = own / "spool"
        self.before = own  # where earlier versions spooled without a home

    def environment(self, **extra: str) -> dict:
        settings = {"TRAINCHECK_SPOOL_DIR": "", "TMPDIR": str(self.temporary)}
        return super().environment(**{**settings, **extra})

    def train(self, run: str, **extra: str):
        done = self.monitored(
            harness.SCRIPTS / "single.py",
            *("--steps", "20"),
            options=("--run", run, "--collect"),
            **extra,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def leave(self, run: str, folder, **extra: str) -> None:
        """A training without a daemon; its records wait in `folder`."""
        before = set(folder.glob("*.spool"))
        self.train(run, TRAINCHECK_GRACE="0", **extra)
        harness.wait_until(
            lambda: set(folder.glob("*.spool")) - before, f"the spool of {run}"
        )
        # The relay may still have it.
        harness.wait_until(lambda: not self._is_held(folder), f"the relay of {run}")

    @staticmethod
    def _is_held(folder) -> bool:
        for path in folder.glob("*.spool"):
            with open(path, "rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
        return False

    def leave_in_all(self) -> None:
        self.leave("now", self.on_node)
        for run, folder in (("home", self.state), ("tmp", self.before)):
            self.leave(run, folder, TRAINCHECK_SPOOL_DIR=str(folder))

    def spool(self, *words: str) -> list:
        address = self.daemon.address if self.daemon else "127.0.0.1:9"
        command = [harness.DIST / "traincheckctl", "--server", address]
        done = harness.run_captured(
            [*command, "-o", "json", "spool", *words], self.environment()
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def assert_delivered(self) -> None:
        harness.wait_until(lambda: not self.spool("list"), "the delivery")
        for run in ("now", "home", "tmp"):
            shown = self.daemon.run_ended(run)
            self.assertEqual((shown["lost"], shown["dropped"]), (0, 0), run)
            self.assertGreater(shown["records"], 0)

    def test_the_next_training_delivers_what_lies_in_old_and_new_folders(self):
        self.leave_in_all()
        self.assertEqual(len(self.spool("list")), 3)
        self.start_daemon()
        self.train("next")
        self.assert_delivered()

    def test_so_does_the_command(self):
        self.leave_in_all()
        self.start_daemon()
        sent = self.spool("send")
        self.assertEqual([row["result"] for row in sent], ["delivered"] * 3, sent)
        self.assert_delivered()

    def test_a_folder_for_all_users_has_one_for_each(self):
        site = self.folder / "site"
        site.mkdir()
        site.chmod(0o1777)
        own = site / str(os.getuid())
        self.leave("mine", own, TRAINCHECK_SPOOL_DIR=str(site))
        self.assertEqual(own.stat().st_mode & 0o7777, 0o700)
        self.start_daemon()
        (sent,) = self.spool("send", str(site))
        self.assertEqual((sent["run"], sent["result"]), ("mine", "delivered"))

    def test_a_named_folder_that_cannot_be_used_is_told(self):
        (self.folder / "file").touch()
        named = self.folder / "file" / "spool"
        done = self.train("r", TRAINCHECK_GRACE="0", TRAINCHECK_SPOOL_DIR=str(named))
        self.assertIn(f"{named} cannot be used", done.stderr)
        self.assertIn(f"spooled in {self.on_node}", done.stderr)


if __name__ == "__main__":
    unittest.main()
