"""deploy/kubernetes without Kubernetes: the containers of its pods as processes of a
root of their own, with the volumes, users and secrets that kubelet would give them."""

import json
import pathlib
import sys
import unittest

import clean_root
import harness

sys.path.append("deploy/observe")
import make_configmap  # noqa: E402

MANIFESTS = pathlib.Path("deploy/kubernetes").resolve()
IMAGE = pathlib.Path("deploy/container").resolve()


class Dashboard(unittest.TestCase):
    def test_is_the_one_of_observe(self):
        dashboard = pathlib.Path("deploy/observe/grafana.json").read_text()
        self.assertEqual(
            (MANIFESTS / "dashboard.yaml").read_text(),
            make_configmap.configmap(dashboard),
            "run python3 deploy/observe/make_configmap.py",
        )


class Pods(harness.TrainingCase):
    def test_daemon_token_trainings_and_renewal(self):
        if reason := clean_root.why_no_other_users(self.folder):
            self.skipTest(reason)
        parts = clean_root.run(
            self.folder,
            "inside_pods_root.sh",
            [
                *IMAGE.iterdir(),
                *(clean_root.HERE / name for name in ("image.py", "pod.py")),
                *(MANIFESTS, harness.SCRIPTS / "built_in.py"),
            ],
            [
                *(sys.executable, "Containerfile", "pod.py", "kubernetes"),
                *("built_in.py", "left_in_evaluation"),
            ],
        )
        self.assertIn("alice", parts["token"])
        for who, number in (("user", 1000), ("root", 0)):
            run = json.loads(parts[f"{who}'s run"])
            self.assertEqual(run["status"], "ended")
            self.assertEqual(run["owner"], "alice")
            self.assertEqual((run["dropped"], run["lost"]), (0, 0))
        self.assertRegex(parts["user"], r"-r-------- +1 1000 1000 .* token\n")
        self.assertRegex(parts["user"], r"drwx--\S+ +\d 1000 1000 .* spool\n")
        self.assertIn("evaluation mode", parts["user's violations"])
        self.assertIn("without a restart", parts["renewed"])
        self.assertIn("stopped", parts["ended"])


if __name__ == "__main__":
    unittest.main()
