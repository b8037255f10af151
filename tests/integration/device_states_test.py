"""Trainings whose state a device digests, late, get the verdicts of others.

The driver is one for tests, which takes this process's memory for a device's.
"""

import collections
import json
import pathlib
import unittest

import harness

PAIRS = pathlib.Path("tests/integration/rule_pairs.json").resolve()
DRIVER = pathlib.Path("agent/device/libcuda_for_testing.so").resolve()
# Results come so many calls of the driver late: some points.
LATE = {"LD_PRELOAD": str(DRIVER), "DRIVER_FOR_TESTING": "7"}


class DeviceStates(harness.SharedDaemonCase):
    def prepare(self):
        self.train("ref-cnn", harness.PIPELINES / "cnn_ddp.py", "--steps", "12")
        self.train("ref-mlp", harness.PIPELINES / "mlp_ddp.py", "--steps", "20")
        # What is learned where tensors are on a device is the same.
        self.train("late-cnn", harness.PIPELINES / "cnn_ddp.py", "--steps=12", **LATE)
        self.train("late-mlp", harness.PIPELINES / "mlp_ddp.py", "--steps=20", **LATE)
        for kind in ("ref", "late"):
            self.daemon.ctl(
                "infer", "--from", f"{kind}-cnn,{kind}-mlp", "--set", f"{kind}-rules"
            )

    def train(self, run, script, *arguments, **extra):
        done = self.monitored(
            script, *arguments, options=("--run", run, "--collect"), **extra
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("not read", done.stderr)
        self.daemon.run_ended(run)

    def found(self, run, script, *arguments, **extra):
        """Built-in rules that are violated where values come late."""
        done = self.monitored(
            harness.SCRIPTS / script,
            *arguments,
            options=("--run", run),
            TRAINCHECK_BUDGET="off",
            **LATE,
            **extra,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.daemon.run_ended(run)
        violations = self.daemon.ctl("violations", "list", "--run", run)
        return {violation["invariant_id"] for violation in violations}

    def verdicts(self, run, rules):
        """Rule -> (verdict, reason), and rule -> its violations."""
        check = self.daemon.ctl("check", "--run", run, "--set", rules)
        verdicts = {
            v["invariant_id"]: (v["verdict"], v["reason"] or "")
            for v in check["verdicts"]
        }
        violations = collections.defaultdict(list)
        for v in check["violations"]:
            told = v["first_step"], v["last_step"], v["count"], v["ranks"]
            violations[v["invariant_id"]].append((told, sorted(v["variables"])))
        return verdicts, {rule: sorted(told) for rule, told in violations.items()}

    def assert_same_verdicts(self, name, script, *arguments):
        self.train(name, script, *arguments)
        self.train(f"{name}-late", script, *arguments, **LATE)
        for rules in ("builtin", "ref-rules"):
            verdicts, violations = self.verdicts(name, rules)
            late_verdicts, late_violations = self.verdicts(f"{name}-late", rules)
            self.assertEqual(late_violations, violations)
            self.assertEqual(set(late_verdicts), set(verdicts))
            for rule, (verdict, reason) in late_verdicts.items():
                # What is not read on a device is unknown (docs/gpu.md).
                if verdict != verdicts[rule][0]:
                    self.assertEqual(verdict, "unknown", rule)
                    self.assertRegex(reason, "statistics|parameters are on a device")
        return violations

    def test_the_same_is_learned(self):
        learned, late = (
            {r["id"]: r["text"] for r in self.daemon.ctl("invariants", "list", rules)}
            for rules in ("ref-rules", "late-rules")
        )
        self.assertLessEqual(set(late), set(learned))
        for rule in set(learned) - set(late):
            self.assertIn("no NaN", learned[rule])
        self.assertGreater(len(late), 10)

    def test_drifting_replicas(self):
        script = harness.SCRIPTS / "drift_ddp.py"
        self.assertTrue(self.assert_same_verdicts("drift", script, "--steps=10"))

    def test_an_optimizer_that_holds_what_is_frozen(self):
        script = harness.SCRIPTS / "frozen_head_ddp.py"
        self.assertTrue(self.assert_same_verdicts("frozen", script, "--steps=10"))

    def test_values_that_come_late_show_the_same_mistakes(self):
        script = "built_in_sequences.py"
        expected = {
            rule
            for rule, pair in json.loads(PAIRS.read_text()).items()
            if any(program.startswith(script) for program in pair["broken_by"])
        }
        self.assertGreater(len(expected), 20)
        self.assertEqual(self.found("late", script) & expected, expected)
        self.assertFalse(self.found("late-right", script, "--right") & expected)
        # What is asked for comes from the device.
        unread = self.found("unread", script, TRAINCHECK_GPU="0") & expected
        self.assertLess(len(unread), len(expected) / 2)

    def test_replays_of_graphs(self):
        script = "graphs.py"
        for kind in ("whole", "backward", "scaler", "two"):
            with self.subTest(kind):
                self.assertEqual(self.found(f"graphs-{kind}", script, kind), set())
        # A replay that is left out gives no gradients.
        self.found("graphs-left-out", script, "backward", "--left-out")
        [said] = self.daemon.ctl("violations", "list", "--run", "graphs-left-out")
        self.assertIn("a backward has run since its last step", said["text"])

    def test_a_healthy_training(self):
        script = harness.SCRIPTS / "single.py"
        self.assertFalse(self.assert_same_verdicts("single", script, "--steps=15"))


if __name__ == "__main__":
    unittest.main()
