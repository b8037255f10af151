"""The Debian package: its files, and the main job in a root where it is installed."""

import os
import pathlib
import subprocess
import sys
import unittest

import clean_root
import harness

sys.path.append("deploy")
import package_files  # noqa: E402


class Installed(harness.TrainingCase):
    def test_install_run_switch_off_remove(self):
        if reason := clean_root.why_not(self.folder):
            self.skipTest(f"no root of its own can be made: {reason}")
        parts = clean_root.run(
            self.folder,
            "inside_deb_root.sh",
            [clean_root.HERE / "main_job.sh", harness.SCRIPTS / "built_in.py"],
            [sys.executable, "main_job.sh", "built_in.py", "left_in_evaluation"],
        )
        self.assertIn("/dist-packages/traincheckd.py", parts["installed"])

        job = parts["job"]
        self.assertIn("VIOLATION", job)
        self.assertIn('"invariant_id"', job)
        self.assertTrue(job.endswith("code 10\n"), job)

        off = parts["switched off"]
        self.assertNotIn("VIOLATION", off)
        self.assertIn("TRAINCHECK_DISABLE is 1 in /etc/traincheck.yaml", off)

        self.assertIn("/tmp/site.sock", parts["named"])
        self.assertIn("code 4", parts["named"])

        wrong = "/etc/traincheck.yaml, line 1: unknown setting disabel"
        before, trained = parts["mistaken"].split("code 2\n")
        self.assertIn(wrong, before)
        self.assertIn("traincheck: recording is off: " + wrong, trained)
        self.assertIn("\ntrained\n", "\n" + trained)

        self.assertIn("OK", parts["unit"])
        self.assertIn("127.0.0.1:7471", parts["configuration"])
        self.assertNotIn("left:", parts["purged"])


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(os.environ["TEST_TMPDIR"]) / "root"
        subprocess.run(
            ["dpkg-deb", "--extract", str(clean_root.DEB), str(cls.root)], check=True
        )

    def control(self, field: str) -> str:
        command = ["dpkg-deb", "--field", str(clean_root.DEB), field]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout.strip()

    def test_says_what_it_is(self):
        self.assertEqual(self.control("Package"), "traincheckd")
        self.assertIn(self.control("Version"), clean_root.DEB.name)

    def test_agent_asks_for_no_newer_libc_than_the_package_says(self):
        promised = self.control("Depends").split(">= ")[1].rstrip(")")
        for library in (self.root / "usr/lib/traincheckd").glob("*.so"):
            package_files.check_glibc(library, tuple(map(int, promised.split("."))))
            with self.assertRaisesRegex(ValueError, library.name):
                package_files.check_glibc(library, (2, 0))

    def test_same_files_give_the_same_bytes(self):
        """Whatever the time, the umask and the number of processors."""
        out = pathlib.Path(os.environ["TEST_TMPDIR"]) / "again" / clean_root.DEB.name
        out.parent.mkdir()
        glibc = self.control("Depends").split(">= ")[1].rstrip(")")
        command = [sys.executable, "deploy/deb/make_deb.py", "--out", str(out)]
        command += ["--glibc", glibc, "--version-header", "base/version.h"]
        command += ["--third-party", "../library_versions/THIRD_PARTY"]
        command += ["--documents", "README.md", "CHANGELOG.md"]
        command += [
            f"docs/{name}.md" for name in ("configuration", "deploy", "operations")
        ]
        command += ["--files", *map(str, harness.DIST.iterdir())]
        environment = {**os.environ, "TZ": "Asia/Tokyo"}
        processor = min(os.sched_getaffinity(0))
        subprocess.run(
            ["taskset", "--cpu-list", str(processor), *command],
            check=True,
            env=environment,
            umask=0o077,
        )
        self.assertEqual(out.read_bytes(), clean_root.DEB.read_bytes())

    def test_manuals_are_well_formed(self):
        pages = [*self.root.glob("usr/share/man/man*/*.gz")]
        self.assertGreater(len(pages), 10)
        for page in pages:
            roff = subprocess.run(
                ["zcat", str(page)], stdout=subprocess.PIPE, check=True
            )
            done = subprocess.run(
                ["groff", "-man", "-ww", "-z", "-Tutf8"],
                input=roff.stdout,
                stderr=subprocess.PIPE,
            )
            self.assertEqual(done.stderr, b"", page)


if __name__ == "__main__":
    unittest.main()
