"""Records what this version sends and stores, for the tests of the versions after it.

    tests/upgrade/record.sh FOLDER

Two ranks drift apart and find no daemon, so that their relays leave all records in
spool files. FOLDER gets these, the data directory of a daemon of this version that has
them, and what it said of them.
"""

import json
import os
import pathlib
import shutil
import sys
import tarfile
import unittest

import harness

FOLDER = pathlib.Path(os.environ["TRAINCHECK_RECORD_TO"]).resolve()
NOBODY = "127.0.0.1:9"


class Record(harness.TrainingCase):
    def test_record(self):
        job = self.folder / "job"
        job.mkdir()
        for script in ("drift_ddp.py", "two_ranks.py"):
            shutil.copy(harness.SCRIPTS / script, job)
        done = harness.run_captured(
            [sys.executable, job / "drift_ddp.py", "--steps", "12"],
            self.environment(
                LD_PRELOAD=str(harness.DIST / "libtraincheck_agent.so"),
                TRAINCHECK_SERVER=NOBODY,
                TRAINCHECK_RUN="job",
                TRAINCHECK_CHECK="builtin",
                TRAINCHECK_BUDGET="off",
            ),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        spool = self.folder / "spool"
        harness.wait_until(lambda: len(list(spool.glob("*.spool"))) == 2, "spool files")
        harness.wait_until(lambda: not _is_open(spool), "the end of the relays")
        FOLDER.mkdir(parents=True, exist_ok=True)
        for number, file in enumerate(sorted(spool.glob("*.spool"))):
            shutil.copy(file, FOLDER / f"{number}.spool")
        self.start_daemon()
        sent = harness.run_captured(
            [
                *(harness.DIST / "traincheckctl", "--server", self.daemon.address),
                *("spool", "send", spool),
            ],
            self.environment(),
        )
        self.assertEqual(sent.returncode, 0, sent.stderr)
        self.write_expected(self.daemon.run_ended("job"))
        self.assertEqual(self.daemon.stop(), 0)
        with tarfile.open(FOLDER / "data.tar.xz", "w:xz") as archive:
            archive.add(self.daemon.data_dir, "data", filter=_without_logs)

    def write_expected(self, run: dict) -> None:
        self.assertEqual((run["lost"], run["dropped"]), (0, 0))
        alerts = [
            violation
            for violation in self.daemon.ctl("violations", "list")
            if violation["grade"] == "alert"
        ]
        self.assertTrue(alerts)
        expected = {
            "records": run["records"],
            "last_step": run["last_step"],
            "violations": sorted(v["id"] for v in alerts),
            "rules": sorted(v["invariant_id"] for v in alerts),
        }
        (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def _is_open(folder: pathlib.Path) -> bool:
    """Has somebody a file below it open?"""
    for link in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = os.readlink(link)
        except OSError:
            continue  # closed since
        if target.startswith(f"{folder}/"):
            return True
    return False


def _without_logs(member: tarfile.TarInfo):
    name = pathlib.PurePath(member.name).name
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if name.startswith("LOG") or name.endswith("token") else member


if __name__ == "__main__":
    unittest.main()
