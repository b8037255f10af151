"""Rates that are merged, rows that are masked, padding that is averaged: each mistake,
and right programs that come close to it."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import data

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, WATCH


def said(name):
    """What was written and known."""
    values = [e[3] for e in CORE.log if e[0] == "scalar" and e[2] == name]
    return [value for value in values if value == value]


class Rates(HooksCase):
    NAME = "schedule.merges_rates"

    def groups(self, *rates):
        net = nn.ModuleList(nn.Linear(5, 1) for _ in rates)
        groups = [{"params": m.parameters(), "lr": rate} for m, rate in zip(net, rates)]
        return net, torch.optim.SGD(groups, lr=0.1)

    def train(self, rates, set_rates, steps=12):
        HooksCase.setUp(self)
        net, optimizer = self.groups(*rates)
        for step in range(steps):
            set_rates(step, optimizer)
            optimizer.zero_grad()
            sum(m(torch.randn(4, 5)).square().mean() for m in net).backward()
            optimizer.step()
        return said(self.NAME)

    def test_by_hand(self):
        def one_for_all(step, optimizer):
            for group in optimizer.param_groups:
                group["lr"] = min(1.0, (step + 1) / 4) * 0.01

        def falls(step, optimizer):
            for group in optimizer.param_groups:
                group["lr"] = 0.01 * (1 - step / 12) + 1e-5

        self.assertIn(1.0, self.train((0.01, 0.1), falls))
        self.assertIn(1.0, self.train((0.01, 0.1), one_for_all))
        self.assertEqual(self.train((0.1, 0.1), one_for_all), [])
        self.assertEqual(self.train((0.0, 0.1), one_for_all), [])  # frozen at first

    def test_a_search_for_a_rate(self):
        def search(step, optimizer):
            for group in optimizer.param_groups:
                group["lr"] = 1e-6 * 2**step

        self.assertEqual(self.train((0.01, 0.1), search), [])

    def test_phases(self):
        def later(step, optimizer):
            if step == 2:
                for group in optimizer.param_groups:
                    group["lr"] = 0.001

        self.assertNotIn(1.0, self.train((0.01, 0.1), later, steps=20))

    def test_one_cycle(self):
        for most, wrong in ((0.1, True), ([0.01, 0.1], False)):
            HooksCase.setUp(self)
            net, optimizer = self.groups(0.01, 0.1)
            rates = torch.optim.lr_scheduler
            schedule = rates.OneCycleLR(optimizer, most, total_steps=20)
            for _ in range(12):
                optimizer.zero_grad()
                sum(m(torch.randn(4, 5)).square().mean() for m in net).backward()
                optimizer.step()
                schedule.step()
            self.assertEqual(1.0 in said(self.NAME), wrong)


class Rows(HooksCase):
    NAME = "opt.moves_masked_rows"

    def train(self, make, puts_back=False, masks=True, hook=None, read=8):
        HooksCase.setUp(self)
        torch.manual_seed(0)
        embed = nn.Embedding(12, 4)
        original = embed.weight.detach().clone()
        optimizer = make(embed.parameters())
        known = torch.arange(12) != 3
        if hook is not None:
            embed.weight.register_hook(hook)
        for _ in range(8):  # beyond the first looks
            optimizer.zero_grad()
            embed(torch.arange(read)).square().sum().backward()
            if masks and hook is None:
                embed.weight.grad[known] = 0
            optimizer.step()
            if puts_back:
                with torch.no_grad():
                    embed.weight[known] = original[known]
        return said(self.NAME)

    def test_rows_that_decay(self):
        def decays(parameters):
            return torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1)

        self.assertEqual(set(self.train(decays)), {1.0})
        self.assertEqual(set(self.train(decays, puts_back=True)), {0.0})
        self.assertEqual(self.train(decays, masks=False), [])

    def test_rows_that_a_hook_masks(self):
        def decays(parameters):
            return torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1)

        new = (torch.arange(12) == 3).float()[:, None]
        masks = lambda gradient: gradient * new
        self.assertEqual(set(self.train(decays, hook=masks)), {1.0})
        self.assertEqual(set(self.train(decays, hook=masks, puts_back=True)), {0.0})
        # One that looks on; the rows that are not read decay as they do without it.
        self.assertEqual(self.train(decays, hook=lambda gradient: None), [])
        # A token that is hidden from what follows, beside one that is not.
        one = (torch.arange(12) != 0).float()[:, None]
        hides = lambda gradient: gradient * one
        self.assertEqual(self.train(decays, hook=hides, read=4), [])

    def test_parameters_that_take_turns(self):
        HooksCase.setUp(self)
        tables = nn.ModuleList(nn.Embedding(6, 4) for _ in range(2))
        optimizer = torch.optim.AdamW(tables.parameters(), lr=0.01)
        for step in range(8):
            optimizer.zero_grad()
            weight = tables[step % 2].weight
            tables[step % 2](torch.arange(6)).square().sum().backward()
            weight.grad[1:] = 0
            optimizer.step()
        self.assertEqual(said(self.NAME), [])

    def test_rows_that_stay(self):
        def plain(parameters):
            return torch.optim.SGD(parameters, lr=0.01)

        self.assertEqual(set(self.train(plain)), {0.0})


class Padding(HooksCase):
    NAME = "loss.averages_padding"

    def of(self, reduce, mask):
        HooksCase.setUp(self)
        net = nn.Linear(5, 1)
        x = torch.randn(*mask.shape[:2], 5)
        elements = net(x).squeeze(-1).square()
        if mask.dim() == 3:
            elements = elements[..., None].expand_as(mask)
        reduce(elements, mask).backward()
        return said(self.NAME)

    def test_padding_that_counts(self):
        lengths = torch.tensor([6, 3, 4])
        mask = torch.arange(6) < lengths[:, None]

        def of_all(elements, mask):
            return (elements * mask).mean()

        def of_real(elements, mask):
            return (elements * mask).sum() / mask.sum()

        for table in (mask, mask.float(), mask[..., None].expand(3, 6, 4)):
            self.assertEqual(self.of(of_all, table), [1.0])
            self.assertEqual(self.of(of_real, table), [0.0])
            self.assertEqual(self.of(lambda e, m: e[m > 0].mean(), table), [])
        self.assertEqual(self.of(of_all, torch.rand(3, 6)), [])  # weights
        self.assertEqual(self.of(of_all, torch.ones(3, 6)), [])
        self.assertEqual(self.of(of_all, mask.flip(1)), [])


class Averages(HooksCase):
    NAME = "loader.averages_without_statistics"

    def evaluate(self, gathers, prepare=nn.Module.eval):
        HooksCase.setUp(self)
        net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))
        average = torch.optim.swa_utils.AveragedModel(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        loader = data.DataLoader(torch.randn(24, 5), batch_size=8)
        for _ in range(2):
            for x in loader:
                optimizer.zero_grad()
                F.mse_loss(net(x), torch.randn(8, 4)).backward()
                optimizer.step()
                WATCH.shadows.update()  # as when a step closes
                average.update_parameters(net)
        gathers(loader, average)
        prepare(average)
        with torch.no_grad():
            for x in loader:
                average(x)
        return said(self.NAME)

    def test_statistics_of_none(self):
        def with_momentum_0(loader, average):
            average.module[1].reset_running_stats()
            average.module[1].momentum = 0.0
            average.train()
            with torch.no_grad():
                for x in loader:
                    average(x)

        update = torch.optim.swa_utils.update_bn
        self.assertIn(1.0, self.evaluate(with_momentum_0))
        # The wrapper around the copy may be in training mode: it has no statistics.
        of_the_copy = lambda average: average.module.eval()
        self.assertIn(1.0, self.evaluate(with_momentum_0, of_the_copy))
        for right in (update, lambda loader, average: None):
            self.assertEqual(set(self.evaluate(right)), {0.0})


if __name__ == "__main__":
    unittest.main()
