"""Graphs of losses that are right and come close to a mistake."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import GraphCase, HooksCase, TARGETS, last, said
from _traincheck import attention, label_graph

ROWS = 8


class LossCase(GraphCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.net = nn.Linear(5, 4)

    def scores(self, outputs=4):
        net = self.net if outputs == 4 else nn.Linear(5, outputs)
        return net(torch.randn(ROWS, 5))


class LossesThatAreWeighedByZero(HooksCase):
    """Of a discriminator that begins some steps later than its generator."""

    NAME = "opt.losses_are_zero"

    def setUp(self):
        super().setUp()
        self.generator, self.critic = nn.Linear(3, 5), nn.Linear(5, 1)
        self.steppers = [
            torch.optim.SGD(net.parameters(), lr=0.1)
            for net in (self.generator, self.critic)
        ]

    def train(self, weight, clears=False, freezes=False, own=None):
        """What the critic's step says. own: gives the critic's loss."""
        self.critic.requires_grad_(not freezes)
        for _ in range(2):  # both gather gradients
            if clears:
                self.steppers[0].zero_grad()
            fake = self.generator(torch.randn(4, 3))
            loss = fake.square().mean() - weight * self.critic(fake).mean()
            loss.backward()
            self.critic.requires_grad_(True)
            if clears:
                self.steppers[0].step()
                self.steppers[1].zero_grad()
            (own or self.hinge)(weight, fake.detach()).backward()
        for stepper in self.steppers[int(clears) :]:
            stepper.step()
            stepper.zero_grad()
        return last(self.NAME)

    def hinge(self, weight, fake):
        real = self.critic(torch.randn(4, 5))
        return weight * (F.relu(1 - real).mean() + F.relu(1 + self.critic(fake)).mean())

    def test_up_to_its_first_step(self):
        for clears in (False, True):
            for freezes in (False, True):
                for _ in range(3):
                    self.assertEqual(self.train(0.0, clears, freezes), 1.0)
                for _ in range(2):
                    self.assertNotEqual(self.train(1.0, clears, freezes), 1.0)

    def test_a_loss_that_is_not_zero_without_gradients(self):
        def dead(weight, fake):
            return self.critic(fake).mean() * 0 + 1

        for _ in range(3):
            self.assertNotEqual(self.train(0.0, own=dead), 1.0)

    def test_one_of_its_losses_is_not_zero(self):
        weights = iter((0.0, 1.0) * 3)
        for _ in range(3):
            own = lambda weight, fake: self.hinge(next(weights), fake)
            self.assertNotEqual(self.train(0.0, own=own), 1.0)

    def test_a_loss_that_does_not_reach_it(self):
        def detached(weight, fake):
            return torch.zeros((), requires_grad=True) * 1.0

        for _ in range(3):
            self.assertNotEqual(self.train(1.0, own=detached), 1.0)


class NormalisedTwice(LossCase):
    NAME = "loss.normalised_twice"

    def of_head(self, activate, piece):
        """Of a detector whose head gives several things side by side."""
        y = self.scores()
        head = torch.cat((y[:, :2].sigmoid(), y[:, 2:3].exp(), activate(y[:, 3:])), 1)
        targets = torch.rand(ROWS, 1).round()
        return self.of(F.binary_cross_entropy_with_logits(piece(head), targets))

    def test_scores_beside_probabilities(self):
        for piece in (
            lambda head: head[:, 3:],
            lambda head: head[:, -1:],
            lambda head: head[:, 2:][:, 1:],
            lambda head: head.view(2, 4, 4).permute(0, 2, 1)[:, 3:].reshape(ROWS, 1),
        ):
            self.assertEqual(self.of_head(lambda y: y, piece), [0.0])

    def test_probabilities_beside_other_things(self):
        self.assertEqual(self.of_head(torch.sigmoid, lambda head: head[:, 3:]), [1.0])
        self.assertEqual(self.of_head(torch.sigmoid, lambda head: head[:, -1:]), [1.0])
        both = lambda head: head[:, :1]
        self.assertEqual(self.of_head(lambda y: y, both), [1.0])


class Broadcast(LossCase):
    NAME = "loss.broadcast"

    def test_soft_histograms_of_as_many_bins_as_rows(self):
        centers = torch.linspace(0, 1, ROWS)
        kernels = [
            lambda far: torch.exp(-far.square()),
            lambda far: (1 - far.abs()).clamp(min=0),
        ]
        if not self.ON_DEVICE:  # exponents are not copied
            kernels.append(lambda far: (1 + far.square()).pow(-1))
        for kernel in kernels:
            values = self.scores(1).squeeze(1)
            bins = kernel(values[:, None] - centers).mean(0)
            self.assertNotIn(1.0, self.of((bins - 1 / ROWS).square().sum()))

    def test_errors_of_several_kinds(self):
        targets = torch.randn(ROWS)
        zeros = torch.zeros(ROWS, ROWS)
        for error in (
            lambda far: far.square().mean().sqrt(),
            lambda far: torch.maximum(0.9 * far, -0.1 * far).mean(),
            lambda far: torch.where(
                far.abs() < 1, far * far / 2, far.abs() - 0.5
            ).sum(),
            lambda far: F.mse_loss(far, zeros) * 3 + 1,
            lambda far: 1 - far.norm(),
        ):
            self.assertEqual(self.of(error(self.scores(1) - targets)), [1.0])

    def test_one_value_of_all_that_was_drawn_in_a_state(self):
        rewards = torch.randn(ROWS)
        for state in (torch.randn(5), torch.randn(1, 5)):
            value = nn.Linear(5, 1)(state).flatten()
            self.assertEqual(self.of((rewards - value).square().mean()), [])

    def test_one_prediction_for_a_batch(self):
        loader = DataLoader(TensorDataset(torch.randn(ROWS)), batch_size=ROWS)
        for (targets,) in loader:
            one = nn.Linear(5, 1)(torch.randn(1, 5)).squeeze(-1)
            self.backward((one - targets).square().mean())
        self.assertEqual(said(self.NAME), [1.0])


class NoGraph(LossCase):
    NAME = "loss.no_graph"

    def test_a_batch_of_which_nothing_counts(self):
        for zero in (torch.tensor(0.0), torch.zeros(1)):
            self.assertEqual(self.of(zero.requires_grad_()), [0.0])
        self.assertEqual(self.of(torch.tensor(0.5, requires_grad=True)), [1.0])


class OverSamples(LossCase):
    NAME = "loss.over_samples"

    def of_pairs(self, match):
        likeness = self.scores() @ self.scores().t()
        return self.of(F.nll_loss(likeness.log_softmax(0), match))

    def test_pairs_that_are_looked_for_in_both_directions(self):
        self.assertEqual(self.of_pairs(torch.arange(ROWS)), [])
        self.assertEqual(self.of_pairs(torch.randperm(ROWS)), [])

    def test_as_many_classes_as_samples(self):
        self.assertEqual(self.of_pairs(TARGETS), [1.0])


class KlOfProbabilities(LossCase):
    NAME = "loss.kl_of_probabilities"

    def setUp(self):
        super().setUp()
        self.ones = F.one_hot(TARGETS, 4).float()

    def test_costs_of_what_is_missing(self):
        p, cost = self.scores().softmax(1), torch.tensor([1.0, 1.0, 2.0, 5.0])
        right = self.ones * p
        loss = (cost * (self.ones - right) + (p - right)).sum(1).mean()
        self.assertEqual(self.of(loss), [])

    def test_divergences(self):
        soft = 0.9 * self.ones + 0.025
        for targets, reduction in (
            (self.ones, "batchmean"),
            (self.ones, "mean"),
            (soft, "sum"),
            (soft, "none"),
        ):
            p = self.scores().softmax(1)
            loss = F.kl_div(p, targets, reduction=reduction).sum()
            self.assertEqual(self.of(loss), [1.0])


class TargetsNoProbabilities(LossCase):
    NAME = "loss.targets_no_probabilities"

    def test_missing_labels_that_are_left_out(self):
        labels = torch.randint(-1, 2, (ROWS, 4)).float()
        known = (labels >= 0).float()
        logits = F.binary_cross_entropy_with_logits
        loss = logits(self.scores(), labels, reduction="none")
        self.assertEqual(self.of((loss * known).sum() / known.sum()), [])
        self.assertEqual(self.of(logits(self.scores(), labels)), [1.0])
        if not self.ON_DEVICE:
            weighed = logits(self.scores(), labels, weight=known)
            self.assertEqual(self.of(weighed), [0.0])
            weighed = logits(self.scores(), labels, weight=1 + known)
            self.assertEqual(self.of(weighed), [1.0])


class AttendsOverQueries(LossCase):
    NAME = "loss.attends_over_queries"

    def test_patterns_that_are_stored_in_columns(self):
        for product in (torch.matmul, torch.mm):
            stored = torch.randn(4, 7)
            state = self.scores().t()
            weights = product(stored.t(), state).softmax(0)
            self.assertEqual(self.of(product(stored, weights).square().sum()), [])

    def test_weights_on_the_left(self):
        keys, values = torch.randn(7, 4), torch.randn(7, 3)
        weights = (self.scores() @ keys.t()).softmax(0)
        self.assertEqual(self.of((weights @ values).square().sum()), [1.0])
        weights = torch.bmm(self.scores()[None], keys.t()[None]).softmax(1)
        grown = torch.baddbmm(torch.zeros(1, ROWS, 3), weights, values[None])
        self.assertEqual(self.of(grown.square().sum()), [1.0])


class NoSigns(LossCase):
    NAME = "loss.labels_no_signs"

    def ranks(self, labels, margin):
        scores = self.scores()
        return F.margin_ranking_loss(scores[:, 0], scores[:, 1], labels, margin=margin)

    def test_ties_that_count_nothing(self):
        ties = torch.tensor([1.0, -1, 0, 1, -1, 0, 0, 1])
        for margin in (0.0, 0.2):
            self.assertEqual(self.of(self.ranks(ties, margin)), [0.0])
            self.assertEqual(self.of(self.ranks(ties.abs(), margin)), [1.0])

    def test_soft_margins(self):
        signs = torch.randn(ROWS, 4).sign()
        known = signs * torch.rand(ROWS, 4).round()
        self.assertEqual(self.of(F.soft_margin_loss(self.scores(), known)), [0.0])
        single = F.soft_margin_loss(self.scores(), known.abs(), reduction="none")
        self.assertEqual(self.of((single * known).sum()), [])
        for labels in ((signs > 0).float(), 2 * signs):
            loss = F.soft_margin_loss(self.scores(), labels)
            self.assertEqual(self.of(loss), [1.0])
        for labels in (signs > 0, (signs > 0).to(torch.uint8)):
            self.assertTrue(label_graph._are_no_signs(labels))

    def test_masks_of_hinges(self):
        for mask in (torch.rand(ROWS) > 0.3, torch.rand(ROWS).round()):
            scores = self.scores()
            hinge = (mask * (scores[:, 0] - scores[:, 1]) + 0.2).clamp(min=0)
            self.assertNotIn(1.0, self.of(hinge.mean()))

    def test_values_that_are_missing(self):
        error = self.scores().square()
        known = torch.ones(ROWS, dtype=torch.bool), torch.rand(ROWS) > 0.4
        parts = [torch.where(one, error[:, i], 0.0) for i, one in enumerate(known)]
        self.assertEqual(self.of((parts[0] + parts[1]).sum()), [])


class CtcOfScores(LossCase):
    NAME = "loss.ctc_of_scores"

    def of_frames(self, values, lengths):
        letters = torch.randint(1, 4, (3, 2))
        return self.of(F.ctc_loss(values, letters, lengths, torch.full((3,), 2)))

    def test_frames_behind_the_end(self):
        lengths = torch.tensor([9, 7, 5])
        parts = [nn.Linear(5, 4)(torch.randn(n, 5)).log_softmax(1) for n in lengths]
        padded = nn.utils.rnn.pad_sequence(parts)
        self.assertEqual(self.of_frames(padded, lengths), [0.0])
        parts = [nn.Linear(5, 4)(torch.randn(n, 5)) for n in lengths]
        padded = nn.utils.rnn.pad_sequence(parts)
        self.assertEqual(self.of_frames(padded, lengths), [1.0])

    def test_one_sequence(self):
        lengths = torch.tensor(9), torch.tensor(2)
        for activate, wrong in ((lambda x: x, 1.0), (lambda x: x.log_softmax(1), 0.0)):
            values = activate(nn.Linear(5, 4)(torch.randn(9, 5)))
            loss = F.ctc_loss(values, torch.tensor([1, 2]), *lengths)
            self.assertEqual(self.of(loss), [wrong])


class Bootstraps(LossCase):
    NAME = "loss.bootstraps_with_gradient"

    def test_residuals_of_an_equation(self):
        value = nn.Linear(5, 1)
        now, then = torch.randn(ROWS, 5), torch.randn(ROWS, 5)
        utility, goes_on = torch.randn(ROWS, 1), torch.rand(ROWS, 1).round()
        residual = lambda factor: F.mse_loss(value(now), factor * value(then) + utility)
        self.assertEqual(self.of(residual(0.9)), [])
        self.assertEqual(self.of(residual(0.9 * goes_on)), [1.0])

    def test_a_target_network_with_weights_of_its_own(self):
        value, target = nn.Linear(5, 3), nn.Linear(5, 3)
        now, then = torch.randn(ROWS, 5), torch.randn(ROWS, 5)
        for net, said in ((target, []), (value, [1.0])):
            best = 0.9 * net(then).max(1)[0] + torch.rand(ROWS)
            self.assertEqual(self.of(F.smooth_l1_loss(value(now)[:, 0], best)), said)


class PenaltyOfParts(LossCase):
    NAME = "loss.penalty_of_parts"

    def of_layers(self, *kernels):
        sizes = [3, *[6] * (len(kernels) - 1), 1]
        layers = []
        for i, kernel in enumerate(kernels):
            layers += [nn.Conv1d(sizes[i], sizes[i + 1], kernel), nn.Softplus()]
        points = torch.randn(4, 3, 10, requires_grad=True)
        whole = nn.Sequential(*layers)(points).sum()
        (slope,) = torch.autograd.grad(whole, points, create_graph=True)
        return self.of((slope.norm(dim=1) - 1).square().mean())

    def test_points_that_are_samples(self):
        self.assertEqual(self.of_layers(1, 1, 1), [])

    def test_series_whose_steps_come_first(self):
        series = torch.randn(7, 3, 2, requires_grad=True)
        layers = nn.Sequential(nn.Conv1d(2, 4, 3), nn.Tanh(), nn.Conv1d(4, 1, 5))
        for over, found in ((-1, [1.0]), ((0, 2), [0.0])):
            whole = layers(series.permute(1, 2, 0)).sum()
            (slope,) = torch.autograd.grad(whole, series, create_graph=True)
            found_now = self.of((slope.norm(dim=over) - 1).square().mean())
            self.assertEqual(found_now, found)

    def test_pictures_behind_a_layer_of_points(self):
        self.assertEqual(self.of_layers(1, 3, 1), [1.0])


class SeveralLabels(LossCase):
    NAME = "loss.several_labels"

    def test_the_likelihood_of_all_that_was_chosen(self):
        chosen = torch.rand(ROWS, 4).round()
        for whole in (
            -(self.scores().log_softmax(1) * chosen).sum() / ROWS,
            -(self.scores().log_softmax(1) * chosen).sum(),
        ):
            self.assertEqual(self.of(whole), [])
        self.assertEqual(self.of(F.cross_entropy(self.scores(), chosen)), [1.0])


class Bounds(LossCase):
    """What is large is looked at in part, or not at all."""

    def test_large_tensors(self):
        self.addCleanup(setattr, label_graph, "_MOST", label_graph._MOST)
        label_graph._MOST = 16
        ones = F.one_hot(TARGETS, 4).float()
        loss = F.cross_entropy(self.scores(), ones)
        self.assertEqual(label_graph._has_several_labels(loss.grad_fn), None)
        twin = torch.arange(ROWS).roll(4)
        z = F.normalize(self.scores(), dim=1)
        loss = F.cross_entropy(z @ z.t() / 0.1, twin)
        self.assertTrue(label_graph._contrasts_with_itself(loss.grad_fn))
        values = torch.randn(9, 3, 4, requires_grad=True)
        letters, sizes = torch.ones(3, 2).long(), (torch.full((3,), n) for n in (9, 2))
        loss = F.ctc_loss(values, letters, *sizes, reduction="none")
        self.assertTrue(label_graph._are_no_logarithms(loss.grad_fn))

    def test_pairs_of_many_tokens(self):
        self.addCleanup(setattr, attention, "_MOST", attention._MOST)
        attention._MOST = 8
        x = torch.randn(2, 1, 4, 3, requires_grad=True)
        mixed = F.scaled_dot_product_attention(x, x, x)
        real = torch.tensor([[True, True, True, False]] * 2)
        self.assertIsNone(attention.find(mixed.grad_fn).sees_padding(real))


class NormalisedTwiceOnADevice(NormalisedTwice):
    ON_DEVICE = True
    # Where a slice begins is not copied: it is taken for all of the concatenation.
    test_probabilities_beside_other_things = None


class BroadcastOnADevice(Broadcast):
    ON_DEVICE = True


class NoGraphOnADevice(NoGraph):
    ON_DEVICE = True


class KlOfProbabilitiesOnADevice(KlOfProbabilities):
    ON_DEVICE = True


class NoSignsOnADevice(NoSigns):
    ON_DEVICE = True


class CtcOfScoresOnADevice(CtcOfScores):
    ON_DEVICE = True


class BootstrapsOnADevice(Bootstraps):
    ON_DEVICE = True


class PenaltyOfPartsOnADevice(PenaltyOfParts):
    ON_DEVICE = True


class SeveralLabelsOnADevice(SeveralLabels):
    ON_DEVICE = True


if __name__ == "__main__":
    unittest.main()
