"""Silent errors are caught while they train; healthy variants are not."""

import operator
import random
import re
import subprocess
import time
import unittest

import harness

REFERENCES = (
    ("ref-cnn", "cnn_ddp.py", ("--steps", "12")),
    ("ref-mlp", "mlp_ddp.py", ("--steps", "20")),
)


class Detection(harness.SharedDaemonCase):
    def prepare(self):
        for run, script, arguments in REFERENCES:
            done = self.monitored(
                harness.PIPELINES / script,
                *arguments,
                options=("--run", run, "--collect"),
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.daemon.run_ended(run)
        learned = self.daemon.ctl(
            "infer", "--from", "ref-cnn,ref-mlp", "--set", "rules"
        )
        self.assertGreater(learned["invariants"], 0)

    def check(self, run, script, *arguments):
        done = self.monitored(
            script, *arguments, options=("--run", run, "--check", "rules")
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = self.daemon.run_ended(run)
        violations = self.daemon.ctl("violations", "list", "--run", run)
        return done, shown, violations

    def assert_drift_caught(self, violations, fault_step):
        consistent = [v for v in violations if v["relation"] == "Consistent"]
        self.assertTrue(consistent, violations)
        self.assertEqual(min(v["first_step"] for v in consistent), fault_step)
        for violation in consistent:
            self.assertEqual(violation["ranks"], [0, 1])
            self.assertTrue(violation["variables"])
        sites = {site for v in consistent for site in v["sites"]}
        self.assertTrue(any("drift_ddp.py:" in site for site in sites), sites)
        shown = self.daemon.ctl("violations", "show", consistent[0]["id"])
        self.assertTrue(
            any("DistributedDataParallel" in line for line in shown["evidence"]),
            shown["evidence"],
        )

    def assert_drift_follows_from_the_bypass(self, run, violations):
        listed = ("violations", "list", "--run", run, "--by-incident")
        (incident,) = self.daemon.ctl(*listed)
        self.assertIn("bypasses DistributedDataParallel", incident["headline"])
        follows = {v["id"]: v for v in incident["follows"]}
        consistent = {v["id"] for v in violations if v["relation"] == "Consistent"}
        self.assertLessEqual(consistent, set(follows), incident)
        gradients = [v for v in follows.values() if "gradients differ" in v["headline"]]
        self.assertTrue(gradients, follows)
        # The bypass, or the parts that it calls past the wrapper.
        causes = {incident["id"]}
        causes |= {v["id"] for v in follows.values() if v["cause"] in causes}
        for violation in gradients:
            self.assertIn(violation["cause"], causes)

    def assert_stored_check_agrees(self, run, shown, violations):
        """A check of the stored run says what the live one said."""
        again = self.daemon.ctl("check", "--run", run, "--set", "builtin,rules")
        self.assertEqual(again["coverage"], shown["check"])
        key = operator.itemgetter("id", "first_step", "last_step", "count", "ranks")
        self.assertEqual(
            sorted(map(key, again["violations"])), sorted(map(key, violations))
        )
        violated = [v for v in again["verdicts"] if v["verdict"] == "violated"]
        self.assertEqual(len(violated), shown["check"]["violated"])
        self.assertEqual(len(again["verdicts"]), shown["check"]["total"])

    def assert_frozen_caught(self, violations):
        self.assertTrue(violations)
        first = min(v["first_step"] for v in violations)
        self.assertEqual(first, 0)
        self.assertTrue(
            any(
                v["relation"] == "EventContain"
                and any(api.endswith(".step") for api in v["apis"])
                for v in violations
            ),
            violations,
        )

    def test_healthy_run_of_another_model_raises_nothing(self):
        done, shown, violations = self.check(
            "healthy", harness.PIPELINES / "healthy_resmlp_ddp.py", "--steps", "15"
        )
        self.assert_stored_check_agrees("healthy", shown, violations)
        self.assertEqual(violations, [])
        self.assertGreater(shown["check"]["decided"], 0)
        self.assertNotIn("VIOLATION", done.stderr)

    def test_healthy_single_process_runs_raise_nothing(self):
        programs = [(harness.SCRIPTS / "single.py", "--steps", "15")]
        for name in ("accumulation", "closure", "gan", "tied_lm"):
            programs.append((harness.PIPELINES / f"{name}.py",))
        for script, *arguments in programs:
            with self.subTest(script=script.name):
                _, shown, violations = self.check(script.stem, script, *arguments)
                self.assertEqual(violations, [])
                self.assertGreater(shown["check"]["decided"], 3)

    def test_bypassed_wrapper_and_inverted_filter_by_a_seed(self):
        draw = random.Random(harness.seed(1))
        for number in range(2):
            optimizer = draw.choice(["sgd", "momentum", "adam", "adamw", "rmsprop"])
            fault_step = draw.randint(0, 6)
            varied = (
                f"--model-seed={draw.randrange(1000)}",
                f"--optimizer={optimizer}",
                f"--name-prefix={draw.choice(['block', 'stage', 'net', 'x'])}",
                "--steps=10",
            )
            drift = harness.SCRIPTS / "drift_ddp.py"
            frozen = harness.SCRIPTS / "frozen_head_ddp.py"
            with self.subTest(fault="drift", varied=varied, fault_step=fault_step):
                run = f"drift-{number}"
                _, shown, violations = self.check(
                    run, drift, *varied, f"--fault-step={fault_step}"
                )
                self.assert_drift_caught(violations, fault_step)
                self.assert_drift_follows_from_the_bypass(run, violations)
                self.assert_stored_check_agrees(run, shown, violations)
            with self.subTest(fault="none (drift)", varied=varied):
                _, _, violations = self.check(
                    f"drift-ok-{number}", drift, *varied, "--healthy"
                )
                self.assertEqual(violations, [])
            with self.subTest(fault="frozen", varied=varied):
                _, _, violations = self.check(f"frozen-{number}", frozen, *varied)
                self.assert_frozen_caught(violations)
            with self.subTest(fault="none (frozen)", varied=varied):
                _, _, violations = self.check(
                    f"frozen-ok-{number}", frozen, *varied, "--healthy"
                )
                self.assertEqual(violations, [])

    def test_what_ranks_kept_equal_without_a_wrapper(self):
        script = harness.SCRIPTS / "tensor_parallel.py"
        done = self.monitored(script, options=("--run", "ref-tp", "--collect"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.daemon.run_ended("ref-tp")
        self.daemon.ctl("infer", "--from", "ref-tp", "--set", "tp")
        for run, arguments in (("tp-ok", ()), ("tp", ("--fault-step", "4"))):
            done = self.monitored(
                script,
                *arguments,
                options=("--run", run, "--check", "tp", "--no-builtin"),
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            shown = self.daemon.run_ended(run)
            found = self.daemon.ctl("violations", "list", "--run", run)
            if not arguments:
                self.assertEqual(found, [])
                self.assertGreater(shown["check"]["decided"], 8)
                continue
            self.assertEqual({v["first_step"] for v in found}, {4})
            told = {name for v in found for name in v["variables"]}
            self.assertIn("Sequential.0.norm.weight", told)
            self.assertFalse([name for name in told if name.endswith((".up", ".down"))])

    def test_watch_and_run_tell_while_it_trains(self):
        """The violation is out within 1 s; ten times that fails."""
        training = self.monitored_start(
            harness.SCRIPTS / "drift_ddp.py",
            "--fault-step=3",
            "--steps=200",
            "--sleep=0.1",
            "--stamp-fault",
            options=("--run", "d", "--check", "rules"),
        )
        watch = subprocess.Popen(
            [
                str(harness.DIST / "traincheckctl"),
                "--server",
                self.daemon.address,
                "-o",
                "json",
                "violations",
                "watch",
                "--run",
                "d",
                "--wait",
                "--all",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(watch.stdout.close)
        self.addCleanup(watch.wait)
        self.addCleanup(watch.kill)
        stamp = None
        for line in training.stdout:
            found = re.search(r"fault shown at ([0-9.]+)", line)
            if found:
                stamp = float(found.group(1))
                break
        self.assertIsNotNone(stamp)
        line = next((l for l in watch.stdout if '"Consistent"' in l), "")
        delay_s = time.time() - stamp
        self.assertTrue(line, "the watch ended without a Consistent violation")
        self.assertIsNone(training.poll(), "it was told after the end only")
        print(f"violation after {delay_s:.3f} s")
        self.assertLess(delay_s, 10)
        told = next((l for l in training.stderr if "VIOLATION" in l), "")
        self.assertIsNone(training.poll())
        self.assertRegex(told, r"VIOLATION Since step \d+ .*\(ranks? [01]")


if __name__ == "__main__":
    unittest.main()
