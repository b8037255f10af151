"""Tests of hooks/filled_rows.py."""

import unittest

import torch
from hooks_case import HooksCase, said
from torch import nn

NAME = "opt.rows_of_one_number"


class Conditioned(nn.Module):
    """Takes a time, or a weight, of the width of a sample beside it."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(12, 2)

    def forward(self, x, time):
        return self.body(torch.cat([x, time], 1))


class Deep(nn.Module):
    """Takes a dictionary or a list of what it reads."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 2)

    def forward(self, batch):
        return self.body(batch["x"] if isinstance(batch, dict) else batch[0])


def filled(rows=16, columns=6):
    return torch.randn(rows, 1).repeat(1, columns)


class FilledRows(HooksCase):
    def trained(self, given, net=None, steps=6):
        """given: makes what the model is called with, of the number of the step."""
        HooksCase.setUp(self)
        net = net or nn.Linear(6, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for number in range(steps):
            optimizer.zero_grad()
            args = given(number)
            net(*(args if isinstance(args, tuple) else (args,))).mean().backward()
            optimizer.step()
        # Only what changes is written, and NaN where nobody looked any more.
        return [one for one in said(NAME) if one == one]

    def test_a_buffer_whose_rows_are_filled(self):
        self.assertEqual(self.trained(lambda n: filled()), [1.0])

    def test_of_other_types_and_in_containers(self):
        for form in (torch.float64, torch.bfloat16):
            net = nn.Linear(6, 2).to(form)
            self.assertIn(1.0, self.trained(lambda n: filled().to(form), net))
        self.assertIn(1.0, self.trained(lambda n: {"x": filled()}, Deep()))
        self.assertIn(1.0, self.trained(lambda n: [filled()], Deep()))

    def test_a_policy_that_acts_with_whole_rows(self):
        policy, critic = nn.Linear(6, 1), Conditioned()
        critic.body = nn.Linear(7, 1)
        optimizer = torch.optim.SGD([*policy.parameters(), *critic.parameters()], 0.01)
        for _ in range(4):
            with torch.no_grad():
                policy(torch.randn(16, 6))
            states = filled()
            critic(states, torch.randn(16, 1)).mean().backward()
            critic(states, policy(states)).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        self.assertEqual(said(NAME)[:1], [1.0])

    def test_rows_that_vary(self):
        self.assertEqual(self.trained(lambda n: torch.randn(16, 6)), [0.0])

    def test_at_one_look_only(self):
        """Stacks of frames begin with copies of the first one."""
        begins = lambda n: filled() if n < 3 else torch.randn(16, 6)
        self.assertEqual(self.trained(begins, steps=2), [1.0])
        once = lambda n: filled() if n < 1 else torch.randn(16, 6)
        self.assertNotIn(1.0, self.trained(once))

    def test_some_rows_are_not(self):
        mixed = lambda n: torch.cat([filled(15), torch.randn(1, 6)])
        self.assertNotIn(1.0, self.trained(mixed))

    def test_what_says_nothing(self):
        columns = torch.randn(6)
        for given in (
            lambda n: torch.zeros(16, 6),
            lambda n: torch.full((16, 6), 0.25),
            lambda n: torch.rand(16, 1).gt(0.5).float().repeat(1, 6),  # a mask
            lambda n: torch.randint(9, (16, 1)).repeat(1, 6).float(),  # classes
            lambda n: torch.arange(16.0)[:, None].repeat(1, 6),  # a dummy
            lambda n: filled(7),
            lambda n: torch.randn(16, 1).expand(-1, 6),
            lambda n: filled().requires_grad_(),
        ):
            self.assertEqual(self.trained(given), [])
        repeated = lambda n: columns.repeat(16, 1)  # constant over the rows
        self.assertNotIn(1.0, self.trained(repeated))
        self.assertEqual(self.trained(lambda n: filled(16, 3), nn.Linear(3, 2)), [])
        self.assertEqual(self.trained(lambda n: filled(16, 1), nn.Linear(1, 2)), [])
        nan = lambda n: torch.full((16, 6), float("nan"))
        self.assertNotIn(1.0, self.trained(nan))

    def test_pictures_of_one_grey(self):
        net = nn.Sequential(nn.Flatten(), nn.Linear(36, 2))
        grey = lambda n: torch.rand(16, 1, 1, 1).repeat(1, 1, 6, 6)
        self.assertEqual(self.trained(grey, net), [])

    def test_ids(self):
        net = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(24, 2))
        ids = lambda n: torch.randint(9, (16, 1)).repeat(1, 6)
        self.assertEqual(self.trained(ids, net), [])

    def test_times_beside_samples(self):
        for sample in (torch.randn(16, 6), torch.randn(16, 6).double().float()):
            beside = lambda n: (sample, torch.rand(16, 1).repeat(1, 6))
            self.assertNotIn(1.0, self.trained(beside, Conditioned()))
        net = Conditioned()
        net.body = nn.Linear(7, 2)
        one = lambda n: (torch.randn(16, 1), torch.rand(16, 1).repeat(1, 6))
        self.assertEqual(self.trained(one, net), [])

    def test_a_loss_with_parameters_of_its_own(self):
        class Weighted(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(()))

            def forward(self, scores, targets):
                return self.weight * (scores - targets).square().mean()

        net, criterion = nn.Linear(5, 6), Weighted()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(4):
            optimizer.zero_grad()
            criterion(net(torch.randn(16, 5)), filled()).backward()
            optimizer.step()
        self.assertNotIn(1.0, said(NAME))

    def test_transforms_and_subclasses(self):
        net = nn.Linear(6, 2)
        torch.func.vmap(net, randomness="different")(filled(4 * 16).view(4, 16, 6))
        torch.jit.trace(net, filled())
        kept = filled().as_subclass(
            nn.Buffer if hasattr(nn, "Buffer") else nn.Parameter
        )
        self.assertEqual(self.trained(lambda n: kept), [])

    def test_later_looks_are_bounded(self):
        varied = lambda n: torch.randn(16, 6)
        self.assertEqual(len(self.trained(varied, steps=130)), 3)


class OnDevice(HooksCase):
    ON_DEVICE = True

    def test_is_not_known(self):
        net = nn.Linear(6, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(4):
            net(filled()).mean().backward()
            optimizer.step()
        self.assertEqual(said(NAME), [])


if __name__ == "__main__":
    unittest.main()
