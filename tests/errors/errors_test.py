"""Silent errors that others met, in programs of ordinary kind.

Rules are learned from healthy programs that share nothing with these. Each
error is found within one step of its first effect; the fixed variant, which
differs by the error alone, raises nothing, nor does a healthy program by rules
learned from the others.
"""

import unittest

import harness
from references import REFERENCES

ERRORS = harness.pathlib.Path("tests/errors").resolve()

# script -> relation that finds it, first step with an effect, what the rule
# says (a part of its text)
FOUND = {
    "so_60335387": ("EventContain", 1, "cleared"),
    "ptf_84911": ("EventContain", 0, "holds"),
    "pt_115607": ("EventContain", 0, "changes"),
    "pt_104336": ("Consistent", 0, "replicas"),
    "lt_725": ("APIOutput", 0, "torch.autocast"),
    "tf_33844": ("APIArg", 2, "drops in evaluation mode is 0.0"),
    "tf_29903": ("SavedEqualsLive", 3, "equal to the model"),
    "so_67180955": ("APIArg", 0, "numpy's random generator"),
}


class Errors(harness.SharedDaemonCase):
    def prepare(self):
        for name, arguments in REFERENCES.items():
            script = harness.PIPELINES / f"{name}.py"
            options = ("--run", name, "--collect", "--full")
            done = self.monitored(script, *arguments, options=options)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.daemon.run_ended(name)

    def learn(self, name: str, runs) -> None:
        learned = self.daemon.ctl("infer", "--from", ",".join(runs), "--set", name)
        self.assertGreater(learned["invariants"], 0)

    def check(self, run: str, rules: str, script, *arguments: str) -> tuple:
        """(violations, coverage) of a training that is checked while it runs."""
        options = ("--run", run, "--check", rules)
        done = self.monitored(script, *arguments, options=options)
        self.assertEqual(done.returncode, 0, done.stderr)
        check = self.daemon.run_ended(run)["check"]
        return self.daemon.ctl("violations", "list", "--run", run), check

    def assert_silent(self, violations: list) -> None:
        told = [
            (v["first_step"], v["text"], v["apis"])
            for v in violations
            if v["grade"] == "alert"
        ]
        self.assertEqual(told, [])

    def test_errors_are_found_and_fixed_variants_raise_nothing(self):
        self.learn("all", REFERENCES)
        for name, (relation, step, text) in FOUND.items():
            script = ERRORS / f"{name}.py"
            with self.subTest(error=name):
                violations, _ = self.check(name, "all", script)
                fit = [
                    v["first_step"]
                    for v in violations
                    if v["relation"] == relation and text in v["text"]
                ]
                self.assertTrue(fit, violations)
                rules = sorted({v["relation"] for v in violations})
                print(
                    f"{name}: step {min(fit)}, {len(violations)} violations "
                    f"({', '.join(rules)})"
                )
                self.assertLessEqual(min(fit), step + 1)
                self.assertEqual(len({v["incident"] for v in violations}), 1)
                self.assertGreaterEqual(
                    min(v["first_step"] for v in violations), step, violations
                )
            with self.subTest(fixed=name):
                violations, check = self.check(
                    f"{name}-fixed", "all", script, "--fixed"
                )
                self.assert_silent(violations)
                self.assertGreater(check["decided"], 3)

    def test_healthy_programs_raise_nothing_by_the_rules_of_the_others(self):
        for name in REFERENCES:
            with self.subTest(program=name):
                self.learn(f"not-{name}", [run for run in REFERENCES if run != name])
                found = self.daemon.ctl("check", "--run", name, "--set", f"not-{name}")
                self.assert_silent(found["violations"])
                self.assertGreater(found["coverage"]["decided"], 3)
                print(f"{name}: {found['coverage']['decided']} rules, none violated")


if __name__ == "__main__":
    unittest.main()
