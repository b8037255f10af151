"""Settings by environment and file: they hold, and a mistake costs only the records."""

import sys
import textwrap
import unittest

import harness

SCRIPT = textwrap.dedent(
    """
    import sys
    import torch
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = net(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        print("loss", loss.item().hex(), flush=True)
    print("told", "", file=sys.stderr)
    sys.exit(3)
    """
)
OFF = "traincheck: recording is off: "


class Settings(harness.TrainingCase):
    def setUp(self):
        super().setUp()
        self.start_daemon()
        self.script = self.folder / "small.py"
        self.script.write_text(SCRIPT)
        self.config = self.folder / "settings.yaml"
        self.unwatched = self.plain(self.script)
        self.assertEqual(self.unwatched.returncode, 3, self.unwatched.stderr)

    def watched(self, **extra: str):
        """Under the bare preload."""
        environment = {"TRAINCHECK_SERVER": self.daemon.address, **extra}
        environment = {k: v for k, v in environment.items() if v is not None}
        library = harness.DIST / "libtraincheck_agent.so"
        return self.plain(self.script, LD_PRELOAD=str(library), **environment)

    def write(self, text: str) -> str:
        self.config.write_text(text)
        return str(self.config)

    def assert_trained(self, done, *said: str):
        """As without us, but for these lines on stderr."""
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(done.stdout, self.unwatched.stdout)
        told = [l for l in done.stderr.splitlines() if l.startswith("traincheck")]
        self.assertEqual(told, list(said))
        self.assertEqual(len(done.stderr.splitlines()), 1 + len(said), done.stderr)

    def runs(self) -> list:
        return self.daemon.ctl("runs", "list")

    def test_a_mistake_in_the_environment(self):
        unknown = "unknown setting TRAINCHECK_GRASE; did you mean TRAINCHECK_GRACE?"
        for name, value, said in (
            ("TRAINCHECK_GRASE", "1", unknown),
            ("TRAINCHECK_GRACE", "soon", 'TRAINCHECK_GRACE is "soon": write a whole'
             " number of seconds"),
            ("TRAINCHECK_SERVER", "nowhere", 'TRAINCHECK_SERVER is "nowhere": write'
             " HOST:PORT or unix:PATH"),
            ("TRAINCHECK_CONFIG", "/nowhere/s.yaml", "TRAINCHECK_CONFIG: "
             "/nowhere/s.yaml: No such file or directory"),
        ):  # fmt: skip
            with self.subTest(name):
                self.assert_trained(self.watched(**{name: value}), OFF + said)
        # What keeps quiet about it keeps quiet.
        self.assert_trained(self.watched(TRAINCHECK_GRACE="soon", TRAINCHECK_LOG="off"))
        self.assertEqual(self.runs(), [])

    def test_a_mistake_in_the_file(self):
        for text, said in (
            ("a: 1", "line 1: unknown setting a; did you mean run?"),
            (
                "#\nexit_wait: 1m",
                'line 2: exit_wait is "1m": write a number of seconds',
            ),
            ("run: [a]", "line 1: put a value that begins with [ into quotes"),
        ):
            with self.subTest(text):
                done = self.watched(TRAINCHECK_CONFIG=self.write(text))
                self.assert_trained(done, f"{OFF}{self.config}, {said}")
        self.assertEqual(self.runs(), [])

    def test_the_file_alone(self):
        path = self.write(
            f"server: {self.daemon.address}\nrun: from-file # id\n"
            f"experiment: 'of # two'\ncollect: 1\nspool_dir: {self.folder}/own\n"
        )
        self.assert_trained(
            self.watched(
                TRAINCHECK_CONFIG=path, TRAINCHECK_SERVER=None, TRAINCHECK_RUN=None
            )
        )
        shown = self.daemon.run_ended("from-file")
        self.assertEqual(shown["experiment"], "of # two")
        self.assertEqual(shown["role"], "reference")
        self.assertGreater(shown["records"], 20)

    def test_the_environment_wins_and_the_file_can_switch_off(self):
        path = self.write("run: from-file\nexperiment: of-file\n")
        self.assert_trained(
            self.watched(TRAINCHECK_CONFIG=path, TRAINCHECK_RUN="from-environment")
        )
        shown = self.daemon.run_ended("from-environment")
        self.assertEqual(shown["experiment"], "of-file")
        path = self.write("disable: 1\nrun: never\n")
        self.assert_trained(self.watched(TRAINCHECK_CONFIG=path))
        self.assertEqual([run["id"] for run in self.runs()], ["from-environment"])

    def test_traincheckctl_run_takes_the_file(self):
        path = self.write(f"server: {self.daemon.address}\nexperiment: of-file\n")
        done = self.plain_ctl("run", "--config", path, "--run", "by-ctl")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(done.stdout, self.unwatched.stdout)
        self.assertEqual(self.daemon.run_ended("by-ctl")["experiment"], "of-file")

    def plain_ctl(self, *options: str):
        return harness.run_captured(
            [harness.DIST / "traincheckctl", *options, "--", sys.executable]
            + [self.script],
            self.environment(),
        )


if __name__ == "__main__":
    unittest.main()
