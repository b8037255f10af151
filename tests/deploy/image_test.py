"""The container image: what its Containerfile copies, runs and starts, in a root of
its own, and the main job against the daemon that is then there."""

import pathlib
import sys
import unittest

import clean_root
import harness

IMAGE = pathlib.Path("deploy/container").resolve()


class Image(harness.TrainingCase):
    def test_what_it_starts_serves_who_has_a_token(self):
        if reason := clean_root.why_no_other_users(self.folder):
            self.skipTest(reason)
        parts = clean_root.run(
            self.folder,
            "inside_image_root.sh",
            [
                *IMAGE.iterdir(),
                clean_root.HERE / "image.py",
                clean_root.HERE / "main_job.sh",
                harness.SCRIPTS / "built_in.py",
            ],
            [
                *(sys.executable, "Containerfile", "image.py", "main_job.sh"),
                *("built_in.py", "left_in_evaluation"),
            ],
        )
        self.assertIn("/var/lib/traincheckd UNKNOWN 700", parts["built"])
        self.assertIn("prepare_pod.sh root 755", parts["built"])
        self.assertIn("7471", parts["started"])

        self.assertIn("wants a token", parts["without a token"])
        self.assertIn("code 3", parts["without a token"])

        job = parts["job"]
        self.assertIn("VIOLATION", job)
        self.assertIn('"invariant_id"', job)
        self.assertTrue(job.endswith("code 10\n"), job)
        self.assertIn("stopped", parts["ended"])
        # Alice's run is not bob's.
        self.assertTrue(parts["other hosts"].endswith("\n[]\n"), parts["other hosts"])


if __name__ == "__main__":
    unittest.main()
