"""What earlier versions sent and stored, read by this one.

Each folder of recorded/ was written by record.sh with the build of its version: spool
files, as a relay of that version leaves them, and a data directory.
"""

import json
import os
import pathlib
import shutil
import tarfile
import unittest

import harness

RECORDED = pathlib.Path("tests/upgrade/recorded").resolve()


class Recorded(harness.TrainingCase):
    def each(self, check) -> None:
        """Calls it with the folder of each version and what was found then."""
        folders = sorted(RECORDED.iterdir())
        self.assertTrue(folders)
        for folder in folders:
            with self.subTest(version=folder.name):
                self.setUp()  # a folder to work in
                check(folder, json.loads((folder / "expected.json").read_text()))

    def check_run(self, expected: dict) -> list:
        """It is complete, and what was violated still is; its violations."""
        run = self.daemon.run_ended("job")
        for key in ("records", "last_step"):
            self.assertEqual(run[key], expected[key])
        self.assertEqual((run["lost"], run["dropped"]), (0, 0))
        found = self.daemon.ctl("violations", "list", "--run", "job")
        rules = {violation["invariant_id"] for violation in found}
        self.assertLessEqual(set(expected["rules"]), rules)
        return found

    def test_records_of_their_relays_are_taken_and_checked(self):
        self.each(self.check_records)

    def check_records(self, folder: pathlib.Path, expected: dict) -> None:
        self.start_daemon()
        spool = self.folder / "spool"
        spool.mkdir()
        for file in folder.glob("*.spool"):
            # With the mode of a relay's, whatever the checkout's is.
            (spool / file.name).touch(0o600)
            shutil.copyfile(file, spool / file.name)
            # Long enough ago that its relay, on a host of its own, counts as gone.
            os.utime(spool / file.name, (0, 0))
        sent = harness.run_captured(
            [
                *(harness.DIST / "traincheckctl", "--server", self.daemon.address),
                *("spool", "send", spool),
            ],
            self.environment(),
        )
        self.assertEqual(sent.returncode, 0, sent.stdout + sent.stderr)
        self.assertEqual(list(spool.glob("*.spool")), [], sent.stdout + sent.stderr)
        self.check_run(expected)

    def test_their_stores_are_opened(self):
        self.each(self.check_store)

    def check_store(self, folder: pathlib.Path, expected: dict) -> None:
        with tarfile.open(folder / "data.tar.xz") as archive:
            archive.extractall(self.folder)
        self.start_daemon()
        found = {violation["id"] for violation in self.check_run(expected)}
        self.assertLessEqual(set(expected["violations"]), found)


if __name__ == "__main__":
    unittest.main()
