"""What people decide about rules: rules that are disabled on the server or silenced
by a repository's file, sets that are deployed for an experiment, sets that go."""

import pathlib
import subprocess
import sys
import unittest

import harness

BROKEN = harness.SCRIPTS / "built_in.py"
HEALTHY = harness.SCRIPTS / "single.py"


class RulePolicy(harness.SharedDaemonCase):
    def prepare(self):
        self.daemon.ctl(*self.learning("good"))

    def learning(self, run: str) -> tuple:
        done = self.monitored(
            HEALTHY, options=("--collect", "--run", run, "--experiment", "healthy")
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.daemon.run_ended(run)
        return ("infer", *harness.ONE_PROGRAM, "--from", run, "--set", "healthy-rules")

    def watch(self, run: str, script, *arguments: str, options=(), folder=None):
        """What `run` said, and the run as the server shows it."""
        done = subprocess.run(
            self.monitored_command(script, arguments, ("--run", run, *options)),
            capture_output=True,
            text=True,
            cwd=folder or self.folder,
            env=self.environment(TRAINCHECK_BUDGET="off"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr, self.daemon.run_ended(run)

    def violated(self, run: str) -> list:
        violations = self.daemon.ctl("violations", "list", "--run", run)
        return [violation["invariant_id"] for violation in violations]

    def refused(self, *command: str) -> str:
        done = subprocess.run(
            [
                str(harness.DIST / "traincheckctl"),
                *("--server", self.daemon.address, *command),
            ],
            capture_output=True,
            text=True,
            env=self.environment(),
        )
        self.assertNotEqual(done.returncode, 0, done.stdout)
        return done.stderr

    def test_a_disabled_rule_is_checked_nowhere_until_it_is_enabled(self):
        self.watch("before", BROKEN, "broadcast_loss")
        [rule] = self.violated("before")
        reason = "our losses are meant so"
        self.daemon.ctl("sets", "disable", rule, "--reason", reason)
        [listed] = self.daemon.ctl("sets", "disabled")
        self.assertEqual((listed["rule"], listed["reason"]), (rule, reason))
        self.assertIn("size", listed["text"])

        said, _ = self.watch("disabled", BROKEN, "broadcast_loss")
        self.assertEqual(self.violated("disabled"), [])
        self.assertIn("against builtin@1 without 1 rule: no incident", said)
        self.assertIn(
            f"rule {rule} is left out, disabled on the server: {reason}", said
        )
        # Nor is a stored run; the rule counts for nothing.
        checked = self.daemon.ctl("check", "--run", "before")
        self.assertEqual(checked["violations"], [])
        self.assertNotIn(rule, [v["invariant_id"] for v in checked["verdicts"]])

        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(len(self.daemon.ctl("sets", "disabled")), 1)
        self.daemon.ctl("sets", "enable", rule)
        self.watch("enabled", BROKEN, "broadcast_loss")
        self.assertEqual(self.violated("enabled"), [rule])
        # What was decided when a run began stays with it.
        self.assertEqual(self.violated("disabled"), [])

    def test_only_rules_that_are_there_are_disabled_and_enabled(self):
        self.assertIn(
            "no set has an invariant",
            self.refused("sets", "disable", "0123", "--reason", "x"),
        )
        self.assertIn("is not disabled", self.refused("sets", "enable", "0123"))

    def repository(self, name: str, text: str) -> pathlib.Path:
        folder = self.folder / name
        (folder / ".git").mkdir(parents=True)
        (folder / ".traincheck.yaml").write_text(text)
        (folder / "deep").mkdir()
        return folder / "deep"

    def test_a_repository_names_experiment_sets_and_silenced_rules(self):
        self.watch("loud", BROKEN, "broadcast_loss")
        [rule] = self.violated("loud")
        folder = self.repository(
            "repository",
            "experiment: ours\n"
            "check: healthy-rules\n"
            "silence:\n"
            f"  - rule: {rule}\n"
            "    reason: see the notebook\n"
            "  - rule: '0123'\n"
            "    reason: gone\n",
        )
        said, run = self.watch("quiet", BROKEN, "broadcast_loss", folder=folder)
        self.assertEqual(run["experiment"], "ours")
        self.assertTrue(run["check_set"].startswith("builtin@1,healthy-rules@1,-"), run)
        self.assertNotIn(rule, self.violated("quiet"))
        self.assertIn(
            f"rule {rule} is left out, silenced by .traincheck.yaml: see the notebook",
            said,
        )
        self.assertIn("silences rule 0123, and no set on the server has it", said)
        # What is typed wins.
        _, run = self.watch(
            *("typed", BROKEN, "broadcast_loss"),
            options=("--experiment", "typed", "--check", "builtin"),
            folder=folder,
        )
        self.assertEqual(run["experiment"], "typed")
        self.assertNotIn("healthy-rules", run["check_set"])
        self.assertNotIn(rule, self.violated("typed"))

    def test_preflight_leaves_out_what_the_repository_silences(self):
        self.watch("judged", BROKEN, "broadcast_loss")
        [rule] = self.violated("judged")
        folder = self.repository(
            "preflight", f"silence: [{{rule: {rule}, reason: meant}}]\n"
        )
        command = self.monitored_command(BROKEN, ["broadcast_loss"], ())
        command[command.index("run")] = "preflight"
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=folder, env=self.environment()
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(rule, done.stdout)
        self.assertIn("meant", done.stdout)

    def test_a_mistake_in_the_file_stops_before_the_training_starts(self):
        folder = self.repository("wrong", "experiment: a\nsilense: []\n")
        command = self.monitored_command(BROKEN, ["broadcast_loss"], ())
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=folder, env=self.environment()
        )
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(
            done.stderr, r"\.traincheck\.yaml, line 2: .*the nearest is silence"
        )
        self.assertEqual(done.stdout, "")

    def test_a_deployed_set_is_checked_without_being_asked_for(self):
        self.daemon.ctl(
            *("sets", "deploy", "healthy-rules@1", "--experiment", "healthy")
        )
        [deployed] = self.daemon.ctl("sets", "deployed")
        self.assertEqual(deployed["sets"], ["healthy-rules@1"])
        said, run = self.watch("deployed", HEALTHY, options=("--experiment", "healthy"))
        self.assertEqual(run["check_set"], "builtin@1,healthy-rules@1")
        self.assertGreater(run["check"]["decided"], 0)
        self.assertIn("against builtin@1,healthy-rules@1: no incident", said)
        # Also where nobody but the agent says which experiment it is.
        done = self.bare("bare", "healthy")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.daemon.run_ended("bare")["check_set"], "healthy-rules@1")
        _, other = self.watch("other", HEALTHY, options=("--experiment", "other"))
        self.assertEqual(other["check_set"], "builtin@1")
        done = self.monitored(
            HEALTHY,
            options=("--collect", "--run", "reference", "--experiment", "healthy"),
        )
        self.assertIsNone(self.daemon.run_ended("reference")["check_set"])

        self.assertIn(
            "is deployed for experiment healthy",
            self.refused("sets", "delete", "healthy-rules"),
        )
        self.daemon.ctl("sets", "withdraw", "--experiment", "healthy")
        self.assertEqual(self.daemon.ctl("sets", "deployed"), [])
        _, run = self.watch("withdrawn", HEALTHY, options=("--experiment", "healthy"))
        self.assertEqual(run["check_set"], "builtin@1")

    def bare(self, run: str, experiment: str):
        """A training that preloads the agent and asks for nothing."""
        return harness.run_captured(
            [sys.executable, str(HEALTHY)],
            self.environment(
                LD_PRELOAD=str(harness.DIST / "libtraincheck_agent.so"),
                TRAINCHECK_SERVER=self.daemon.address,
                TRAINCHECK_RUN=run,
                TRAINCHECK_EXPERIMENT=experiment,
            ),
        )

    def test_a_deleted_set_is_gone_and_its_runs_stay(self):
        self.daemon.ctl("infer", *harness.ONE_PROGRAM, "--from", "good", "--set", "old")
        self.daemon.ctl("infer", *harness.ONE_PROGRAM, "--from", "good", "--set", "old")
        self.watch("judged-by-old", HEALTHY, options=("--check", "old"))
        deleted = self.daemon.ctl("sets", "delete", "old@1")
        self.assertEqual(deleted, {"name": "old", "versions": [1]})
        deleted = self.daemon.ctl("sets", "delete", "old")
        self.assertEqual(deleted["versions"], [2])
        self.assertNotIn("old", [s["name"] for s in self.daemon.ctl("sets", "list")])
        self.assertIn("there is no set", self.refused("sets", "delete", "old"))
        self.assertIn("stay", self.refused("sets", "delete", "builtin"))
        shown = self.daemon.ctl("runs", "show", "judged-by-old")
        self.assertGreater(shown["check"]["decided"], 0)


if __name__ == "__main__":
    unittest.main()
