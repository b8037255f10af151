"""The module traincheckd, with and without an agent; skipped steps."""

import pathlib
import subprocess
import sys
import unittest

import torch
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "module"))
from hooks_case import CORE, HooksCase, Net, PARAMS, WATCH, train_step

import traincheckd


class Steps(HooksCase):
    def test_step(self):
        traincheckd.step()
        self.assertEqual(CORE.log, [("mark", "USER_STEP", 0, 0), ("clock", "user")])

    def test_scaler_that_skips(self):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        for factor in (1, float("inf")):
            CORE.log.clear()
            optimizer.zero_grad()
            scaler.scale(model(torch.ones(5, 3)).sum() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
            self.assertEqual(CORE.of("clock").count(("clock", "step")), 1)
        number = CORE.object_id(optimizer)
        self.assertEqual(CORE.of("mark"), [("mark", "STEP_SKIPPED", number, 0)])


class Stages(HooksCase):
    def marks(self):
        return [value for _, _, _, value in CORE.of("mark")]

    def test_until_the_next(self):
        traincheckd.stage("evaluation")
        traincheckd.stage("evaluation")
        traincheckd.stage("training")
        traincheckd.stage(None)
        self.assertEqual(
            self.marks(),
            [CORE.USER_STAGE_EVALUATION, CORE.USER_STAGE_TRAINING, 0],
        )

    def test_contexts_inside_each_other(self):
        with traincheckd.stage("training"):
            with self.assertRaises(ValueError):
                with traincheckd.stage("evaluation"):
                    raise ValueError
        self.assertEqual(self.marks(), [2, 3, 2, 0])

    def test_what_counts(self):
        model = Net()
        with traincheckd.stage("evaluation"):
            model(torch.ones(5, 3))
        self.assertEqual(CORE.of("clock"), [])
        self.assertEqual(CORE.states("FORWARD_BEGIN"), [])
        with torch.no_grad(), traincheckd.stage("training"):
            model(torch.ones(5, 3))
        self.assertEqual(CORE.of("clock"), [("clock", "forward")])
        self.assertEqual(len(CORE.states("FORWARD_BEGIN")), 1)

    def test_unknown_name(self):
        with traincheckd.stage("evalution"):
            pass
        self.assertEqual(self.marks(), [])
        (said,) = CORE.raised
        self.assertIn("'evalution'", str(said))
        CORE.raised.clear()


class Tracking(HooksCase):
    def setUp(self):
        super().setUp()
        self.closed = WATCH.clock.closed
        self.addCleanup(setattr, WATCH.clock, "closed", self.closed)

    def test_model_that_is_never_called(self):
        model = traincheckd.track(Net(), name="encoder")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.head(model.body(torch.ones(5, 3))).sum().backward()
        optimizer.step()
        names = [name.replace("Net.", "encoder.") for name in PARAMS]
        self.assertEqual(CORE.states("PRE_STEP"), [names])
        self.assertEqual(CORE.states("BACKWARD_END"), [names])

    def test_tensor(self):
        weights = torch.ones(3)
        self.assertIs(traincheckd.track(weights, name="prior"), weights)
        self.assertEqual(CORE.states("CONSTRUCTION"), [["tracked.prior"]])
        self.assertEqual(CORE.facts["tracked.prior"][0], CORE.VARIABLE_BUFFER)
        WATCH.clock.closed()
        self.assertEqual(CORE.states("STEP_END"), [["tracked.prior"]])
        traincheckd.track(torch.zeros(3), name="prior")
        self.assertEqual(CORE.facts["tracked.prior"][3], 1)
        traincheckd.track(None, name="prior")
        WATCH.clock.closed()
        self.assertEqual(len(CORE.states("STEP_END")), 1)

    def test_name_of_a_tensor_that_is_no_text(self):
        traincheckd.track(torch.ones(3), name=5)
        traincheckd.track(None, name=5)
        traincheckd.track(None)
        WATCH.clock.closed()
        self.assertEqual(CORE.states("STEP_END"), [])

    def test_tensors_may_still_be_swapped(self):
        one, two = torch.ones(3), torch.zeros(3)
        traincheckd.track(one, name="one")
        torch.utils.swap_tensors(one, two)

    def test_optimizer_of_no_known_kind(self):
        class Own:
            def __init__(self, params):
                self.param_groups = [{"params": list(params), "lr": 0.5}]

            def zero_grad(self):
                for parameter in self.param_groups[0]["params"]:
                    parameter.grad = None

            def step(self):
                with torch.no_grad():
                    for parameter in self.param_groups[0]["params"]:
                        parameter -= 0.5 * parameter.grad

        model = Net()
        optimizer = traincheckd.track(Own(model.parameters()))
        train_step(model, optimizer)
        self.assertEqual(CORE.states("PRE_STEP"), [PARAMS])
        self.assertEqual(CORE.states("POST_STEP"), [PARAMS])
        self.assertIn(("clock", "clear"), CORE.log)

    def test_what_cannot_be_tracked(self):
        for value, name in ((5, "five"), (torch.ones(1), None), ([1], None)):
            self.assertIs(traincheckd.track(value, name), value)
        self.assertEqual(len(CORE.raised), 3)
        CORE.raised.clear()


class WithoutAgent(unittest.TestCase):
    def test_nothing_happens(self):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys; sys.path.insert(0, sys.argv[1])\n"
                "import traincheckd\n"
                "traincheckd.step()\n"
                "with traincheckd.stage('anything') as stage: pass\n"
                "traincheckd.stage(None)\n"
                "assert traincheckd.track([1], name='x') == [1]\n"
                "assert 'torch' not in sys.modules\n",
                str(HERE / "module"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.assertEqual((done.returncode, done.stdout), (0, b""))


if __name__ == "__main__":
    unittest.main()
