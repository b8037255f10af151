"""Tests of hooks/still_ratios.py."""

import unittest

import torch
from hooks_case import GraphCase, HooksCase, said
from torch import nn
from torch.distributions import Categorical, Normal

NAME = "loss.ratio_stays_one"
ACTIONS = 4


class Case(HooksCase):
    def setUp(self):
        super().setUp()
        self.net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, ACTIONS))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.01)

    def acting(self, states):
        return Categorical(logits=self.net(states))

    def sample(self, states=None):
        states = torch.randn(64, 5) if states is None else states
        with torch.no_grad():
            acting = self.acting(states)
            actions = acting.sample()
        return states, actions, acting.log_prob(actions), torch.randn(len(states))

    def step(self, states, actions, before, rewards, steps=True, clip=0.2):
        """before: None, as the wrong ones do."""
        now = self.acting(states).log_prob(actions)
        ratio = (now - (now.detach() if before is None else before)).exp()
        clipped = ratio.clamp(1 - clip, 1 + clip)
        self.backward(-torch.min(ratio * rewards, clipped * rewards).mean())
        if steps:
            self.optimizer.step()
            self.optimizer.zero_grad()

    def found(self):
        return 1.0 in said(NAME)


class Broken(Case):
    def test_detached_in_the_loss(self):
        for _ in range(4):
            states, actions, _, rewards = self.sample()
            for _ in range(4):
                self.step(states, actions, None, rewards)
        self.assertTrue(self.found())
        self.assertNotIn(0.0, said(NAME))

    def test_in_shuffled_parts(self):
        for _ in range(2):
            states, actions, _, rewards = self.sample()
            for _ in range(4):
                for rows in torch.randperm(64).chunk(4):
                    self.step(states[rows], actions[rows], None, rewards[rows])
        self.assertTrue(self.found())

    def test_words(self):
        words, head = nn.Embedding(12, 8), nn.Linear(8, 12)
        parameters = [*words.parameters(), *head.parameters()]
        optimizer = torch.optim.Adam(parameters, lr=0.01)
        for _ in range(3):
            given, chosen = torch.randint(12, (2, 32, 6))
            for _ in range(4):
                logarithms = head(words(given).cumsum(1)).log_softmax(-1)
                now = logarithms.gather(2, chosen[:, :, None]).squeeze(2)
                ratio = (now - now.detach()).exp()
                self.backward(-(ratio.clamp(0.8, 1.2) * torch.randn(32, 1)).mean())
                optimizer.step()
                optimizer.zero_grad()
        self.assertTrue(self.found())


class LateBroken(Broken):
    ON_DEVICE = True


class Healthy(Case):
    def tearDown(self):
        self.assertFalse(self.found())
        super().tearDown()

    def test_of_the_policy_that_acted(self):
        for _ in range(4):
            batch = self.sample()
            for _ in range(4):
                self.step(*batch)
        self.assertIn(0.0, said(NAME))

    def test_once_for_each_sample(self):
        for _ in range(20):
            states, actions, _, rewards = self.sample()
            self.step(states, actions, None, rewards)
        self.assertEqual(said(NAME), [])

    def test_states_that_return(self):
        states = torch.randn(64, 5)
        for _ in range(20):
            _, actions, _, rewards = self.sample(states)
            self.step(states, actions, None, rewards)
        self.assertEqual(said(NAME), [])

    def test_states_of_a_policy_that_is_sure(self):
        with torch.no_grad():
            self.net[2].bias[1] = 20.0
        states = torch.randn(64, 5)
        for _ in range(20):
            _, actions, _, rewards = self.sample(states)
            self.step(states, actions, None, rewards)
        self.assertEqual(said(NAME), [])

    def test_few_states(self):
        states = torch.eye(5).repeat(10, 1)
        for _ in range(20):
            _, actions, _, rewards = self.sample(states)
            for _ in range(2):
                self.step(states, actions, None, rewards)
        self.assertEqual(said(NAME), [])

    def test_micro_batches_without_a_step(self):
        for _ in range(4):
            states, actions, _, rewards = self.sample()
            for index in range(4):
                self.step(states, actions, None, rewards, steps=index == 3)
        self.assertEqual(said(NAME), [])

    def test_policy_that_does_not_move_yet(self):
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-12)
        for _ in range(4):
            states, actions, before, rewards = self.sample()
            for _ in range(4):
                self.step(states, actions, before, rewards)

    def test_not_clipped(self):
        for _ in range(4):
            states, actions, _, rewards = self.sample()
            for _ in range(4):
                self.step(states, actions, None, rewards, clip=20.0)
        self.assertEqual(said(NAME), [])


class RatiosThatStartApart(GraphCase):
    NAME = "loss.ratio_starts_apart"

    def test_means_that_are_moved_at_random(self):
        actions = torch.randn(8, 2)
        mean, other = (torch.randn(8, 2, requires_grad=True) for _ in range(2))
        for moved, said in ((torch.rand(8, 2), []), (other, [1.0])):
            policy = Normal(mean + moved, 1.0)
            ratio = (policy.log_prob(actions).sum(1) + 5).exp()
            surrogate = torch.min(ratio, ratio.clamp(0.8, 1.2)).mean()
            self.assertEqual(self.of(-surrogate), said)


if __name__ == "__main__":
    unittest.main()
