"""Losses whose right answer is among the wrong ones."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, last

MANY, SOME = "loss.answers_alike", "loss.some_answers_alike"


class Ties(HooksCase):
    def setUp(self):
        super().setUp()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05)

    def train(self, loss, steps=34):
        """What is known at the end."""
        for _ in range(steps + self.ON_DEVICE):
            self.optimizer.zero_grad()
            loss().backward()
            self.optimizer.step()
        return last(MANY), last(SOME)

    def scores(self, tied, rows=32):
        """Of pairs, the first so many of which are alike."""
        right, wrong = torch.randn(2, rows, 6)
        wrong[:tied] = right[:tied]
        return self.net(right).squeeze(-1), self.net(wrong).squeeze(-1)


class Pairs(Ties):
    def test_pairs_of_one_sample(self):
        def loss():
            right, wrong = self.scores(4)
            return -F.logsigmoid(0.3 * (right - wrong)).mean()

        self.assertEqual(self.train(loss), (1.0, 0.0))
        self.setUp()
        self.assertEqual(self.train(lambda: F.softplus(-loss()).mean()), (None, None))

    def test_softplus_of_several_steps(self):
        def loss():
            right, wrong = self.scores(4)
            return F.softplus(wrong - right).sum() / 32 / 4

        self.assertEqual(self.train(loss), (1.0, 0.0))

    def test_a_reference(self):
        """Preferences: what the reference says is subtracted from both."""
        reference = [torch.randn(32), torch.randn(32)]
        reference[1][:4] = reference[0][:4]

        def loss(first=True):
            right, wrong = self.scores(4)
            if first:
                moved = (right - reference[0]) - (wrong - reference[1])
            else:
                moved = (right - wrong) - (reference[0] - reference[1])
            return -F.logsigmoid(0.1 * moved).mean()

        self.assertEqual(self.train(loss), (1.0, 0.0))
        self.setUp()
        self.assertEqual(self.train(lambda: loss(False)), (1.0, 0.0))

    def test_one_of_each_batch(self):
        def loss():
            right, wrong = self.scores(1, rows=64)
            return -F.logsigmoid(right - wrong).mean()

        self.assertEqual(self.train(loss), (0.0, 1.0))

    def test_other_pairs(self):
        def loss():
            right, wrong = self.scores(0)
            return -F.logsigmoid(right - wrong).mean()

        self.assertEqual(self.train(loss), (0.0, 0.0))

    def test_a_policy_that_is_its_reference_still(self):
        steps = iter(range(99))

        def loss():
            right, wrong = self.scores(32 if next(steps) < 3 else 0)
            return -F.logsigmoid(right - wrong).mean()

        self.assertEqual(self.train(loss)[0], 0.0)

    def test_padding_that_is_left_out_afterwards(self):
        """Positions behind the end have items of zeros, whose scores are 0."""
        kept = torch.arange(32) >= 8

        def scores():
            right, wrong = self.scores(0)
            return right * kept, wrong * kept

        def selected():
            right, wrong = scores()
            return -F.logsigmoid(right - wrong)[kept].mean()

        def weighted():
            right, wrong = scores()
            return -(F.logsigmoid(right - wrong) * kept).sum() / kept.sum()

        for loss in (selected, weighted):
            self.setUp()
            self.assertEqual(self.train(loss), (None, None))

    def test_each_with_all(self):
        def loss():
            right, _ = self.scores(0, rows=8)
            return F.softplus(right[None] - right[:, None]).mean()

        self.assertEqual(self.train(loss), (None, None))

    def test_a_table_of_strengths(self):
        """Those of players who have not played are equal still."""
        strengths = nn.Embedding(40, 1)
        nn.init.zeros_(strengths.weight)
        self.optimizer = torch.optim.SGD(strengths.parameters(), lr=0.1)

        def loss():
            one, other = strengths(torch.randint(0, 40, (2, 8))).squeeze(-1)
            return -F.logsigmoid(one - other).mean()

        self.assertEqual(self.train(loss), (None, None))

        def rows():
            numbers = torch.randint(0, 40, (2, 8))
            one, other = (strengths.weight[some] for some in numbers)
            return -F.logsigmoid(one - other).mean()

        self.setUp()
        self.assertEqual(self.train(rows), (None, None))

    def test_scores_that_end_at_a_limit(self):
        def loss():
            right, wrong = self.scores(0)
            return -F.logsigmoid(F.relu(right) - F.relu(wrong)).mean()

        self.assertEqual(self.train(loss), (None, None))

    def test_scores_that_are_rounded(self):
        def loss():
            right, wrong = (one.bfloat16().float() for one in self.scores(4))
            return -F.logsigmoid(right - wrong).mean()

        self.assertEqual(self.train(loss), (None, None))

    def test_a_margin(self):
        def loss():
            right, wrong = self.scores(4)
            return -F.logsigmoid(right - wrong - 0.5).mean()

        self.assertEqual(self.train(loss), (0.0, 0.0))

    def test_few_looks(self):
        def loss():
            right, wrong = self.scores(4)
            return -F.logsigmoid(right - wrong).mean()

        self.assertEqual(self.train(loss, steps=5), (None, None))


class Choices(Ties):
    def setUp(self):
        super().setUp()
        self.net = nn.Linear(6, 8)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05)

    def loss(self, tied, target=0, candidates=6):
        """Of one right and five wrong candidates, so many of which are the right one."""
        asked, found = torch.randn(32, 6), torch.randn(32, candidates, 6)
        found[:, 1 : 1 + tied] = found[:, :1]
        asked, found = self.net(asked), self.net(found)
        scores = torch.einsum("bd,bkd->bk", asked, found) / 0.5
        return F.cross_entropy(scores, torch.full((32,), target))

    def test_the_right_one_again(self):
        self.assertEqual(self.train(lambda: self.loss(1)), (1.0, 0.0))

    def test_other_candidates(self):
        self.assertEqual(self.train(lambda: self.loss(0)), (0.0, 0.0))

    def test_a_temperature_that_is_trained(self):
        warmth = nn.Parameter(torch.zeros(()))

        def loss():
            asked, found = self.net(torch.randn(32, 6)), torch.randn(32, 6, 6)
            found[:, 1] = found[:, 0]
            scores = (asked[:, None] @ self.net(found).transpose(1, 2)).squeeze(1)
            return F.cross_entropy(scores * warmth.exp(), torch.zeros(32).long())

        self.assertEqual(self.train(loss), (1.0, 0.0))

    def test_wrong_ones_that_are_alike(self):
        self.assertEqual(self.train(lambda: self.loss(1, target=4)), (0.0, 0.0))

    def test_all_alike(self):
        self.assertEqual(self.train(lambda: self.loss(5)), (None, None))

    def test_answers_within_a_batch(self):
        """Two texts of one meaning are wrong answers to each other."""

        def loss():
            asked, found = torch.randn(2, 8, 6)
            found[1] = found[0]
            scores = self.net(asked) @ self.net(found).T
            return F.cross_entropy(scores, torch.arange(8))

        self.assertEqual(self.train(loss), (None, None))

    def test_a_layer_with_equal_classes(self):
        head = nn.Linear(8, 5)
        nn.init.zeros_(head.weight[1:])
        nn.init.zeros_(head.bias)

        def loss():
            scores = head(self.net(torch.randn(32, 6)))
            return F.cross_entropy(scores, torch.ones(32).long())

        self.assertEqual(self.train(loss), (None, None))


class PairsOnADevice(Pairs):
    """Their values come later."""

    ON_DEVICE = True


class ChoicesOnADevice(Choices):
    ON_DEVICE = True


if __name__ == "__main__":
    unittest.main()
