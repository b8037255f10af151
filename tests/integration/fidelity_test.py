"""torch's public API is the same with the agent in full collection.

Two processes make the same calls, one of them monitored, and write down what
came: values to the bit, exceptions with their messages, signatures, and what
programs do with functions besides calling them. See scripts/public_api.py.
"""

import json
import subprocess
import sys
import unittest

import harness

SCRIPT = harness.SCRIPTS / "public_api.py"


class Fidelity(harness.TrainingCase):
    quick_programs = False

    @classmethod
    def setUpClass(cls):
        cls.facts = None

    def write(self, name, **variables):
        path = self.folder / f"{name}.json"
        done = subprocess.run(
            [sys.executable, str(SCRIPT), str(path)],
            # Else the last bits of its results depend on where memory lies.
            env=self.environment(MKL_CBWR="COMPATIBLE", **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=10 * harness.PATIENCE_S,
        )
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.assertEqual(done.stdout, "")
        return json.loads(path.read_text())

    def both(self):
        """(without, with) the agent; made once for all tests."""
        if self.facts is None:
            plain = self.write("plain")
            full = self.write(
                "full",
                LD_PRELOAD=str(harness.DIST / "libtraincheck_agent.so"),
                TRAINCHECK_SERVER="127.0.0.1:9",
                TRAINCHECK_COLLECT="full",
                TRAINCHECK_EXIT_WAIT="1",
            )
            type(self).facts = plain, full
        return self.facts

    def assert_same(self, kind, at_least):
        plain, full = self.both()
        self.assertFalse(plain["wrapped"])
        self.assertTrue(full["wrapped"], "the agent was not there")
        self.assertEqual(list(plain[kind]), list(full[kind]))
        self.assertGreaterEqual(len(plain[kind]), at_least)
        different = {
            name: (fact, full[kind][name])
            for name, fact in plain[kind].items()
            if fact != full[kind][name]
        }
        self.assertEqual(different, {})

    def test_results_and_exceptions(self):
        self.assert_same("calls", 10000)
        # Neither nothing but results nor nothing but errors.
        results = [not isinstance(f, str) for f in self.both()[0]["calls"].values()]
        self.assertGreater(sum(results), 1500)
        self.assertGreater(len(results) - sum(results), 2000)

    def test_signatures_and_names(self):
        self.assert_same("faces", 1000)

    def test_uses(self):
        self.assert_same("uses", 20)
        failed = {
            name: fact
            for name, fact in self.both()[0]["uses"].items()
            if isinstance(fact, str)
        }
        self.assertEqual(failed, {})


if __name__ == "__main__":
    unittest.main()
