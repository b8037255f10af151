"""What optimizers and schedulers are stepped with and when: mistakes, and right
programs that come close to them."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase

LR = torch.optim.lr_scheduler


def said(name):
    """The values that were written, in their order."""
    return [e[3] for e in CORE.log if e[0] == "scalar" and e[2] == name]


class SteppingCase(HooksCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.net = nn.Linear(5, 4)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def loss(self):
        return self.net(torch.randn(8, 5)).square().mean()


class OldGradients(SteppingCase):
    NAME = "opt.gradients_are_old"

    def test_no_backward_at_all(self):
        self.optimizer.zero_grad()
        self.loss()
        self.optimizer.step()
        self.assertEqual(said(self.NAME), [1.0])

    def test_a_backward_that_is_left_out_once(self):
        for step in range(4):
            if step != 2:
                self.loss().backward()
            self.optimizer.step()
        self.assertEqual(said(self.NAME), [0.0, 1.0, 0.0])

    def test_one_backward_for_two_optimizers(self):
        other = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
        for _ in range(2):
            self.optimizer.zero_grad()
            self.loss().backward()
            self.optimizer.step()
            other.step()
        self.assertEqual(set(said(self.NAME)), {0.0})

    def test_a_closure(self):
        optimizer = torch.optim.LBFGS(self.net.parameters(), max_iter=2)

        def closure():
            optimizer.zero_grad()
            loss = self.loss()
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)
        self.assertEqual(said(self.NAME), [0.0])

    def test_gradients_of_functions(self):
        def loss_of(parameters, x):
            return torch.func.functional_call(self.net, parameters, (x,)).mean()

        for _ in range(3):
            parameters = dict(self.net.named_parameters())
            gradients = torch.func.grad(loss_of)(parameters, torch.randn(8, 5))
            for name, parameter in parameters.items():
                parameter.grad = gradients[name].detach()
            self.optimizer.step()
        self.assertEqual(said(self.NAME), [0.0])

    def test_new_gradients_where_the_old_ones_lay(self):
        optimizer = torch.optim.SGD([self.net.weight], lr=0.1)
        places = set()
        for _ in range(20):
            self.net.weight.grad = None
            self.net.weight.grad = torch.ones(4, 5)
            places.add(id(self.net.weight.grad))
            optimizer.step()
        self.assertLess(len(places), 20)
        self.assertEqual(said(self.NAME), [0.0])

    def test_gradients_that_are_written_in_place(self):
        for parameter in self.net.parameters():
            parameter.grad = torch.zeros_like(parameter)
        for _ in range(3):
            for parameter in self.net.parameters():
                parameter.grad.copy_(torch.randn_like(parameter))
            self.optimizer.step()
        self.assertEqual(said(self.NAME), [0.0])

    def test_models_that_are_trained_side_by_side(self):
        nets = [nn.Linear(5, 4) for _ in range(3)]
        parameters, buffers = torch.func.stack_module_state(nets)
        empty = nn.Linear(5, 4).to("meta")

        def loss_of(parameters, buffers, x):
            return torch.func.functional_call(empty, (parameters, buffers), (x,)).mean()

        each = torch.vmap(torch.func.grad(loss_of))
        optimizer = torch.optim.SGD(parameters.values(), lr=0.1)
        for _ in range(2):
            gradients = each(parameters, buffers, torch.randn(3, 8, 5))
            for name, parameter in parameters.items():
                parameter.grad = gradients[name].detach()
            optimizer.step()
        self.assertEqual(said(self.NAME), [0.0])


class EarlySchedulers(SteppingCase):
    NAME = "schedule.early"

    def train(self, scheduler):
        for _ in range(2):
            self.optimizer.zero_grad()
            F.relu(self.loss()).backward()
            self.optimizer.step()
            scheduler.step()
        return set(said(self.NAME))

    def test_stepped_before_the_first_step(self):
        scheduler = LR.StepLR(self.optimizer, 2)
        scheduler.step()
        self.assertIn(1.0, self.train(scheduler))

    def test_one_after_the_other(self):
        parts = [
            LR.ConstantLR(self.optimizer, 0.5, 1),
            LR.CosineAnnealingLR(self.optimizer, 4),
        ]
        self.assertEqual(self.train(LR.SequentialLR(self.optimizer, parts, [1])), {0.0})

    def test_all_at_once(self):
        parts = [
            LR.ConstantLR(self.optimizer, 0.5, 1),
            LR.ExponentialLR(self.optimizer, 0.9),
        ]
        self.assertEqual(self.train(LR.ChainedScheduler(parts, self.optimizer)), {0.0})


if __name__ == "__main__":
    unittest.main()
