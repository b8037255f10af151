"""Right programs that come close to mistakes at steps of optimizers, and these."""

import copy
import gc
import importlib
import itertools
import pathlib
import sys
import tempfile
import unittest
import weakref

import numpy
import torch
from torch import nn
from torch.distributions import Normal
from torch.nn import functional as F
from torch.utils.data import DataLoader

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, TARGETS, HooksCase, Net, SignsCase, last, said


class DiscardedBackwards(SignsCase):
    NAME = "opt.discards_backwards"

    def train(self, before_the_step, steps=4):
        weight = self.net.weight
        for _ in range(steps):
            kept = []
            for _ in range(2):
                self.optimizer.zero_grad(set_to_none=False)
                self.loss().backward()
                kept.append(weight.grad.clone())
            before_the_step(kept)
            self.optimizer.step()
        return said(self.NAME)

    def test_projected_gradients_are_copied_in_place(self):
        weight = self.net.weight
        for write in (
            lambda kept: weight.grad.copy_(sum(kept)),
            lambda kept: weight.grad.data.copy_(sum(kept)),
        ):
            self.setUp()
            weight = self.net.weight
            self.assertNotIn(1.0, self.train(write))

    def test_what_clears_is_named_although_it_clips_or_scales(self):
        parameters = lambda: list(self.net.parameters())
        for write in (
            lambda kept: nn.utils.clip_grad_norm_(parameters(), 1e-3),
            lambda kept: nn.utils.clip_grad_value_(parameters(), 1e-2),
            lambda kept: [p.grad.div_(2) for p in parameters()],
        ):
            self.setUp()
            self.assertEqual(self.train(write)[:2], [0.0, 1.0])


class DiscardedBackwardsOnADevice(DiscardedBackwards):
    ON_DEVICE = True

    def test_what_clears_is_named_although_it_clips_or_scales(self):
        write = lambda kept: nn.utils.clip_grad_norm_(self.net.parameters(), 1e-3)
        self.assertIn(1.0, self.train(write, steps=6))


class LeftoverGradients(SignsCase):
    NAME = "opt.leftover_gradients"

    def test_one_step_for_each_of_several_data_sets(self):
        sizes = (3, 4, 4, 3, 5)
        loaders = [DataLoader(torch.randn(4 * n, 5), batch_size=4) for n in sizes]
        for loader in loaders * 3:
            self.optimizer.zero_grad()
            for x in loader:
                self.net(x).square().mean().backward()
            self.optimizer.step()
        self.assertNotIn(1.0, said(self.NAME))


class ForeignGradients(SignsCase):
    NAME = "opt.foreign_gradients"

    def setUp(self):
        super().setUp()
        self.heads = [nn.Linear(4, 4) for _ in range(2)]
        self.steppers = [torch.optim.SGD(h.parameters(), lr=0.1) for h in self.heads]

    def head_steps(self, number, loss):
        loss.backward()
        self.steppers[number].step()
        self.steppers[number].zero_grad()

    def loss_of(self, number):
        scores = self.heads[number](self.net(torch.randn(8, 5)))
        return F.cross_entropy(scores, TARGETS)

    def test_a_body_that_accumulates_while_its_head_steps(self):
        for step in range(12):
            self.head_steps(0, self.loss_of(0))
            if step % 4 == 3:
                self.optimizer.step()
                self.optimizer.zero_grad()
        self.assertNotIn(1.0, said(self.NAME))

    def test_a_body_of_heads_that_take_turns(self):
        for _ in range(4):
            self.head_steps(0, self.loss_of(0))
            self.head_steps(1, self.loss_of(1))
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.assertNotIn(1.0, said(self.NAME))

    def test_a_critic_is_named_although_all_losses_go_through_one_place(self):
        critic, generator = nn.Linear(5, 1), nn.Linear(3, 5)
        first = torch.optim.SGD(generator.parameters(), lr=0.1)
        second = torch.optim.SGD(critic.parameters(), lr=0.1)

        def descend(optimizer, loss):
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        for _ in range(3):
            fake = generator(torch.randn(4, 3))
            descend(first, -critic(fake).mean())
            descend(second, critic(fake.detach()).mean())
        self.assertEqual(last(self.NAME), 1.0)


class OldGradients(SignsCase):
    NAME = "opt.gradients_are_old"

    def test_evolution_that_writes_past_the_versions(self):
        for parameter in self.net.parameters():
            parameter.grad = torch.zeros_like(parameter)
        for _ in range(3):
            for parameter in self.net.parameters():
                parameter.grad.data.copy_(torch.randn_like(parameter))
            self.optimizer.step()
        self.assertEqual(said(self.NAME), [0.0])


class LayersMadeInForward(SignsCase):
    def test_a_norm_without_weights(self):
        class Maker(nn.Conv1d):
            def forward(self, x):
                return nn.InstanceNorm1d(4)(super().forward(x))

        net = Maker(5, 4, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            net(torch.randn(2, 5, 8)).pow(3).mean().backward()
            optimizer.step()
        self.assertNotIn(1.0, said("opt.layers_made_in_forward"))


class LateLeftOut(SignsCase):
    NAME = "opt.late_left_out"

    def test_a_later_session_with_copies_in_float32(self):
        """Of an adapter in bfloat16, which is written back after each step."""
        for _ in range(4):
            self.step()
        net = nn.Linear(5, 4).bfloat16()
        copies = [nn.Parameter(p.detach().float()) for p in net.parameters()]
        optimizer = torch.optim.SGD(copies, lr=0.1)
        for _ in range(20):
            net.zero_grad()
            scores = net(torch.randn(8, 5).bfloat16())
            F.cross_entropy(scores.float(), TARGETS % 4).backward()
            for copied, own in zip(copies, net.parameters()):
                copied.grad = own.grad.float()
            optimizer.step()
            with torch.no_grad():
                for copied, own in zip(copies, net.parameters()):
                    own.copy_(copied)
        self.assertNotEqual(last(self.NAME), 1.0)

    def test_learners_that_live_for_one_step(self):
        for _ in range(20):
            learner = copy.deepcopy(self.net)
            for _ in range(2):
                learner.zero_grad()
                self.loss(learner).backward()
                with torch.no_grad():
                    for p in learner.parameters():
                        p.sub_(0.1 * p.grad)
            for p, q in zip(self.net.parameters(), learner.parameters()):
                p.grad = q.grad.clone()
            self.optimizer.step()
        self.assertNotIn(1.0, said(self.NAME))

    def test_learners_that_are_kept(self):
        CORE.closing = {"clear"}
        self.step()
        learners = [copy.deepcopy(self.net) for _ in range(2)]
        for step in range(20):
            for learner in learners[: 1 + (step > 3)]:
                self.loss(learner).backward()
            self.step()
        self.assertNotIn(1.0, said(self.NAME))

    def test_a_head_that_comes_later_is_named(self):
        self.step()
        head = nn.Linear(4, 4)
        for _ in range(2):
            F.cross_entropy(head(self.net(torch.randn(8, 5))), TARGETS).backward()
            self.optimizer.step()
        self.assertEqual(last(self.NAME), 1.0)


class ClipsNothing(SignsCase):
    NAME = "opt.clips_nothing"

    def clip(self, *given):
        self.loss().backward()
        for parameters in given:
            nn.utils.clip_grad_norm_(parameters, 1.0)
        self.optimizer.step()
        return last(self.NAME)

    def test_a_frozen_body_is_clipped_apart(self):
        self.assertEqual(self.clip([], list(self.net.parameters())), 0.0)
        self.assertEqual(self.clip(list(self.net.parameters()), []), 0.0)

    def test_nothing_but_empty_lists(self):
        self.assertEqual(self.clip([], ()), 1.0)

    def test_one_that_is_used_up_beside_another(self):
        used = self.net.parameters()
        list(used)
        self.assertEqual(self.clip(used, list(self.net.parameters())), 1.0)


class Moments(SignsCase):
    NAME = "opt.moments_forget"

    def test_moments_that_are_reset_now_and_then(self):
        optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        for step in range(1, 131):
            self.step(optimizer=optimizer)
            if step % 64 == 0:
                for entry in optimizer.state.values():
                    for value in entry.values():
                        value.zero_()
        self.assertEqual(set(said(self.NAME)), {0.0})

    def test_moments_that_are_thrown_away_are_not_kept(self):
        optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.step(optimizer=optimizer)
        moment = optimizer.state[self.net.weight]["exp_avg"].untyped_storage()
        moment = weakref.ref(moment)
        optimizer.state.clear()
        optimizer.param_groups[0]["params"] = [nn.Parameter(torch.zeros(4, 5))]
        other = optimizer.param_groups[0]["params"][0]
        other.grad = torch.randn(4, 5)
        optimizer.step()
        gc.collect()
        self.assertIsNone(moment())


class MaskedRows(SignsCase):
    NAME = "opt.moves_masked_rows"

    def test_masks_that_differ_from_step_to_step(self):
        net = nn.Linear(5, 32)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        for _ in range(70):
            optimizer.zero_grad()
            net(torch.randn(8, 5)).square().mean().backward()
            net.weight.grad[torch.rand(32) < 0.6] = 0
            optimizer.step()
        self.assertNotIn(1.0, said(self.NAME))

    def test_masks_of_small_tables_that_agree_by_chance(self):
        net = nn.Linear(5, 2)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        for row in (0, 0, 1, 0) * 2:
            optimizer.zero_grad()
            net(torch.randn(8, 5)).square().mean().backward()
            net.weight.grad[row] = 0
            optimizer.step()
        self.assertNotIn(1.0, said(self.NAME))


class RoundedAway(HooksCase):
    NAME = "opt.rounded_away"

    def train(self, rate_at, steps=70):
        net = nn.Linear(64, 4, dtype=torch.bfloat16)
        nn.init.uniform_(net.weight, 0.5, 1.0)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.05, weight_decay=0.0)
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = rate_at(step)
            optimizer.zero_grad()
            scores = net(torch.randn(8, 64, dtype=torch.bfloat16)).float()
            F.cross_entropy(scores, TARGETS).backward()
            optimizer.step()
        return said(self.NAME)

    def test_a_warm_up_by_hand(self):
        self.assertNotIn(1.0, self.train(lambda step: 1e-5 * (step + 1)))

    def test_a_rate_that_stays_too_small(self):
        self.assertEqual(self.train(lambda step: 1e-5, steps=2)[-1:], [1.0])


class RateScaleUnused(SignsCase):
    def test_floors_of_groups(self):
        for option in ("min_lr_ratio", "final_lr_factor"):
            self.setUp()
            groups = [
                {"params": [self.net.weight], option: 0.1},
                {"params": [self.net.bias], option: 0.01},
            ]
            optimizer = torch.optim.SGD(groups, lr=0.1)
            for _ in range(4):
                self.step(optimizer=optimizer)
            self.assertEqual(said("opt.rate_scale_unused"), [], option)


class Followers(HooksCase):
    def train(self, share, steps=20, begins_as_copy=True):
        net, target = nn.Linear(5, 4), nn.Linear(5, 4).requires_grad_(False)
        with torch.no_grad():
            for mine, other in zip(target.parameters(), net.parameters()):
                if begins_as_copy:
                    mine.copy_(other)
        both = nn.ModuleDict({"net": net, "target": target})

        class Pair(nn.Module):
            def __init__(self):
                super().__init__()
                self.both = both

            def forward(self, x):
                return self.both["net"](x) - 0.5 * self.both["target"](x)

        model, optimizer = Pair(), torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(steps):
            optimizer.zero_grad()
            model(torch.randn(8, 5)).square().mean().backward()
            optimizer.step()
            with torch.no_grad():
                for mine, other in zip(target.parameters(), net.parameters()):
                    mine.lerp_(other, share(step))

    def test_the_first_update_copies_all(self):
        share = lambda step: max(1 / (step + 1), 0.01)
        self.train(share, begins_as_copy=False)
        self.assertEqual(last("opt.follower_apart"), 0.0)

    def test_one_that_begins_apart(self):
        self.train(lambda step: 0.01, begins_as_copy=False)
        self.assertEqual(last("opt.follower_apart"), 1.0)

    def test_a_decay_that_rises_over_thousands_of_steps(self):
        self.train(lambda step: 1 - 0.9999 * (1 - numpy.exp(-(step + 1) / 2000)))
        self.assertNotIn(1.0, said("opt.follower_leads"))

    def test_a_share_that_rises_to_most_of_the_way(self):
        self.train(lambda step: min(0.98, (2 + step) / (6 + step)), steps=24)
        self.assertEqual(last("opt.follower_leads"), 1.0)


class Teachers(SignsCase):
    def test_a_front_end_that_gathers_statistics(self):
        front = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5, affine=False))
        front.requires_grad_(False)
        for _ in range(6):
            self.optimizer.zero_grad()
            self.net(front(torch.randn(8, 5))).square().mean().backward()
            self.optimizer.step()
        self.assertEqual(said("opt.teacher_drops"), [])


class BlindSamples(HooksCase):
    NAME = "opt.samples_without_gradient"

    def train(self, loss_of):
        class Policy(nn.Module):
            def __init__(self):
                super().__init__()
                self.mean = nn.Linear(5, 4)
                self.log_std = nn.Parameter(torch.zeros(4))

            def forward(self, x):
                mean, std = self.mean(x), self.log_std.exp().expand(len(x), 4)
                return mean, std, Normal(mean, std).sample()

        net = Policy()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(*net(torch.randn(8, 5))).backward()
            optimizer.step()
        return said(self.NAME)

    def test_likelihoods_without_log_prob(self):
        for name, loss_of in {
            "torch's": lambda m, s, drawn: F.gaussian_nll_loss(m, drawn, s**2),
            "a square": lambda m, s, d: ((d - m) ** 2 / (2 * s**2) + s.log()).mean(),
            "a share": lambda m, s, d: (((d - m) / s) ** 2 + s.log()).mean(),
            "a weight": lambda m, s, d: (s.pow(-2) * (d - m).square() + s.log()).mean(),
        }.items():
            self.setUp()
            self.assertEqual(set(self.train(loss_of)), {0.0}, name)

    def test_a_divergence_from_a_prior_is_no_likelihood(self):
        def loss_of(mean, std, drawn):
            prior = Normal(torch.zeros(4), torch.ones(4))
            apart = torch.distributions.kl_divergence(Normal(mean, std), prior)
            return drawn.square().mean() + apart.mean()

        self.assertEqual(set(self.train(loss_of)), {1.0})


SCRIPT = """
import numpy as np
import torch
from torch import nn

class Board:
    def rot90(self):
        self.turned = True

def train(other):
    image, board = np.zeros((2, 3)), Board()
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(torch.ones(1, 2)).sum().backward()
    {line}
    optimizer.step()
"""
NUMBERS = itertools.count()


class ResultDropped(HooksCase):
    READS_SOURCE = True

    def found(self, line, script=SCRIPT):
        HooksCase.setUp(self)
        with tempfile.TemporaryDirectory() as folder:
            name = f"steps{next(NUMBERS)}"
            path = pathlib.Path(folder, f"{name}.py")
            path.write_text(script.format(line=line))
            sys.path.insert(0, folder)
            try:
                importlib.invalidate_caches()
                importlib.import_module(name).train(torch.ones(2, 2))
            finally:
                sys.path.remove(folder)
                sys.modules.pop(name, None)
        return said("opt.result_dropped")

    def test_places_that_numpy_is_given(self):
        for line in (
            "np.clip(image, 0, 1, image)",
            "np.abs(image, image)",
            "np.nan_to_num(image, copy=False)",
            "np.nan_to_num(image, False)",
        ):
            self.assertEqual(self.found(line), [0.0], line)
        self.assertEqual(self.found("np.clip(image, 0, 1)"), [1.0])

    def test_a_method_of_a_class_of_the_programs_own(self):
        self.assertEqual(self.found("board.rot90()"), [0.0])

    def test_a_method_that_no_class_of_the_program_has(self):
        script = SCRIPT.replace("def rot90", "def turn").replace("Board()", "None")
        self.assertEqual(self.found("other.rot90()", script), [1.0])


class KeepsStatistics(HooksCase):
    NAME = "opt.copy_keeps_statistics"

    def test_statistics_that_are_taken_over_every_few_steps(self):
        CORE.closing = {"clear"}
        model = Net()
        average = copy.deepcopy(model).eval()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(12):
            optimizer.zero_grad()
            model(torch.randn(5, 3)).square().sum().backward()
            optimizer.step()
            with torch.no_grad():
                for slow, fast in zip(average.parameters(), model.parameters()):
                    slow.lerp_(fast, 0.2)
                if step % 4 == 3:
                    for slow, fast in zip(average.buffers(), model.buffers()):
                        slow.copy_(fast)
                average(torch.randn(5, 3))
        self.assertNotIn(1.0, said(self.NAME))


if __name__ == "__main__":
    unittest.main()
