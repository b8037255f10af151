"""Trainings of ten kinds do to the last bit what they do without us."""

import re
import unittest

import harness

STEPS = "4"


class Pipelines(harness.TrainingCase):
    def same(self, name: str, ranks: int = 1, steps: int = int(STEPS)):
        self.start_daemon()
        script = harness.PIPELINES / f"{name}.py"
        plain = self.plain(script, "--steps", STEPS)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        losses = re.findall(r"^step \d+ loss 0x", plain.stdout, re.MULTILINE)
        self.assertEqual(len(losses), int(STEPS), plain.stdout)
        done = self.monitored(
            script, "--steps", STEPS, options=["--collect", "--run", name]
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, plain.stdout)
        shown = self.daemon.run_ended(name)
        self.assertEqual((shown["dropped"], shown["lost"]), (0, 0))
        mains = [p for p in shown["processes"] if p["kind"] == "main"]
        self.assertEqual(len(mains), ranks, shown["processes"])
        self.assertEqual(shown["last_step"], steps - 1)

    def test_mnist_cnn(self):
        self.same("mnist_cnn")

    def test_resnet18(self):
        self.same("resnet18")

    def test_gcn(self):
        self.same("gcn")

    def test_gat(self):
        self.same("gat")

    def test_vae(self):
        self.same("vae")

    def test_dcgan(self):
        # One more: nothing tells yet that a second optimizer will follow when the
        # generator's gradients are cleared behind the critic's first step.
        self.same("dcgan", steps=int(STEPS) + 1)

    def test_siamese(self):
        self.same("siamese")

    def test_lstm_lm(self):
        self.same("lstm_lm")

    def test_transformer_lm(self):
        self.same("transformer_lm")

    def test_mixer_ddp(self):
        self.same("mixer_ddp", ranks=2)


if __name__ == "__main__":
    unittest.main()
