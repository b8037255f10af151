"""What batches, settings of layers and schedules say of mistakes, and right ones
that come close to them."""

import contextlib
import copy
import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import data

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase

WIDTH = 8


def scalars(name):
    return [e[3] for e in CORE.log if e[0] == "scalar" and e[2] == name]


class Loaders(HooksCase):
    def train(self, loader):
        net = nn.Linear(WIDTH, 3)
        for x, y in loader:
            F.cross_entropy(net(x), y).backward()

    def test_what_persistent_workers_do_not_see(self):
        name = "loader.workers_hold_old"

        class Epochs(data.Dataset):
            def __init__(self, inner=None):
                self.epoch, self.dataset = 0, inner
                self.kept = None
                self.own = torch.zeros(1)
                self.shared = torch.zeros(1).share_memory_()

            def __len__(self):
                return 4

            def __getitem__(self, index):
                return torch.full((WIDTH,), float(self.epoch)), 0

        outer = Epochs(Epochs())
        for changes, persistent, said in (
            (lambda: None, True, [0.0]),
            (lambda: setattr(outer, "epoch", outer.epoch + 1), True, [1.0]),
            (lambda: setattr(outer.dataset, "epoch", outer.epoch + 9), True, [1.0]),
            (lambda: setattr(outer, "kept", 4), True, [0.0]),
            (lambda: outer.own.add_(1), True, [1.0]),
            (lambda: outer.shared.add_(1), True, [0.0]),
            (lambda: setattr(outer, "epoch", outer.epoch + 1), False, []),
        ):
            HooksCase.setUp(self)
            loader = data.DataLoader(
                outer, 2, num_workers=1, persistent_workers=persistent
            )
            self.train(loader)
            changes()
            self.train(loader)
            self.assertEqual(scalars(name), said)
            if loader._iterator is not None:
                loader._iterator._shutdown_workers()

    def test_weights_of_classes_for_samples(self):
        name = "loader.weights_too_few"
        x, y = torch.randn(24, WIDTH), torch.arange(24) % 3
        of_classes = torch.tensor([1.0, 2.0, 3.0])
        for weights, said in ((of_classes, [1.0]), (of_classes[y], [0.0])):
            HooksCase.setUp(self)
            sampler = data.WeightedRandomSampler(weights, 24)
            self.train(
                data.DataLoader(data.TensorDataset(x, y), batch_size=8, sampler=sampler)
            )
            self.assertEqual(scalars(name), said)
            batches = data.BatchSampler(sampler, 8, drop_last=False)
            loader = data.DataLoader(data.TensorDataset(x, y), batch_sampler=batches)
            self.train(loader)
            self.assertEqual(scalars(name), said * 2)
        HooksCase.setUp(self)
        self.train(data.DataLoader(data.TensorDataset(x, y), batch_size=8))
        self.assertEqual(scalars(name), [])

    def test_one_batch_for_ever(self):
        name = "loader.begins_again"
        samples = data.TensorDataset(torch.randn(24, WIDTH), torch.arange(24) % 3)
        net = nn.Linear(WIDTH, 3)

        def begin_again(loader, times, trains=True):
            HooksCase.setUp(self)
            for _ in range(times):
                x, y = next(iter(loader))
                if trains:
                    F.cross_entropy(net(x), y).backward()
            return scalars(name)

        ordered = data.DataLoader(samples, batch_size=8)
        self.assertEqual(begin_again(ordered, 4), [1.0, 1.0])
        self.assertEqual(begin_again(ordered, 2), [])
        self.assertEqual(begin_again(ordered, 4, trains=False), [])
        self.train(ordered)
        self.assertEqual(scalars(name), [0.0])
        shuffled = data.DataLoader(samples, batch_size=8, shuffle=True)
        self.assertEqual(begin_again(shuffled, 4), [])
        whole = data.DataLoader(samples, batch_size=24)
        self.assertEqual(begin_again(whole, 4), [])

    def test_samples_that_are_alike(self):
        name = "loader.samples_alike"
        one = torch.randn(1, WIDTH)
        for rows, found in (
            (one.expand(8, -1), [1.0]),
            (torch.randn(8, WIDTH), [0.0]),
            (torch.ones(8, WIDTH), []),  # says nothing
            (torch.randn(3, WIDTH), []),
        ):
            HooksCase.setUp(self)
            list(data.DataLoader(data.TensorDataset(rows), batch_size=8))
            self.assertEqual(scalars(name), found)
        HooksCase.setUp(self)
        asked = data.TensorDataset(one.expand(8, -1), torch.randn(8, WIDTH))
        list(data.DataLoader(asked, batch_size=8))
        self.assertEqual(scalars(name), [0.0])

    def test_settings_that_mean_the_opposite(self):
        def settings(*layers):
            HooksCase.setUp(self)
            net = nn.Sequential(*layers, nn.Linear(WIDTH, 2))
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            net(torch.randn(4, WIDTH)).sum().backward()
            optimizer.step()
            names = ("opt.forgets_statistics", "opt.drops_most")
            return [scalars(name) for name in names]

        def norm(momentum):
            return nn.BatchNorm1d(WIDTH, momentum=momentum)

        self.assertEqual(settings(), [[], []])
        self.assertEqual(settings(norm(0.1), nn.Dropout(0.5)), [[0.0], [0.0]])
        self.assertEqual(settings(norm(0.99), nn.Dropout(0.9)), [[1.0], [1.0]])
        self.assertEqual(settings(norm(None), norm(1.0)), [[0.0], []])
        self.assertEqual(settings(norm(0.99).eval()), [[], []])

    def evaluate(self, model, forwards=1):
        loader = data.DataLoader(torch.randn(24, WIDTH), batch_size=8)
        HooksCase.setUp(self)
        model(torch.ones(2, WIDTH)).sum().backward()  # it has trained
        for x in loader:
            with torch.no_grad():
                for _ in range(forwards):
                    model(x)
        return scalars("loader.evaluated_in_training")

    def test_evaluations_in_training_mode(self):
        for part in (nn.Dropout(0.1), nn.BatchNorm1d(WIDTH)):
            model = nn.Sequential(nn.Linear(WIDTH, WIDTH), part)
            self.assertEqual(self.evaluate(model), [1.0])
            # Dropout that estimates uncertainty.
            self.assertEqual(self.evaluate(model, forwards=2), [])
            model.add_module("more", nn.Linear(WIDTH, 1))
        self.assertEqual(self.evaluate(nn.Linear(WIDTH, 1)), [])
        gathers = nn.Sequential(
            nn.BatchNorm1d(WIDTH, momentum=None), nn.Linear(WIDTH, 1)
        )
        self.assertEqual(self.evaluate(gathers), [])

    def test_what_gathers_ranges_from_the_data_that_trains(self):
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))
        loader = data.DataLoader(torch.randn(24, WIDTH), batch_size=8)
        for x in loader:
            model(x).sum().backward()
        for said in ([], [1.0]):
            with torch.no_grad():
                for x, _ in zip(loader, range(2)):
                    model(x)
            self.assertEqual(scalars("loader.evaluated_in_training"), said)

    def test_evaluations_in_evaluation_mode(self):
        model = nn.Sequential(nn.Linear(WIDTH, 3), nn.Dropout(0.1))
        samples = data.TensorDataset(torch.randn(24, WIDTH), torch.arange(24) % 3)
        loader = data.DataLoader(samples, batch_size=8)
        for x, y in loader:  # steps between forwards without gradients
            with torch.no_grad():
                model(x)
            F.cross_entropy(model(x), y).backward()
        self.assertEqual(scalars("loader.evaluated_in_training"), [])
        model.eval()
        with torch.no_grad():
            for x, y in loader:
                model(x)
        self.assertEqual(scalars("loader.evaluated_in_training"), [0.0])

    def test_scales(self):
        name = "loader.scaled_apart"
        y = torch.arange(24) % 3
        for factor, wrong in (
            (1.0, [0.0]),
            (8.0, [0.0]),
            (255.0, [1.0]),
            (1 / 255, [1.0]),
        ):
            HooksCase.setUp(self)
            seen = data.TensorDataset(torch.randn(24, WIDTH), y)
            other = data.TensorDataset(torch.randn(24, WIDTH) * factor, y)
            self.train(data.DataLoader(seen, batch_size=8))
            with torch.no_grad():
                list(data.DataLoader(other, batch_size=8))
            self.assertEqual(scalars(name), wrong)

    def test_data_that_is_not_standardised(self):
        name = "loader.not_standardised"
        y = torch.arange(24) % 3
        raw = torch.rand(24, 3, 8, 8)
        for trained, evaluated, wrong in (
            ((raw - 0.5) / 0.29, raw, [1.0]),
            ((raw - 0.5) / 0.29, (raw - 0.45) / 0.3, [0.0]),
            ((raw - 0.5) / 0.29, (raw - 0.1) / 0.29, []),  # has drifted
            (raw, raw, []),
        ):
            HooksCase.setUp(self)
            net = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
            for x, labels in data.DataLoader(data.TensorDataset(trained, y), 8):
                F.cross_entropy(net(x), labels).backward()
            with torch.no_grad():
                list(data.DataLoader(data.TensorDataset(evaluated, y), 8))
            self.assertEqual(scalars(name), wrong)


class Steps(HooksCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.net = nn.Linear(5, 4)

    def step(self, optimizer):
        optimizer.zero_grad()
        self.net(torch.randn(8, 5)).square().mean().backward()
        optimizer.step()

    def test_steps_within_an_autocast_region(self):
        name = "opt.stale_casts"
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

        def region():
            return torch.autocast("cpu", dtype=torch.bfloat16)

        def step(around):
            with around:
                loss = self.net(torch.randn(8, 5)).float().sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        with region():
            step(contextlib.nullcontext())
            self.assertEqual(scalars(name)[-1], 0.0)
            step(contextlib.nullcontext())
            self.assertEqual(scalars(name)[-1], 1.0)
        HooksCase.setUp(self)
        for _ in range(3):
            step(region())
            with region():  # left before the next forward
                step(contextlib.nullcontext())
        self.assertNotIn(1.0, scalars(name))
        with torch.autocast("cpu", enabled=False):  # it is the outermost, too
            step(region())
            step(region())
        self.assertEqual(scalars(name)[-1], 1.0)
        HooksCase.setUp(self)
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
            step(contextlib.nullcontext())
            step(contextlib.nullcontext())
        self.assertNotIn(1.0, scalars(name))

    def resumed(self, resume):
        HooksCase.setUp(self)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        state = copy.deepcopy(optimizer.state_dict())
        state["param_groups"][0].update(lr=0.025, initial_lr=0.1)
        resume(optimizer, state)
        self.step(optimizer)
        self.step(optimizer)
        # Written once; "not a number" says that there is no word of it any more.
        return [value for value in scalars("schedule.rate_reset") if value == value]

    def test_a_rate_that_is_reset_on_resume(self):
        def late(optimizer, state, schedule):
            optimizer.load_state_dict(state)
            schedule(optimizer).last_epoch = 2

        def early(optimizer, state, schedule):
            scheduler = schedule(optimizer)
            optimizer.load_state_dict(state)
            scheduler.last_epoch = 2

        def anew(optimizer, state, schedule):
            optimizer.load_state_dict(state)
            schedule(optimizer)

        def wound_on(optimizer, state, schedule):
            optimizer.load_state_dict(state)
            scheduler = schedule(optimizer)
            scheduler.step()
            scheduler.step()

        kept = []  # schedulers live as long as a training
        for resume, found in (
            (late, [1.0]),
            (early, []),
            (anew, [0.0]),
            (wound_on, [0.0]),
        ):

            def make(optimizer):
                kept.append(
                    torch.optim.lr_scheduler.LambdaLR(
                        optimizer, lambda epoch: 0.5**epoch
                    )
                )
                return kept[-1]

            self.assertEqual(self.resumed(lambda o, s, r=resume: r(o, s, make)), found)

    def test_a_cycle_of_batches_that_waits_for_epochs(self):
        name = "schedule.cycle_waits"
        for each, found in ((True, 0.0), (False, 1.0)):
            HooksCase.setUp(self)
            optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
            cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9)
            for _ in range(3):
                self.step(optimizer)
                if each:
                    cycle.step()
            self.assertEqual(scalars(name)[-1], found)

    def test_a_schedule_of_a_wrapper(self):
        """Of accelerate, say: it is no other optimizer than the one that steps."""

        class Wrapper(torch.optim.Optimizer):
            def __init__(self, optimizer):
                self.optimizer = optimizer

            @property
            def param_groups(self):
                return self.optimizer.param_groups

            @property
            def state(self):
                return self.optimizer.state

            @property
            def defaults(self):
                return self.optimizer.defaults

        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        rates = torch.optim.lr_scheduler
        schedule = rates.LambdaLR(Wrapper(optimizer), lambda epoch: 1 / (1 + epoch))
        for _ in range(4):
            self.step(optimizer)
            schedule.step()
        self.assertEqual(set(scalars("schedule_idle")), {0.0})
        self.assertEqual(set(scalars("schedule.early")), {0.0})

    def test_a_schedule_that_nobody_steps(self):
        name = "schedule.unused"
        rates = torch.optim.lr_scheduler
        loader = data.DataLoader(torch.randn(16, 5), batch_size=8)

        def train(make, each=None):
            HooksCase.setUp(self)
            optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
            made = make(optimizer)
            for epoch in range(4):
                for x in loader:
                    optimizer.zero_grad()
                    self.net(x).square().mean().backward()
                    optimizer.step()
                with torch.no_grad():
                    list(loader)
                if each is not None and epoch % each == each - 1:
                    made.step()
            return [value for value in scalars(name) if value == value]

        def halved(optimizer):
            return rates.StepLR(optimizer, 1, 0.5)

        def one_after_the_other(optimizer):
            both = [halved(optimizer), rates.ConstantLR(optimizer)]
            return rates.SequentialLR(optimizer, both, [9])

        self.assertEqual(train(halved), [0.0, 1.0])
        self.assertEqual(train(halved, each=1), [0.0])
        self.assertEqual(train(halved, each=2), [0.0])
        self.assertEqual(train(one_after_the_other, each=1), [0.0])
        self.assertEqual(train(rates.ReduceLROnPlateau), [])  # it waits for a metric
        self.assertEqual(train(lambda optimizer: None), [])

    def test_a_schedule_of_an_optimizer_that_joins_late(self):
        loader = data.DataLoader(torch.randn(8, 5), batch_size=4)
        late = nn.Linear(5, 1)
        both = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (self.net, late)]
        scheduler = torch.optim.lr_scheduler.ExponentialLR(both[1], 0.9)
        for epoch in range(6):
            for x in loader:
                for net, optimizer in zip((self.net, late), both):
                    if net is self.net or epoch > 2:
                        optimizer.zero_grad()
                        net(x).square().mean().backward()
                        optimizer.step()
            if epoch > 2:
                scheduler.step()
        self.assertNotIn(1.0, scalars("schedule.unused"))

    def test_a_schedule_of_epochs_over_several_loaders(self):
        name = "schedule.unused"
        loaders = [data.DataLoader(torch.randn(8, 5), batch_size=4) for _ in range(4)]
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        for _ in range(2):
            for loader in loaders:
                for x in loader:
                    optimizer.zero_grad()
                    self.net(x).square().mean().backward()
                    optimizer.step()
            scheduler.step()
        self.assertNotIn(1.0, scalars(name))


if __name__ == "__main__":
    unittest.main()
