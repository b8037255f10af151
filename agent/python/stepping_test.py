"""What optimizers and schedulers are stepped with and when: mistakes, and right
programs that come close to them."""

import copy
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

    def test_an_optimizer_that_goes_without_gradients(self):
        class Evolution(torch.optim.Optimizer):
            def step(self):
                with torch.no_grad():
                    for parameter in self.param_groups[0]["params"]:
                        parameter.add_(torch.randn_like(parameter), alpha=0.01)

        optimizer = Evolution(self.net.parameters(), {})
        for _ in range(2):
            optimizer.step()
        self.assertEqual(said(self.NAME), [0.0])
        self.assertEqual(said("opt.needs_no_gradients"), [1.0])
        self.loss().backward()
        optimizer.step()
        optimizer.step()
        self.assertEqual(said(self.NAME), [0.0, 1.0])
        self.assertEqual(said("opt.needs_no_gradients"), [1.0, 0.0])

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


class Accumulation(SteppingCase):
    NAME = "opt.leftover_gradients"

    def train(self, batches, every, at_end=None, epochs=3):
        """at_end: what is done with gradients that are left, with their number."""
        loader = torch.utils.data.DataLoader(torch.randn(batches * 4, 5), batch_size=4)
        for _ in range(epochs):
            left = 0
            for x in loader:
                (self.net(x).square().mean() / every).backward()
                left += 1
                if left == every:
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                    left = 0
            if left and at_end is not None:
                at_end()

    def test_what_an_epoch_leaves(self):
        self.train(batches=7, every=3)
        self.assertEqual(said(self.NAME), [1.0])

    def test_what_is_cleared_or_stepped_with_in_time(self):
        for at_end in (self.optimizer.zero_grad, self.step):
            self.setUp()
            self.train(7, 3, at_end)
            self.assertNotIn(1.0, said(self.NAME))

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def test_groups_that_go_over_epochs(self):
        loader = torch.utils.data.DataLoader(torch.randn(28, 5), batch_size=4)
        batches = 0
        for _ in range(6):
            for x in loader:
                self.net(x).square().mean().backward()
                batches += 1
                if batches % 3 == 0:
                    self.step()
        self.assertEqual(set(said(self.NAME)), {0.0})

    def test_epochs_that_end_with_a_group(self):
        self.train(batches=6, every=3)
        self.assertNotIn(1.0, said(self.NAME))

    def test_groups_of_different_sizes(self):
        loader = torch.utils.data.DataLoader(torch.randn(44, 5), batch_size=4)
        for epoch in range(4):
            for number, x in enumerate(loader):
                self.net(x).square().mean().backward()
                if number in (3, 5, 8):
                    self.step()
        self.assertNotIn(1.0, said(self.NAME))


class TwoLosses(SteppingCase):
    """A generator whose loss passes through a critic."""

    NAME = "opt.foreign_gradients"

    def train(self, clear, own_loss=None, steps=4):
        """clear(before the critic's backward: bool, optimizers)"""
        critic = torch.nn.Linear(5, 1)
        generator = torch.nn.Linear(3, 5)
        first = torch.optim.SGD(generator.parameters(), lr=0.1)
        second = torch.optim.SGD(critic.parameters(), lr=0.1)
        for _ in range(steps):
            fake = generator(torch.randn(4, 3))
            (-critic(fake)).mean().backward()
            first.step()
            first.zero_grad()
            clear(True, second)
            (critic(fake.detach()) - critic(torch.randn(4, 5))).mean().backward()
            second.step()
            clear(False, second)
        return set(said(self.NAME))

    def test_cleared_after_the_step_alone(self):
        def clear(before, optimizer):
            if not before:
                optimizer.zero_grad()

        self.assertEqual(self.train(clear), {1.0})

    def test_cleared_before_the_backward(self):
        for to_none in (True, False):
            self.setUp()

            def clear(before, optimizer):
                if before:
                    optimizer.zero_grad(set_to_none=to_none)

            self.assertEqual(self.train(clear), {0.0})

    def test_a_term_that_is_meant_for_it(self):
        """Wake and sleep: one half of its loss stands beside another's."""
        first = torch.optim.SGD([self.net.weight], lr=0.1)
        second = torch.optim.SGD([self.net.bias], lr=0.1)
        for _ in range(4):
            first.zero_grad()
            second.zero_grad()
            loss = self.net.weight.square().mean() + self.net.bias.sum()
            loss.backward()
            first.step()
            self.net.bias.square().mean().backward()
            second.step()
        self.assertEqual(said(self.NAME), [])

    def test_one_loss_of_two_optimizers(self):
        first = torch.optim.SGD([self.net.weight], lr=0.1)
        second = torch.optim.SGD([self.net.bias], lr=0.1)
        for _ in range(4):
            self.loss().backward()
            self.loss().backward()
            for optimizer in (first, second):
                optimizer.step()
            for optimizer in (first, second):
                optimizer.zero_grad()
        self.assertEqual(said(self.NAME), [])


class Plain(torch.optim.Optimizer):
    """Momentum that is kept, or made anew in each step."""

    def __init__(self, parameters, keeps, beta=0.9, name="momentum"):
        super().__init__(parameters, {"lr": 0.05, "beta": beta})
        self.keeps, self.name = keeps, name

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if self.name not in state or not self.keeps:
                    state[self.name] = torch.zeros_like(parameter)
                moment = state[self.name]
                moment.mul_(group["beta"]).add_(parameter.grad)
                parameter.sub_(group["lr"] * moment.sign())


class Moments(SteppingCase):
    NAME = "opt.moments_forget"

    def train(self, optimizer, steps=5):
        for _ in range(steps):
            optimizer.zero_grad()
            self.loss().backward()
            optimizer.step()
        return set(said(self.NAME))

    def test_a_buffer_that_is_made_anew(self):
        self.assertEqual(self.train(Plain(self.net.parameters(), keeps=False)), {1.0})

    def test_buffers_that_are_kept(self):
        for make in (
            lambda p: Plain(p, keeps=True),
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
            torch.optim.AdamW,
            lambda p: torch.optim.RMSprop(p, momentum=0.9),
        ):
            self.setUp()
            self.assertEqual(self.train(make(self.net.parameters())), {0.0})

    def test_groups_that_step_in_turn(self):
        first, second, *_ = self.net.parameters()
        groups = [{"params": [first]}, {"params": [second]}]
        optimizer = torch.optim.AdamW(groups, lr=1e-2)
        every = optimizer.param_groups
        for _ in range(5):
            optimizer.zero_grad()
            self.loss().backward()
            for group in every:
                optimizer.param_groups = [group]
                optimizer.step()
            optimizer.param_groups = every
        self.assertEqual(set(said(self.NAME)), {0.0})

    def test_what_is_no_moment(self):
        parameters = list(self.net.parameters())
        for make in (
            lambda: Plain(parameters, keeps=False, beta=0.0),
            lambda: Plain(parameters, keeps=False, name="prev_gradient"),
            lambda: torch.optim.Adam(parameters, betas=(0.0, 0.9)),
            lambda: torch.optim.Rprop(parameters),
        ):
            self.setUp()
            parameters = list(self.net.parameters())
            self.assertNotIn(1.0, self.train(make()))

    def test_rows_that_are_used_for_the_first_time(self):
        table = nn.Embedding(64, 4)
        optimizer = torch.optim.Adam(table.parameters())
        for rows in torch.arange(16).split(4):
            optimizer.zero_grad()
            table(rows).square().sum().backward()
            optimizer.step()
        self.assertEqual(said(self.NAME), [])

    def test_gradients_that_stay_the_same(self):
        optimizer = Plain(self.net.parameters(), keeps=True)
        x = torch.randn(8, 5)
        for _ in range(5):
            optimizer.zero_grad()
            self.net(x).mean().backward()
            optimizer.step()
        self.assertEqual(said(self.NAME), [])


class Scales(SteppingCase):
    NAME = "opt.scale_begins_anew"

    def train(self, scaler):
        for _ in range(3):
            self.optimizer.zero_grad()
            scaler.scale(self.loss()).backward()
            scaler.step(self.optimizer)
            scaler.update()

    def resume(self, restored, enabled=True):
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        first = torch.amp.GradScaler("cpu", enabled=enabled)
        self.train(first)
        kept = self.optimizer.state_dict(), first.state_dict()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.optimizer.load_state_dict(kept[0])
        second = torch.amp.GradScaler("cpu", enabled=enabled)
        if restored:
            second.load_state_dict(kept[1])
        self.train(second)
        return set(said(self.NAME))

    def test_a_scale_that_begins_anew(self):
        self.assertEqual(self.resume(restored=False), {1.0})

    def test_a_scale_that_goes_on(self):
        self.assertEqual(self.resume(restored=True), {0.0})

    def test_a_scaler_that_is_off(self):
        self.assertEqual(self.resume(restored=False, enabled=False), set())

    def test_a_loss_that_is_scaled_by_hand(self):
        name = "opt.float16_unscaled"
        for scale in (None, 1024.0):
            self.setUp()
            for _ in range(2):
                with torch.autocast("cpu", torch.float16):
                    loss = self.loss()
                (loss if scale is None else loss * scale).backward()
                self.optimizer.step()
            self.assertEqual(said(name), [1.0] if scale is None else [0.0])


class Switched(SteppingCase):
    def test_what_an_optimizer_exchanges_itself(self):
        class Averaging(torch.optim.SGD):
            def eval(self):
                with torch.no_grad():
                    for group in self.param_groups:
                        for parameter in group["params"]:
                            parameter.mul_(0.5)

        optimizer = Averaging(self.net.parameters(), lr=0.1)
        self.loss().backward()
        optimizer.step()
        before = len(CORE.log)
        optimizer.eval()
        states = [entry[1:] for entry in CORE.log[before:] if entry[0] == "state"]
        names = ["Linear.weight", "Linear.bias"]
        self.assertEqual([(s[0], s[2]) for s in states], [("LOAD", names)])


class Clipping(SteppingCase):
    def test_clipping_of_what_is_used_up(self):
        parameters = self.net.parameters()
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        used = filter(torch.is_tensor, parameters)
        for given, wrong in ((used, 1.0), (self.net.parameters(), 0.0)):
            self.loss().backward()
            nn.utils.clip_grad_norm_(given, 1.0)
            optimizer.step()
            self.assertEqual(said("opt.clips_nothing")[-1], wrong)

    def test_clipping_before_the_backward(self):
        self.optimizer.zero_grad()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()  # a batch is left out
        self.assertEqual(said("opt.clips_nothing")[-1], 0.0)
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.loss().backward()
        self.optimizer.step()
        self.assertEqual(said("opt.clips_nothing")[-1], 1.0)

    def test_clipping_of_what_no_optimizer_holds(self):
        """Weights in half precision, whose gradients a copy in full precision gets."""
        whole = [p.detach().clone().requires_grad_() for p in self.net.parameters()]
        optimizer = torch.optim.SGD(whole, lr=0.1)
        self.optimizer.param_groups.clear()
        self.loss().backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        for one, p in zip(whole, self.net.parameters()):
            one.grad = p.grad
        optimizer.step()
        self.assertEqual(said("opt.clips_nothing")[-1], 0.0)

    def test_an_optimizer_that_nobody_knew(self):
        """A copy is made without its constructor: it is known from its first step on."""
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        optimizer = copy.deepcopy(self.optimizer)
        optimizer.param_groups[0]["params"] = list(self.net.parameters())
        self.loss().backward()
        optimizer.step()
        self.assertEqual(said("opt.clips_nothing")[-1], 0.0)

    def test_clipping_takes_its_parameters(self):
        self.loss().backward()
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), 1e-3)
        self.assertGreater(norm, 1e-3)
        self.assertLess(self.net.weight.grad.norm(), 1e-2)


if __name__ == "__main__":
    unittest.main()
