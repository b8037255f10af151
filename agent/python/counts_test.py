"""Numbers that mean another thing in one place than in another: counters that stand,
passes that end early, warm-ups of steps that go on by passes, logarithms of variances
that are taken for deviations, factors of a rate that are taken in each step. Each
mistake, and right programs that come close to it."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import data

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, SignsCase, said


class Counting(torch.optim.Optimizer):
    """Keeps a mean of gradients; moves where `factors` says so."""

    def __init__(self, parameters, counts=True, factors=None, counter=0):
        super().__init__(parameters, {"lr": 0.1})
        self.counts, self.factors, self.counter = counts, factors, counter

    @torch.no_grad()
    def step(self):
        factor = 1.0 if self.factors is None else self.factors.pop(0)
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["step"] = self.counter
                    state["mean"] = torch.zeros_like(parameter)
                state["step"] = state["step"] + (factor if self.counts else 0)
                state["mean"].lerp_(parameter.grad, 0.1 * factor)
                parameter.sub_(group["lr"] * factor * state["mean"])


class Counters(SignsCase):
    NAME = "opt.counter_stands"

    def train(self, optimizer, steps=4):
        HooksCase.setUp(self)
        for _ in range(steps):
            self.step(optimizer=optimizer)
        return said(self.NAME)

    def test_a_counter_that_stands(self):
        for counter in (0, torch.tensor(0.0)):
            optimizer = Counting(self.net.parameters(), False, counter=counter)
            self.assertEqual(self.train(optimizer), [1.0] * 3)

    def test_a_counter_that_moves(self):
        for counter in (0, torch.tensor(0.0)):
            optimizer = Counting(self.net.parameters(), counter=counter)
            self.assertEqual(self.train(optimizer), [0.0] * 3)

    def test_steps_that_are_left_out(self):
        optimizer = Counting(self.net.parameters(), factors=[1, 0, 1, 0])
        self.assertEqual(self.train(optimizer), [0.0] * 2)

    def test_optimizers_of_torch(self):
        self.assertEqual(self.train(torch.optim.Adam(self.net.parameters())), [])

    def test_no_counter(self):
        optimizer = Counting(self.net.parameters(), counter="none")
        optimizer.counts, optimizer.step = None, lambda: None
        self.assertEqual(self.train(optimizer), [])


class CountersOnADevice(SignsCase):
    """Looked at in the first steps; what shows there is known behind them."""

    ON_DEVICE = True
    NAME = Counters.NAME
    train = Counters.train

    def test_a_counter_that_stands(self):
        for counter in (0, torch.tensor(0.0)):
            optimizer = Counting(self.net.parameters(), False, counter=counter)
            self.assertEqual(set(self.train(optimizer, 8)), {1.0})

    def test_a_counter_that_moves(self):
        for counter in (0, torch.tensor(0.0)):
            optimizer = Counting(self.net.parameters(), counter=counter)
            self.assertEqual(set(self.train(optimizer, 8)), {0.0})

    def test_it_is_asked_at_few_steps(self):
        optimizer = Counting(self.net.parameters())
        self.assertEqual(self.train(optimizer, 40), [0.0] * 3)


class Batches(data.Sampler):
    def __init__(self, skips, length=8):
        self.skips, self.length = list(skips), length

    def __len__(self):
        if self.length is None:
            raise NotImplementedError
        return self.length

    def __iter__(self):
        yield from torch.arange(32).view(8, 4)[self.skips.pop(0) :].tolist()


class Stream(data.IterableDataset):
    def __len__(self):
        return 64

    def __iter__(self):
        return iter(torch.randn(16, 5))


class Passes(SignsCase):
    NAME = "loader.ends_early"

    def of(self, loader, passes, trained=True):
        HooksCase.setUp(self)
        for _ in range(passes):
            for batch in loader:
                x = batch if isinstance(batch, torch.Tensor) else batch[0]
                if trained:
                    self.optimizer.zero_grad()
                    self.net(x).square().mean().backward()
                    self.optimizer.step()
        return said(self.NAME)

    def skipping(self, *skips, length=8):
        rows = data.TensorDataset(torch.randn(32, 5))
        return data.DataLoader(rows, batch_sampler=Batches(skips, length))

    def test_a_skip_that_stays(self):
        self.assertEqual(self.of(self.skipping(5, 5, 5), 3), [1.0, 1.0])

    def test_a_skip_of_one_pass(self):
        self.assertEqual(self.of(self.skipping(5, 0, 0), 3), [0.0, 0.0])

    def test_a_curriculum(self):
        self.assertEqual(self.of(self.skipping(6, 4, 3), 3), [])

    def test_about_the_length(self):
        self.assertEqual(self.of(self.skipping(1, 1), 2), [0.0, 0.0])

    def test_lengths_that_are_not_known(self):
        self.assertEqual(self.of(self.skipping(5, 5, length=None), 2), [])
        self.assertEqual(self.of(data.DataLoader(Stream(), 4), 2), [])

    def test_what_is_evaluated(self):
        self.assertEqual(self.of(self.skipping(5, 5), 2, trained=False), [])


class WarmUps(SignsCase):
    NAME = "schedule.slow_warm_up"

    def of(self, steps, each=8, calls=4, kind=None):
        HooksCase.setUp(self)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        kind = kind or (lambda step: min(1.0, (step + 1) / steps))
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, kind)
        for _ in range(calls):
            for _ in range(each):
                self.step(optimizer=optimizer)
            schedule.step()
        self.step(optimizer=optimizer)
        return set(said(self.NAME))

    def test_steps_that_are_counted_in_passes(self):
        self.assertEqual(self.of(500), {1.0})

    def test_a_warm_up_of_some_passes(self):
        self.assertEqual(self.of(5), {0.0})

    def test_after_each_step(self):
        self.assertEqual(self.of(500, each=1), {0.0})

    def test_rates_that_fall(self):
        self.assertEqual(self.of(0, kind=lambda step: 0.99**step), {0.0})
        self.assertEqual(self.of(0, kind=lambda step: 1.0), {0.0})


class Variances(HooksCase):
    NAME = "loss.variance_confused"

    def of(self, noise, divergence):
        HooksCase.setUp(self)
        encoder, decoder = nn.Linear(5, 8), nn.Linear(4, 5)
        x = torch.randn(16, 5)
        mean, given = encoder(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * noise(given)
        error = F.mse_loss(decoder(z), x)
        self.backward(error + 0.5 * divergence(mean, given).sum(1).mean())
        return said(self.NAME)

    @staticmethod
    def half(log):
        return torch.exp(0.5 * log)

    @staticmethod
    def of_logs(mean, log):
        return mean.pow(2) + log.exp() - log - 1

    @staticmethod
    def of_deviations(mean, deviation):
        variance = deviation**2
        return mean.pow(2) + variance - torch.log(variance + 1e-8) - 1

    def test_a_logarithm_for_a_deviation(self):
        self.assertEqual(self.of(self.half, self.of_deviations), [1.0])
        product = lambda mean, s: mean**2 + s * s - (s * s).clamp(min=1e-8).log()
        self.assertEqual(self.of(self.half, product), [1.0])

    def test_a_deviation_for_a_logarithm(self):
        self.assertEqual(self.of(lambda given: given, self.of_logs), [1.0])

    def test_one_meaning(self):
        self.assertEqual(self.of(self.half, self.of_logs), [0.0])
        self.assertEqual(self.of(F.softplus, self.of_deviations), [])
        deviations = lambda mean, log: self.of_deviations(mean, self.half(log))
        self.assertEqual(self.of(self.half, deviations), [])


class VanishingRates(SignsCase):
    def train(self, *rates):
        """What is said of steps with these rates."""
        HooksCase.setUp(self)
        net = nn.Linear(5, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
        for rate in rates:
            optimizer.param_groups[0]["lr"] = rate
            self.step(net, optimizer)
        return [v for v in said("schedule.rate_vanishes") if v == v]

    def test_a_factor_in_each_step(self):
        self.assertEqual(self.train(*(0.1**i for i in range(8))), [0.0, 1.0])

    def test_what_falls_otherwise(self):
        for rates in (
            [0.97**i for i in range(300)],  # slowly
            [0.1 ** (i // 3) for i in range(18)],  # now and then
            [1 - i / 20 for i in range(21)],  # by a line, to 0
            [1.0, 0.1, 0.01, 1.0, 0.1],  # and begins anew
        ):
            self.assertEqual(set(self.train(*rates)), {0.0})

    def test_what_does_not_fall(self):
        self.assertEqual(self.train(*[0.1] * 8), [])
        self.assertEqual(self.train(*(1e-6 * 2**i for i in range(8))), [])


if __name__ == "__main__":
    unittest.main()
