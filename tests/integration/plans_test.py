"""Capture plans: what a checked run records, from its first call and later."""

import json
import unittest

import harness

SCRIPT = harness.SCRIPTS / "single.py"


class Plans(harness.TrainingCase):
    def setUp(self):
        super().setUp()
        self.daemon = self.start_daemon()

    def train(self, run, *options, steps=20, **extra):
        done = self.monitored(
            SCRIPT,
            *("--steps", str(steps)),
            options=("--run", run, *options),
            **extra,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.daemon.run_ended(run)

    def learn(self):
        self.train("reference", "--collect")
        self.daemon.ctl("infer", "--from", "reference", "--set", "rules")

    def save_part(self, name, wanted):
        """A set of those rules of "rules" whose text has this part."""
        whole = self.daemon.ctl("invariants", "export", "--set", "rules", "-")
        whole["name"] = name
        whole["invariants"] = [
            rule for rule in whole["invariants"] if wanted in rule["text"]
        ]
        self.assertTrue(whole["invariants"], wanted)
        part = self.folder / f"{name}.json"
        part.write_text(json.dumps(whole))
        self.daemon.ctl("invariants", "import", "--set", name, str(part))

    def plan_files(self):
        return list((self.folder / "state/traincheck/plans").glob("*.json"))

    def test_under_the_plan_of_its_set_every_rule_is_decided(self):
        self.learn()
        everything = self.folder / "everything.json"
        # Enough from the first call on: the plan that the daemon sends may come late.
        everything.write_text('{"format": 1, "mode": "full"}')
        keys = ("decided", "total", "violated", "not_applied", "unknown")
        checks = []
        for run, options in (("planned", ()), ("all", ("--plan", str(everything)))):
            shown = self.train(run, "--no-builtin", "--check", "rules", *options)
            checks.append([shown["check"][key] for key in keys])
        self.assertEqual(checks[0], checks[1])
        self.assertGreater(checks[0][0], 0)
        self.assertEqual(checks[0][2], 0)
        # The file for the start was the plan that the daemon sends.
        (file,) = self.plan_files()
        self.assertEqual(
            json.loads(file.read_text()), self.daemon.ctl("sets", "plan", "rules")
        )

    def test_the_first_calls_are_under_the_plan(self):
        self.learn()
        self.save_part("few", "MSELoss.forward is called once")
        plan = self.daemon.ctl("sets", "plan", "few")
        self.assertEqual(plan["state"], {})
        shown = self.train("planned", "--no-builtin", "--check", "few")
        self.assertEqual(shown["check"]["violated"], 0)
        self.assertGreater(shown["check"]["decided"], 0)
        # No state, also not of what was constructed before the first step.
        all_of_it = self.train("unplanned", "--no-builtin")
        self.assertLess(2 * shown["records"], all_of_it["records"])
        sent = self.daemon.ctl("runs", "plan", "planned")
        (version,) = sent["versions"]
        self.assertEqual(version["version"], 1)
        self.assertEqual(version["origin"], "set few version 1")
        self.assertEqual(sent["plan"], plan)

    def test_a_run_is_checked_against_several_sets(self):
        self.learn()
        self.save_part("losses", "MSELoss.forward is called once")
        self.save_part("steps", "Adam.step is called once")
        shown = self.train("both", "--no-builtin", "--check", "losses,steps@1")
        self.assertEqual((shown["check"]["decided"], shown["check"]["total"]), (2, 2))
        (version,) = self.daemon.ctl("runs", "plan", "both")["versions"]
        self.assertEqual(version["origin"], "sets losses@1,steps@1")
        stored = self.daemon.ctl("check", "--run", "both", "--set", "losses,steps")
        self.assertEqual(stored["coverage"]["decided"], 2)
        refused = self.monitored(
            SCRIPT, options=("--run", "none", "--check", "losses,none")
        )
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn('the server has no set "none"', refused.stderr)

    def test_without_its_file_a_process_takes_the_plan_from_the_daemon(self):
        self.learn()
        nowhere = str(self.folder / "nowhere.json")
        # As on a node that does not see the folder of the one that started it;
        # of its own accord run starts nothing without the file.
        # Long enough for the plan to come on a busy machine.
        command = self.monitored_command(
            SCRIPT, ("--steps", "2000"), ("--run", "late", "--check", "rules")
        )
        at = command.index("--") + 1
        command[at:at] = ["env", f"TRAINCHECK_PLAN={nowhere}"]
        done = harness.run_captured(command, self.environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{nowhere} is not there", done.stderr)
        shown = self.daemon.run_ended("late")
        self.assertGreater(shown["check"]["decided"], 0)
        self.assertEqual(shown["check"]["violated"], 0)
        (rank,) = self.daemon.ctl("runs", "plan", "late")["ranks"]
        self.assertEqual(rank["version"], 1)

    def test_an_ended_run_takes_no_plan_and_a_bad_one_is_named(self):
        self.train("over", steps=3)
        good, bad = self.folder / "good.json", self.folder / "bad.json"
        good.write_text('{"format": 1}')
        bad.write_text('{"format": 1, "state": {"parameter.data": ["noon"]}}')
        for file, reason in ((good, "has ended"), (bad, '"noon" is not a state point')):
            with self.assertRaisesRegex(AssertionError, reason):
                self.daemon.ctl("runs", "plan", "over", "--file", str(file))

    def test_another_plan_holds_from_a_step_on_and_survives_the_daemon(self):
        off = self.folder / "less.json"
        off.write_text('{"format": 1, "state": {}}')
        training = self.monitored_start(
            SCRIPT, "--steps", "100000", options=("--run", "long", "--no-builtin")
        )

        def last_step():
            runs = {run["id"]: run for run in self.daemon.ctl("runs", "list")}
            return runs.get("long", {}).get("last_step") or 0

        harness.wait_until(lambda: last_step() > 5, "steps of the run")
        sent = self.daemon.ctl("runs", "plan", "long", "--file", str(off))
        from_step = sent["versions"][-1]["from_step"]
        self.daemon.kill()
        self.daemon.start()

        def rank():
            ranks = self.daemon.ctl("runs", "plan", "long")["ranks"]
            return next((row for row in ranks if row["version"] == 1), None)

        row = harness.wait_until(rank, "the plan to hold")
        self.assertGreaterEqual(row["after_step"] + 1, from_step)
        self.assertIsNone(training.poll())


if __name__ == "__main__":
    unittest.main()
