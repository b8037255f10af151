"""A daemon that zooms in on an incident: what it is about is recorded in full for some
steps, by itself no longer, and says more than the violation did."""

import unittest

import harness

SCRIPT = harness.SCRIPTS / "zoom.py"
WEIGHT = "Net.fc.weight"
STEPS = 6


class Zoom(harness.TrainingCase):
    def setUp(self):
        super().setUp()
        self.daemon_options = ("--zoom-steps", str(STEPS))
        self.start_daemon()

    def train(self, run: str, *arguments: str) -> str:
        done = self.monitored(
            SCRIPT, *arguments, options=("--run", run), TRAINCHECK_BUDGET="off"
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.daemon.run_ended(run)
        return done.stderr

    def versions(self, run: str) -> list:
        return self.daemon.ctl("runs", "plan", run)["versions"]

    def lead(self, run: str) -> dict:
        [lead] = [
            row
            for row in self.daemon.ctl("violations", "list", "--run", run)
            if row["id"] == row["incident"] and row["incident_grade"] == "alert"
        ]
        return self.daemon.ctl("violations", "show", lead["id"])

    def test_the_incident_says_which_rows_of_which_rank_differ(self):
        self.train("drift")
        zoom = self.lead("drift")["zoom"]
        self.assertEqual([rank["rank"] for rank in zoom["ranks"]], [0, 1])
        for rank in zoom["ranks"]:
            self.assertEqual(rank["steps"], STEPS, zoom)
            self.assertTrue(rank["over"], zoom)
            self.assertIsNone(rank["missing"], zoom)
        seen = {row["what"]: row for row in zoom["observations"]}
        after = seen[f"{WEIGHT} after the optimizer's step"]
        self.assertEqual(after["ranks"], [0, 1])
        self.assertEqual(after["last_step"] - after["first_step"], STEPS - 1)
        self.assertIn("rank 0 and rank 1 differ since step", after["seen"])
        self.assertIn("in 2 of 8 rows: 3, 5", after["seen"])
        self.assertRegex(after["seen"], r"norm \d.*largest magnitude .*, all finite")
        gradient = seen[f"the gradient of {WEIGHT} before the optimizer's step"]
        self.assertIn("equal on ranks 0, 1", gradient["seen"])
        # The plan before it, and the one that zooms once.
        origins = [version["origin"] for version in self.versions("drift")]
        self.assertEqual(len(origins), 2, origins)
        self.assertIn("zoom on incident ", origins[1])
        # The report is read from the store: a restart changes nothing.
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(self.lead("drift")["zoom"], zoom)

    def test_without_an_incident_nothing_is_recorded_more(self):
        self.train("healthy", "--healthy", "--steps", "40")
        self.assertEqual(len(self.versions("healthy")), 1)


class WithoutTheOption(harness.TrainingCase):
    def test_no_zoom_is_made(self):
        self.start_daemon()
        done = self.monitored(
            SCRIPT, "--steps", "40", options=("--run", "r"), TRAINCHECK_BUDGET="off"
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.daemon.run_ended("r")
        alerts = self.daemon.ctl("violations", "list", "--run", "r")
        self.assertTrue(alerts)
        shown = self.daemon.ctl("violations", "show", alerts[0]["id"])
        self.assertIsNone(shown["zoom"])


if __name__ == "__main__":
    unittest.main()
