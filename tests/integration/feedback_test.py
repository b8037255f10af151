"""What a person says back of a real training: marks, silences, reviews, and the
command that the daemon starts for alerts."""

import subprocess
import unittest

import harness

BROKEN = harness.SCRIPTS / "built_in.py"
GATE = ("--fail-on-violation",)


class Feedback(harness.TrainingCase):
    def setUp(self):
        super().setUp()
        self.called = self.folder / "called"
        self.daemon_options = (
            "--on-alert",
            f'echo "$TRAINCHECK_ALERT_RUN: $TRAINCHECK_ALERT_HEADLINE '
            f'[$TRAINCHECK_ALERT_SITE]" >> {self.called}',
        )
        self.start_daemon()

    def train(self, run: str, *options: str, code: int = 0):
        """What `run` said of a training whose loss broadcasts."""
        done = self.monitored(
            BROKEN,
            "broadcast_loss",
            options=("--run", run, "--experiment", "losses", *options),
            TRAINCHECK_BUDGET="off",
        )
        self.assertEqual(done.returncode, code, done.stderr)
        self.daemon.run_ended(run)
        return done.stderr

    def text(self, *arguments: str, code: int = 0) -> str:
        """traincheckctl for people; stdout, and behind it stderr."""
        done = subprocess.run(
            [str(harness.DIST / "traincheckctl"), "--server", self.daemon.address]
            + list(arguments),
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout + done.stderr

    def alerts(self, run: str) -> list:
        return self.daemon.ctl("violations", "list", "--run", run)

    def lines(self) -> list:
        return self.called.read_text().splitlines() if self.called.exists() else []

    def test_a_silence_opens_the_gate_and_a_mark_is_reviewed(self):
        said = self.train("loud", *GATE, code=10)
        self.assertIn("VIOLATION", said)
        [lead] = self.alerts("loud")
        rule = lead["invariant_id"]
        # The line that says why it is shown says how to have it shown no more.
        [why] = [line for line in said.splitlines() if "shown as:" in line]
        self.assertIn(f"silences add --rule {rule} --comment WHY mutes it", why)
        harness.wait_until(lambda: len(self.lines()) == 1, "the command for the alert")
        self.assertIn("loud: Since step ", self.lines()[0])
        self.assertIn("built_in.py:", self.lines()[0])

        # `run --on-alert` of a training whose alert is silenced starts nothing.
        own = self.folder / "own"
        silence = self.daemon.ctl(
            *("silences", "add", "--rule", rule, "--experiment", "losses"),
            *("--until", "1d", "--comment", "the head is meant so"),
        )
        said = self.train("quiet", *GATE, "--on-alert", f"touch {own}")
        self.assertNotIn("VIOLATION", said)
        self.assertIn("no incident", said)
        self.assertIn("1 violation is silenced: traincheckctl --server", said)
        self.assertIn("violations list --all --run quiet shows it", said)
        self.assertFalse(own.exists())
        self.assertEqual(self.alerts("quiet"), [])
        [covered] = self.daemon.ctl("violations", "list", "--run", "quiet", "--all")
        self.assertEqual(
            covered["silenced_by"], f"{silence['id']}: the head is meant so"
        )
        shown = self.text("violations", "show", covered["id"])
        self.assertIn(", silenced\n", shown)
        self.assertIn(f"silences remove {silence['id']} ends it", shown)
        # Neither a check of the stored run nor an older run alerts.
        self.text("check", "--run", "loud", *GATE)
        self.assertEqual(self.alerts("loud"), [])
        self.assertEqual(self.text("violations", "watch", "--run", "loud", "--all"), "")

        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(self.alerts("quiet"), [])
        [listed] = self.daemon.ctl("silences", "list")
        self.assertEqual((listed["covered"], listed["ended"]), (2, False))
        self.daemon.ctl("silences", "remove", silence["id"][:4])
        self.train("again", *GATE, code=10)
        self.assertEqual(len(self.alerts("quiet")), 1)
        harness.wait_until(lambda: len(self.lines()) == 2, "the command for the third")
        self.assertIn("again: ", self.lines()[1])

        self.reviews(rule)

    def reviews(self, rule: str):
        """Marks, over a kill, and what `sets review` makes of them."""
        [lead] = self.alerts("again")
        said = self.text(
            *("violations", "mark", lead["id"][:6], "false-alarm"),
            *("--comment", "meant so"),
        )
        self.assertEqual(said, f"violation {lead['id']} is marked false-alarm\n")
        self.daemon.kill()
        self.daemon.start()
        [marked] = self.alerts("again")
        self.assertEqual(
            (marked["mark"], marked["mark_comment"]), ("false-alarm", "meant so")
        )
        shown = self.text("violations", "show", lead["id"])
        self.assertRegex(shown, r"marked: false-alarm by \S+@\S*, 20\S+: meant so\n")
        review = self.daemon.ctl("sets", "review", "builtin")
        self.assertEqual(review["healthy_runs"], 1)
        [record] = review["rules"]
        self.assertEqual(
            [record[key] for key in ("rule", "decided_runs", "violated_runs")],
            [rule, 1, 1],
        )
        command = f"traincheckctl sets disable {rule} --reason "
        self.assertTrue(record["command"].startswith(command), record)
        self.assertIn(command, self.text("sets", "review"))
        self.assertEqual(self.daemon.ctl("sets", "disabled"), [])
        # What it proposes can be done as it stands.
        path = f"PATH={harness.DIST}:/usr/bin:/bin"
        subprocess.run(
            ["env", path, f"TRAINCHECK_SERVER={self.daemon.address}", "sh", "-c"]
            + [record["command"]],
            check=True,
            capture_output=True,
        )
        review = self.daemon.ctl("sets", "review", "builtin")
        self.assertEqual((review["rules"], review["disabled"]), ([], 1))
        self.daemon.ctl("violations", "mark", lead["id"], "none")
        self.assertIsNone(self.alerts("again")[0]["mark"])

    def test_what_cannot_be_silenced_is_refused_before_or_by_the_daemon(self):
        def refused(*options: str, code: int) -> str:
            return self.text("silences", "add", *options, code=code)

        said = refused("--relation", "Consistant", "--comment", "x", code=3)
        self.assertIn("the nearest is Consistent", said)
        said = refused("--comment", "x", code=3)
        self.assertIn("would cover everything", said)
        said = refused(
            *("--experiment", "e", "--until", "2020-01-01", "--comment", "x"), code=2
        )
        self.assertIn('2020-01-01" is in the past', said)
        self.assertIn("--comment is required", refused("--experiment", "e", code=2))
        status = self.text("status")
        self.assertIn("on alert: the command was started for 0 incidents", status)
        self.assertIsNotNone(self.daemon.ctl("status")["server"]["on_alert"])


if __name__ == "__main__":
    unittest.main()
