"""Trainings whose steps, or parts of them, are replayed from a CUDA graph. Without a
device, torch's class is replaced by one that does when it is replayed what its test says:
it writes memory as a graph does, and torch counts no version."""

import gc
import pathlib
import sys
import threading
import unittest
import weakref

import torch
from torch import nn


class Graph:
    def __init__(self, work):
        self.work = work

    def capture_begin(self):
        pass

    def capture_end(self):
        pass

    def replay(self):
        self.work()


torch.cuda.CUDAGraph = Graph  # before the hooks look at it

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, WATCH, last, said  # noqa: E402

OLD = "opt.gradients_are_old"


def nothing():
    pass


def captured(work, replayed=nothing):
    graph = Graph(replayed)
    graph.capture_begin()
    work()
    graph.capture_end()
    return graph


class GraphsCase(HooksCase):
    def setUp(self):
        super().setUp()
        CORE.closing = {"user"}
        self.net = nn.Linear(3, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def tearDown(self):
        CORE.closing = set()
        super().tearDown()

    def loss(self, net=None):
        return (net or self.net)(torch.randn(4, 3)).square().sum()

    def backward(self):
        self.loss().backward()

    def step(self):
        self.optimizer.zero_grad()
        self.backward()
        self.optimizer.step()

    def new_gradients(self):
        """What a captured backward does when it is replayed."""
        for parameter in self.net.parameters():
            parameter.grad.data.numpy()[:] = torch.randn(parameter.shape).numpy()

    def captured_backward(self):
        self.optimizer.zero_grad()
        return captured(self.backward, self.new_gradients)

    def limits(self):
        names = (e[2] for e in CORE.log if e[0] == "scalar")
        return [name for name in names if name == "sight:limit replays"]

    def user_steps(self):
        return [e for e in CORE.log if e[0] == "clock" and e[1] == "user"]


class WholeSteps(GraphsCase):
    def test_a_replay_is_a_step(self):
        replayed = []
        graph = captured(self.step, lambda: replayed.append(True))
        self.assertEqual(self.user_steps(), [])
        for _ in range(3):
            graph.replay()
        self.assertEqual(len(replayed), 3)
        self.assertEqual(len(self.user_steps()), 3)
        self.assertEqual(len(self.limits()), 1)

    def test_on_another_thread_too(self):
        graph = captured(self.step)
        thread = threading.Thread(target=graph.replay)
        thread.start()
        thread.join()
        self.assertEqual(len(self.user_steps()), 1)

    def test_several_optimizers_make_one_step(self):
        other = torch.optim.Adam(nn.Linear(3, 2).parameters())

        def both():
            self.step()
            self.loss(nn.Linear(3, 2)).backward()
            other.step()

        graph = captured(both)
        graph.replay()
        self.assertEqual(len(self.user_steps()), 1)

    def test_several_steps_of_one_are_several(self):
        self.step()
        graph = captured(lambda: [self.step() for _ in range(3)])
        begin = len(CORE.log)
        for _ in range(2):
            graph.replay()
        self.assertEqual(len(self.user_steps()), 6)
        # Nothing of what lies between them is seen, and said to be the same.
        ends = [e for e in CORE.log[begin:] if e[:2] == ("state", "STEP_END")]
        self.assertEqual(len(ends), 2)

    def test_parameters_and_state_are_recorded_behind_it(self):
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.step()
        graph = captured(self.step)
        begin = len(CORE.log)
        graph.replay()
        states = [e for e in CORE.log[begin:] if e[0] == "state"]
        self.assertEqual([e[1] for e in states], ["POST_STEP", "STEP_END"])
        of_weight = [name for name in states[0][3] if name.startswith("Linear.weight/")]
        self.assertEqual(
            of_weight,
            ["Linear.weight/step", "Linear.weight/exp_avg", "Linear.weight/exp_avg_sq"],
        )
        self.assertEqual(states[1][3], ["Linear.weight", "Linear.bias"])

    def test_nothing_is_recorded_in_a_step_that_is_not_sampled(self):
        self.optimizer = torch.optim.Adam(self.net.parameters())
        graph = captured(self.step)
        self.addCleanup(setattr, WATCH.recorded, "states", True)
        WATCH.recorded.states = False
        begin = len(CORE.log)
        graph.replay()
        self.assertFalse(any(e[0] == "state" for e in CORE.log[begin:]))

    def test_an_optimizer_that_is_gone(self):
        graph = captured(self.step)
        gone = weakref.ref(self.optimizer)
        del self.optimizer
        gc.collect()
        self.assertIsNone(gone())
        graph.replay()
        self.assertEqual(self.user_steps(), [])

    def test_a_capture_anew_replaces_the_former(self):
        graph = captured(self.step)
        graph.capture_begin()
        graph.capture_end()
        graph.replay()
        self.assertEqual(self.user_steps(), [])

    def test_a_schedule_that_goes_on_in_between(self):
        schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1000)
        graph = captured(self.step)
        for _ in range(5):  # an epoch, whose last batch has another size
            for _ in range(3):
                graph.replay()
                schedule.step()
            self.step()
            schedule.step()
        self.assertIn(last("schedule_moved"), (None, 1.0))
        self.assertEqual([n for n in said("schedule_moved") if n > 1], [])

    def test_what_fails_is_no_step(self):
        def fails():
            raise RuntimeError("device")

        graph = captured(self.step, fails)
        with self.assertRaisesRegex(RuntimeError, "device"):
            graph.replay()
        self.assertEqual(self.user_steps(), [])


class Backwards(GraphsCase):
    """A graph of forward and backward, whose optimizer steps by itself."""

    def test_gradients_of_a_replay_are_not_old(self):
        for _ in range(2):
            self.step()
        graph = self.captured_backward()
        for _ in range(4):
            graph.replay()
            self.optimizer.step()
        self.assertNotIn(1.0, said(OLD))
        self.assertEqual(self.user_steps(), [])
        self.assertEqual(len(self.limits()), 1)

    def test_of_a_replay_that_is_left_out_they_are(self):
        graph = self.captured_backward()
        for _ in range(2):
            graph.replay()
            self.optimizer.step()
        self.optimizer.step()
        self.assertEqual(last(OLD), 1.0)

    def test_with_a_scaler(self):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        self.step()
        self.optimizer.zero_grad()
        work = lambda: scaler.scale(self.loss()).backward()
        graph = captured(work, self.new_gradients)
        for _ in range(4):
            graph.replay()
            scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            scaler.step(self.optimizer)
            scaler.update()
        self.assertNotIn(1.0, said(OLD))
        self.assertNotIn(1.0, said("opt.clips_nothing"))

    def test_accumulated_by_several_replays(self):
        for _ in range(2):
            self.step()
        graph = self.captured_backward()
        for _ in range(3):
            for _ in range(4):
                graph.replay()
            self.optimizer.step()
        for name in (OLD, "opt.leftover_gradients", "opt.sums_means"):
            self.assertNotIn(1.0, said(name))

    def test_cleared_in_each_iteration(self):
        # Gradients that eager micro-batches threw away are not what a replay does.
        graph = self.captured_backward()
        for _ in range(4):
            self.optimizer.zero_grad(set_to_none=False)
            graph.replay()
            self.optimizer.zero_grad(set_to_none=False)
            graph.replay()
            self.optimizer.step()
        self.assertNotIn(1.0, said("opt.discards_backwards"))

    def test_what_shows_in_a_loss_is_not_known(self):
        for _ in range(2):
            self.step()
        self.assertEqual(last("opt.loss_not_finite"), 0.0)
        graph = self.captured_backward()
        graph.replay()
        self.optimizer.step()
        self.assertNotEqual(last("opt.loss_not_finite"), 0.0)  # NaN: not known
        self.step()
        self.assertEqual(last("opt.loss_not_finite"), 0.0)

    def test_two_networks_that_take_turns(self):
        other = nn.Linear(2, 1)
        others = torch.optim.SGD(other.parameters(), lr=0.1)

        def loss():
            return other(self.net(torch.randn(4, 3))).sum()

        def write():
            for parameter in (*self.net.parameters(), *other.parameters()):
                parameter.grad.data.numpy()[:] = 1.0

        for _ in range(2):
            loss().backward()
            self.optimizer.step()
            others.zero_grad()
            other(self.net(torch.randn(4, 3)).detach()).sum().backward()
            others.step()
            self.optimizer.zero_grad()
        first = captured(lambda: loss().backward(), write)
        second = captured(
            lambda: other(torch.randn(4, 2)).square().sum().backward(), write
        )
        for _ in range(3):
            first.replay()
            self.optimizer.step()
            second.replay()
            others.step()
        for name in (OLD, "opt.foreign_gradients"):
            self.assertNotIn(1.0, said(name))

    def test_data_is_used_by_a_replay(self):
        graph = self.captured_backward()
        self.assertEqual(WATCH.still_copies._trainings, 0)
        data = torch.utils.data.TensorDataset(torch.randn(8, 3))
        for _ in range(3):
            for _ in torch.utils.data.DataLoader(data, batch_size=4):
                graph.replay()
                self.optimizer.step()
        self.assertEqual(WATCH.still_copies._trainings, 3)

    def test_labels_by_the_model_itself_are_no_evaluation(self):
        self.net = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        data = torch.utils.data.TensorDataset(torch.randn(16, 3))
        loader = torch.utils.data.DataLoader(data, batch_size=4)
        self.step()
        graph = self.captured_backward()
        for _ in range(2):
            for (x,) in loader:
                graph.replay()
                self.optimizer.step()
                with torch.no_grad():
                    self.net(x)
        self.assertNotIn(1.0, said("loader.evaluated_in_training"))

    def test_a_backward_alone(self):
        loss = self.loss()
        graph = captured(loss.backward, self.new_gradients)
        for _ in range(3):
            graph.replay()
            self.optimizer.step()
        self.assertNotIn(1.0, said(OLD))

    def test_within_a_step_it_is_a_part_of_that(self):
        graph = self.captured_backward()

        def closure():
            graph.replay()
            return torch.tensor(1.0)

        self.optimizer.step(closure)
        self.assertEqual(self.user_steps(), [])


class Parts(GraphsCase):
    def test_a_replay_of_a_forward_is_no_step(self):
        x = torch.ones(4, 3)
        graph = captured(lambda: self.net(x))
        graph.replay()
        self.assertEqual(self.user_steps(), [])
        self.assertEqual(len(self.limits()), 1)

    def test_graphed_callables(self):
        # As torch.cuda.make_graphed_callables: two graphs, replayed by one function.
        net, x = self.net, torch.randn(4, 3)
        parameters = tuple(net.parameters())
        results, found = [], []

        def backward():
            found.extend(
                torch.autograd.grad(results[0], parameters, torch.ones_like(results[0]))
            )

        forwards = captured(lambda: results.append(net(x)))
        backwards = captured(backward)

        class Graphed(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *given):
                forwards.replay()
                return results[0].detach().clone()

            @staticmethod
            def backward(ctx, gradient):
                backwards.replay()
                return tuple(one.clone() for one in found)

        for _ in range(3):
            self.optimizer.zero_grad()
            Graphed.apply(*parameters).sum().backward()
            self.optimizer.step()
        begun = [e for e in CORE.log if e == ("clock", "backward")]
        self.assertEqual(len(begun), 3)
        self.assertNotIn(1.0, said(OLD))
        self.assertEqual(last("opt.loss_not_finite"), 0.0)
        self.optimizer.step()
        self.assertEqual(last(OLD), 1.0)

    def test_a_capture_that_fails_leaves_nothing(self):
        graph = Graph(nothing)
        with self.assertRaises(ZeroDivisionError):
            graph.capture_begin()
            try:
                1 / 0
            finally:
                graph.capture_end()
        self.step()
        graph.replay()
        self.assertEqual(self.user_steps(), [])


if __name__ == "__main__":
    unittest.main()
