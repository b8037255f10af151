"""The agent's core loads into the pinned torch and the oldest that it takes.

The oldest is in an environment of its own, next to that of the tests, which
tools/torch_versions.sh makes. other_torch_versions_test, of the long tier, tries
all versions that are installed.
"""

import pathlib
import subprocess
import sys
import unittest

import harness

PROGRAM = """
import sys, torch
import torch.nn.functional as F
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.1))
optimizer = torch.optim.Adam(net.parameters())
for _ in range(3):
    optimizer.zero_grad()
    F.relu(net(torch.ones(2, 3))).add(1).sum().backward()
    optimizer.step()
scripted = torch.jit.script(torch.nn.Dropout())(torch.ones(2))
traced = torch.fx.symbolic_trace(net)(torch.ones(2, 3))
wrapped = [hasattr(f, "__wrapped__") for f in (torch.relu, torch.Tensor.add, F.relu)]
print(torch.__version__.partition("+")[0], wrapped)
"""

OLDEST = "2.4.1"  # as in tools/torch_versions.sh


def installed():
    """{version: Python} of the environments beside that of this test."""
    environments = pathlib.Path(sys.executable).parents[2]
    return {
        path.parent.name.split("-")[1]: path.parent / "bin/python"
        for path in sorted(environments.glob("torch-*/complete"))
    }


class VersionCase(harness.TrainingCase):
    def check(self, python):
        done = subprocess.run(
            [str(python), "-W", "ignore", "-c", PROGRAM],
            env=self.environment(
                LD_PRELOAD=str(harness.DIST / "libtraincheck_agent.so"),
                TRAINCHECK_SERVER="127.0.0.1:9",
                TRAINCHECK_COLLECT="full",
                TRAINCHECK_EXIT_WAIT="1",
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=5 * harness.PATIENCE_S,
        )
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        # The relay's word on the daemon that is not there is no complaint.
        said = [line for line in done.stderr.splitlines() if "not active" in line]
        self.assertEqual(said, [])
        self.assertNotIn("not recorded", done.stderr)
        self.assertNotIn("recording is off", done.stderr)
        version, _, wrapped = done.stdout.strip().partition(" ")
        self.assertEqual(wrapped, "[True, True, True]")
        return version


class TorchVersions(VersionCase):
    def test_the_pinned_version(self):
        self.check(sys.executable)

    def test_the_oldest_version(self):
        python = installed().get(OLDEST)
        if python is None:
            self.skipTest(f"torch {OLDEST} is not installed: tools/torch_versions.sh")
        self.assertEqual(self.check(python), OLDEST)


if __name__ == "__main__":
    unittest.main()
