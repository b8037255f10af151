"""What graphs of losses, counters and samplers say before a step."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import data

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, SignsCase, TARGETS, WATCH, last
from hooks_case import said as scalars


class Losses(HooksCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.net = nn.Linear(5, 4)

    def scores(self):
        return self.net(torch.randn(8, 5))

    def of(self, loss, name):
        """Values of the scalar that a backward of the loss wrote."""
        HooksCase.setUp(self)  # only the first backwards are looked at
        self.backward(loss)
        return scalars(name)

    def test_targets_that_are_no_probabilities(self):
        name = "loss.targets_no_probabilities"
        right = F.one_hot(TARGETS, 4).float()
        logits = F.binary_cross_entropy_with_logits
        for targets, wrong in ((right, 0.0), (0.9 * right, 0.0), (2 * right - 1, 1.0)):
            self.assertEqual(self.of(logits(self.scores(), targets), name), [wrong])
        self.assertEqual(self.of(F.cross_entropy(self.scores(), TARGETS), name), [])

    def attention(self, dimension, mask=False):
        x = self.net(torch.randn(2, 7, 5))
        heads = x.unflatten(2, (2, 2)).transpose(1, 2)
        scores = heads @ heads.transpose(2, 3) / 1.4
        if mask:
            scores = scores.masked_fill(torch.ones(7, 7).triu(1) > 0, -1e9)
        return F.dropout(scores.softmax(dimension), 0.1) @ heads

    def test_attention_over_the_queries(self):
        name = "loss.attends_over_queries"
        for dimension, wrong in ((3, 0.0), (2, 1.0)):
            x = torch.randn(4, 6, 2, 8, requires_grad=True)
            scores = torch.einsum("bqhd,bkhd->bhqk", x, x.exp()) / 3
            weights = (scores + torch.zeros(2, 6, 6)).softmax(dimension)
            mixed = torch.einsum("bhqk,bkhd->bqhd", weights, x)
            self.assertEqual(self.of(mixed.square().mean(), name), [wrong])
        for dimension, wrong in ((-1, 0.0), (3, 0.0), (-2, 1.0), (2, 1.0)):
            for mask in (False, True):
                loss = self.attention(dimension, mask).square().mean()
                self.assertEqual(self.of(loss, name), [wrong])

    def test_what_is_no_attention_over_the_queries(self):
        name = "loss.attends_over_queries"
        x = torch.randn(2, 7, 4, requires_grad=True)
        slots = torch.randn(2, 3, 4)
        weights = (slots @ x.transpose(1, 2)).softmax(1)  # slots compete
        slot_attention = (weights / weights.sum(2, keepdim=True)) @ x
        context = x.softmax(1).transpose(1, 2) @ x  # linear attention
        linear = x.softmax(2) @ context
        chain = self.net.weight[:, :4].softmax(0) @ torch.ones(4, 1)
        fused = F.scaled_dot_product_attention(x, x, x)
        clusters = (x @ torch.randn(4, 3, requires_grad=True)).softmax(2)
        assigned = clusters.transpose(1, 2) @ x
        for result in (slot_attention, linear, chain, fused, assigned):
            self.assertEqual(self.of(result.square().sum(), name), [])

    def test_losses_of_zero(self):
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

        def step(*factors):
            optimizer.zero_grad()
            for factor in factors:
                (factor * self.scores().sum()).backward()
            optimizer.step()
            return scalars("opt.losses_are_zero")[-1]

        self.assertEqual(step(0), 0.0)  # a mistake as well as the end of learning
        self.assertEqual(step(1), 0.0)
        self.assertEqual(step(0, 0), 1.0)
        self.assertEqual(step(0, 1), 0.0)
        self.assertEqual(step(1, 0), 0.0)
        optimizer.zero_grad()
        vector = 0 * self.scores()  # more than one number is not read
        vector.backward(torch.ones_like(vector))
        optimizer.step()
        self.assertNotIn(scalars("opt.losses_are_zero")[-1], (0.0, 1.0))

    def test_normalised_twice(self):
        targets = F.one_hot(TARGETS, 4).float()
        for loss, wrong in (
            (F.cross_entropy(self.scores(), TARGETS), 0.0),
            (F.cross_entropy(self.scores().softmax(1), TARGETS), 1.0),
            (
                F.cross_entropy(self.scores().softmax(1), TARGETS, label_smoothing=0.1),
                1.0,
            ),
            (F.cross_entropy(self.scores().sigmoid(), TARGETS), 1.0),
            (F.cross_entropy(self.scores().log_softmax(1), TARGETS), 0.0),
            (
                F.cross_entropy(self.scores()[None].softmax(2).flatten(0, 1), TARGETS),
                1.0,
            ),
            (F.nll_loss(self.scores().softmax(1).log(), TARGETS), 0.0),
            (F.binary_cross_entropy_with_logits(self.scores(), targets), 0.0),
            (F.binary_cross_entropy_with_logits(self.scores().sigmoid(), targets), 1.0),
            (torch.cat([self.scores().softmax(1)] * 2).softmax(1).square().sum(), 1.0),
        ):
            with self.subTest(wrong=wrong):
                self.assertEqual(self.of(loss, "loss.normalised_twice"), [wrong])
        plain = F.binary_cross_entropy(self.scores().sigmoid(), targets)
        self.assertEqual(self.of(plain, "loss.normalised_twice"), [])

    def test_nll_of_what_is_no_logarithm(self):
        for given, wrong in (
            (self.scores(), 1.0),
            (self.scores().softmax(1), 1.0),
            (self.scores().log_softmax(1), 0.0),
            (self.scores().softmax(1).log(), 0.0),
        ):
            loss = F.nll_loss(given, TARGETS)
            self.assertEqual(self.of(loss, "loss.no_logarithms"), [wrong])

    def test_losses_in_low_precision(self):
        for dtype, wrong in (
            (torch.float32, 0.0),
            (torch.bfloat16, 1.0),
            (torch.float16, 1.0),
        ):
            loss = F.cross_entropy(self.scores().to(dtype), TARGETS)
            self.assertEqual(self.of(loss, "loss.in_low_precision"), [wrong])
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(self.scores(), TARGETS)
        self.assertEqual(self.of(loss, "loss.in_low_precision"), [0.0])

    def test_each_prediction_against_all_targets(self):
        one, targets = nn.Linear(5, 1), torch.randn(8)

        def predictions():
            return one(torch.randn(8, 5))

        for difference, expected in (
            (predictions() - targets, [1.0]),
            (targets - predictions(), [1.0]),
            (predictions().squeeze(1) - targets, [0.0]),
            (predictions()[:1].squeeze(1) - targets, [1.0]),
            # All pairs are asked for where both come from the model.
            (predictions() - predictions().T, []),
        ):
            loss = difference.square().mean()
            self.assertEqual(self.of(loss, "loss.broadcast"), expected)

    def test_targets_of_a_mean(self):
        ignoring = torch.where(TARGETS == 3, -100, TARGETS)
        loss = F.cross_entropy(self.scores(), ignoring)
        self.assertEqual(self.of(loss, "loss.targets"), [6.0])
        total = F.cross_entropy(self.scores(), ignoring, reduction="sum")
        self.assertEqual(self.of(total, "loss.targets"), [])

    def test_the_first_backwards_and_then_some(self):
        for _ in range(130):
            F.cross_entropy(self.scores(), TARGETS).backward()
        self.assertEqual(len(scalars("loss.targets")), 8 + 2)

    def test_losses_without_a_graph(self):
        torch.autograd.backward([self.net.weight.sum()], inputs=[self.net.weight])
        self.net.weight.sum().backward(gradient=torch.tensor(1.0))
        self.assertEqual(scalars("loss.targets"), [])


class LossesOnADevice(Losses):
    ON_DEVICE = True
    # What is a number of one backward alone.
    test_losses_of_zero = None
    test_targets_of_a_mean = None
    test_the_first_backwards_and_then_some = None


class LossSigns(SignsCase):
    def of(self, loss, name):
        HooksCase.setUp(self)  # only the first backwards are looked at
        self.backward(loss)
        return last(name)

    def test_a_copy(self):
        copy = torch.tensor(1.0, requires_grad=True)
        self.assertEqual(self.of(copy, "loss.no_graph"), 1.0)
        self.assertEqual(self.of(copy * 2, "loss.no_graph"), 0.0)
        self.assertEqual(self.of(nn.Parameter(torch.tensor(1.0)), "loss.no_graph"), 0.0)

    def test_over_samples(self):
        name = "loss.over_samples"
        scores = self.net(torch.randn(8, 5))
        for dimension, wrong in ((0, 1.0), (1, 0.0), (-1, 0.0)):
            loss = F.nll_loss(scores.log_softmax(dimension), TARGETS)
            self.assertEqual(self.of(loss, name), wrong)
            scores = self.net(torch.randn(8, 5))
        self.assertEqual(self.of(F.cross_entropy(scores, TARGETS), name), 0.0)
        one = self.net(torch.randn(5)).log_softmax(0)
        self.assertEqual(self.of(F.nll_loss(one, TARGETS[0]), name), 0.0)

    def test_shares_over_samples(self):
        name = "loss.over_samples"
        shares = torch.randn(8, 4).softmax(1)
        both = F.one_hot(TARGETS, 4).float()
        for target, over, wrong in (
            *((shares, 0, 1.0), (shares, 1, 0.0), (both, 0, 1.0), (both, -1, 0.0)),
            *((shares.softmax(0), 0, None), (torch.rand(8, 4), 0, None)),
        ):
            compared = (self.net(torch.randn(8, 5)) / 3).log_softmax(over)
            self.assertEqual(self.of(-(target * compared).sum(1).mean(), name), wrong)
            compared = (self.net(torch.randn(8, 5)) / 3).log_softmax(over)
            self.assertEqual(self.of(F.kl_div(compared, target), name), wrong)

    def of_teacher(self, *over):
        """Beside a cross entropy, with the shares of a teacher over some dimensions."""
        scores = self.net(torch.randn(8, 5))
        loss = F.cross_entropy(scores, TARGETS)
        for one in over:
            given = torch.randn(8, 4).softmax(one)
            loss = loss + F.kl_div((scores / 2).log_softmax(one), given)
        return self.of(loss, "loss.over_samples")

    def test_shares_beside_a_cross_entropy(self):
        self.assertEqual(self.of_teacher(0), 1.0)
        self.assertEqual(self.of_teacher(1), 0.0)
        self.assertEqual(self.of_teacher(0, 1), 0.0)

    def test_kl_of_probabilities(self):
        name = "loss.kl_of_probabilities"
        target = torch.randn(8, 4).softmax(1)
        for reduction in ("batchmean", "sum"):
            for given, wrong in ((F.softmax, 1.0), (F.log_softmax, 0.0)):
                scores = self.net(torch.randn(8, 5))
                loss = F.kl_div(given(scores, dim=1), target, reduction=reduction)
                self.assertEqual(self.of(loss, name), wrong)
        scores = self.net(torch.randn(8, 5)).softmax(1)
        regret = (2.0 - scores * torch.randn(8, 4)).mean()
        self.assertIsNone(self.of(regret, name))

    def test_each_with_each_of_several_dimensions(self):
        name = "loss.broadcast"
        layer = nn.Conv2d(2, 3, 4)
        images = torch.randn(6, 2, 4, 4)
        for target, wrong in (
            (torch.randn(6, 3), 1.0),
            (torch.randn(6, 3, 1, 1), 0.0),
        ):
            loss = (layer(images) - target).abs().mean()
            self.assertEqual(self.of(loss, name), wrong)

    def test_means_that_are_summed(self):
        name = "opt.sums_means"
        self.step()
        self.assertIsNone(last(name))  # one backward a step
        for divisor, wrong in ((1, 1.0), (2, 0.0)):
            self.optimizer.zero_grad()
            for _ in range(2):
                loss = self.loss()
                (loss / divisor if divisor > 1 else loss).backward()
            self.optimizer.step()
            self.assertEqual(last(name), wrong)

    def test_sums_of_means_that_are_summed(self):
        name = "opt.sums_means"
        for divisor, wrong in ((1, 1.0), (2, 0.0)):
            self.optimizer.zero_grad()
            for _ in range(2):
                loss = 0.1 * self.loss() + self.loss()
                (loss / divisor if divisor > 1 else loss).backward()
            self.optimizer.step()
            self.assertEqual(last(name), wrong)

    def test_a_factor_of_one_divides_nothing(self):
        for change, wrong in (
            (lambda loss: loss * 1.0, 1.0),
            (lambda loss: loss / 1, 1.0),
            (lambda loss: 0.1 * loss + 1.0 * loss, 1.0),
            (lambda loss: loss * 0.5, 0.0),
            (lambda loss: loss / 2, 0.0),
            (lambda loss: loss * 1.0 / 2, 0.0),
            (lambda loss: loss * -1.0, 0.0),
            (lambda loss: loss * loss, 0.0),
        ):
            self.setUp()
            self.optimizer.zero_grad()
            for _ in range(2):
                change(self.loss()).backward()
            self.optimizer.step()
            self.assertEqual(last("opt.sums_means"), wrong)

    def accumulate(self, *groups, loss=None):
        """What was said of groups of so many micro-batches, each divided by 3."""
        for count in groups:
            self.optimizer.zero_grad()
            for _ in range(count):
                (loss or (lambda: self.loss() / 3))().backward()
            self.optimizer.step()
        return [value for value in scalars("opt.divides_by_more") if value == value]

    def test_a_last_group_that_is_divided_by_the_number_of_others(self):
        self.assertEqual(self.accumulate(3, 2, 3, 2, 3), [0.0, 0.0, 1.0, 0.0])

    def test_a_factor_divides_too(self):
        found = self.accumulate(3, 1, 1, loss=lambda: self.loss() * (1 / 3))
        self.assertEqual(found, [0.0, 1.0])

    def test_numbers_that_are_no_numbers_of_micro_batches(self):
        self.assertEqual(self.accumulate(2, 1, 1, 4), [])
        self.assertEqual(self.accumulate(3, 2), [0.0])  # once, at the end
        self.setUp()
        for factor in (0.0, 0.3, float("nan"), float("inf"), -1 / 3):
            self.setUp()
            self.assertEqual(
                self.accumulate(3, 1, 1, loss=lambda: self.loss() * factor), []
            )

    def test_two_losses(self):
        for _ in range(3):
            self.optimizer.zero_grad()
            self.loss().backward()
            self.loss().backward()
            self.optimizer.step()
        self.assertIsNone(last("opt.sums_means"))

    def test_not_finite(self):
        name = "opt.loss_not_finite"
        self.step()
        self.assertEqual(last(name), 0.0)
        self.optimizer.zero_grad()
        (self.loss() * float("inf")).backward()
        self.optimizer.zero_grad()  # left out
        self.step()
        self.assertEqual(last(name), 0.0)
        self.optimizer.zero_grad()
        (self.loss() * float("inf")).backward()
        self.optimizer.step()
        self.assertEqual(last(name), 1.0)

    def test_a_checkpoint_that_cuts(self):
        layer = nn.Linear(5, 5)
        for reentrant, given, wrong in (
            (True, torch.randn(8, 5), 1.0),
            (True, torch.randn(8, 5, requires_grad=True), 0.0),
            (False, torch.randn(8, 5), 0.0),
        ):
            hidden = torch.utils.checkpoint.checkpoint(
                layer, given, use_reentrant=reentrant
            )
            loss = F.cross_entropy(self.net(hidden), TARGETS)
            loss.backward()
            self.assertEqual(last("recompute.cut"), wrong)


class LossSignsOnADevice(LossSigns):
    ON_DEVICE = True

    def test_not_finite(self):
        name = "opt.loss_not_finite"
        self.optimizer.zero_grad()
        (self.loss() * float("inf")).backward()
        self.optimizer.zero_grad()  # left out
        self.step()
        self.step()
        self.assertEqual(last(name), 0.0)
        for factor, wrong in ((1.0, 0.0), (float("inf"), 1.0)):
            self.optimizer.zero_grad()
            (factor * self.loss()).backward()
            self.optimizer.step()
            self.step()  # by now it has come
            self.assertEqual(last(name), wrong)


class Counting(nn.Module):
    """Counts its calls, and drops out."""

    def __init__(self, counts=True):
        super().__init__()
        self.layer = nn.Linear(5, 4)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros(()))
        self.counts = counts

    def forward(self, x):
        if self.counts:
            self.calls += 1
        return F.dropout(self.norm(self.layer(x)), 0.5)


class Recomputed(HooksCase):
    def of(self, model, name, **options):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = model

            def forward(self, x):
                if options:
                    return torch.utils.checkpoint.checkpoint(self.inner, x, **options)
                return self.inner(x)

        x = torch.randn(8, 5, requires_grad=True)
        net = Net()
        net(x).sum().backward()
        return scalars(name)

    def test_buffers_that_are_written_twice(self):
        for reentrant in (False, True):
            for counts in (True, False):
                HooksCase.setUp(self)
                found = self.of(
                    Counting(counts),
                    "recompute.writes_buffers",
                    use_reentrant=reentrant,
                )
                self.assertEqual(found, [float(counts)])
        HooksCase.setUp(self)
        self.assertEqual(self.of(Counting(), "recompute.writes_buffers"), [])

    def test_random_numbers_that_are_drawn_anew(self):
        name = "recompute.redraws"
        kept = self.of(Counting(), name, use_reentrant=False)
        self.assertEqual(kept, [])
        anew = self.of(Counting(), name, use_reentrant=False, preserve_rng_state=False)
        self.assertEqual(anew, [1.0])
        none = self.of(
            nn.Linear(5, 4), name, use_reentrant=False, preserve_rng_state=False
        )
        self.assertEqual(none, [1.0, 0.0])


class Steps(HooksCase):
    def test_how_far_a_counter_counts(self):
        net = nn.Linear(2, 1)
        optimizer = torch.optim.Adam(net.parameters())
        for dtype in (torch.float32, torch.bfloat16):
            net(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            for state in optimizer.state.values():
                state["step"] = state["step"].to(dtype)
        optimizer.step()
        self.assertEqual(scalars("counter_bits"), [24.0, 8.0])


class Schedules(HooksCase):
    def setUp(self):
        super().setUp()
        self.net = nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def step(self, scheduler, times=1):
        self.net(torch.ones(1, 2)).sum().backward()
        self.optimizer.step()
        for _ in range(times):
            scheduler.step()

    def test_how_far_it_moves_between_two_steps(self):
        lr_scheduler = torch.optim.lr_scheduler
        scheduler = lr_scheduler.SequentialLR(
            self.optimizer,
            [
                lr_scheduler.ConstantLR(self.optimizer),
                lr_scheduler.ExponentialLR(self.optimizer, 0.9),
            ],
            milestones=[2],
        )
        for times in (1, 1, 1, 1, 2, 2):
            self.step(scheduler, times)
        # Before the first step it has not moved yet; written where it changes.
        self.assertEqual(scalars("schedule_moved"), [1.0, 2.0])

    def test_one_of_another_optimizer(self):
        other = torch.optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(other, 0.9)
        for _ in range(5):
            self.step(scheduler)
        self.assertEqual(max(scalars("schedule_idle")), 4.0)

    def test_one_of_its_own(self):
        scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        for _ in range(5):
            self.step(scheduler)
        self.assertEqual(max(scalars("schedule_idle")), 0.0)


if __name__ == "__main__":
    unittest.main()
