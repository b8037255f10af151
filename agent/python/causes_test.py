"""Causes that the agent sees itself: what was done to schedules, wrappers, generators,
averages and gradients before the effect shows."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.optim import lr_scheduler as schedules
from torch.utils import data

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, Net, WATCH, train_step
from _traincheck.outrun_schedules import OutrunSchedules
from _traincheck.past_wrappers import PastWrappers
from _traincheck.scaler_steps import ScalerSteps


Cosine, Lambda = schedules.CosineAnnealingLR, schedules.LambdaLR


def rises(step):
    return min(1.0, (step + 1) / 3)


def sgd(model, rate=0.1):
    return torch.optim.SGD(model.parameters(), lr=rate)


class CauseCase(HooksCase):
    NAME = ""

    def said(self):
        """What was said of it, in order."""
        rows = [row for row in CORE.log if row[0] == "scalar" and row[2] == self.NAME]
        return [row[3] for row in rows]


class Outrun(HooksCase):
    def steps(self, moved, rates):
        outrun, optimizer = OutrunSchedules(), sgd(nn.Linear(2, 1))
        for rate in rates:
            optimizer.param_groups[0]["lr"] = rate
            said = outrun.steps(optimizer, moved)
        return said

    def test_three_steps_of_the_schedule_a_step(self):
        self.assertTrue(self.steps(3.0, [0.1] * 4 + [0.0] * 8))
        self.assertIsNone(self.steps(3.0, [0.1] * 4 + [0.0] * 7))

    def test_a_schedule_that_is_over_in_time(self):
        self.assertFalse(self.steps(1.0, [0.1] * 4 + [0.0] * 8))

    def test_rates_that_are_not_zero(self):
        self.assertIsNone(self.steps(3.0, [0.1] * 20))

    def test_a_schedule_of_which_nothing_is_known(self):
        self.assertIsNone(self.steps(None, [0.1] * 4 + [0.0] * 8))


class Undone(CauseCase):
    NAME = "schedule.undone"

    def rates(self, make, steps=6):
        """Steps with schedulers that are stepped side by side."""
        net = Net()
        optimizer = sgd(net)
        schedulers = make(optimizer)
        for _ in range(steps):
            train_step(net, optimizer)
            for scheduler in schedulers:
                scheduler.step()
        return self.said()

    def test_a_warm_up_beside_a_decay(self):
        for order in (1, -1):
            with self.subTest(order):
                self.setUp()
                made = lambda o: [Lambda(o, rises), Cosine(o, T_max=20)][::order]
                self.assertEqual(self.rates(made)[-1], 1.0)

    def test_two_that_compute_the_rate(self):
        made = lambda o: [Lambda(o, rises), schedules.OneCycleLR(o, 0.5, 20)]
        self.assertEqual(self.rates(made)[-1], 1.0)

    def test_one_after_the_other(self):
        def made(optimizer):
            both = [Lambda(optimizer, rises), Cosine(optimizer, T_max=20)]
            return [schedules.SequentialLR(optimizer, both, [2])]

        self.assertNotIn(1.0, self.rates(made))

        def swapped(optimizer):
            both = [Cosine(optimizer, T_max=20), Lambda(optimizer, rises)]
            return [schedules.SequentialLR(optimizer, both, [2])]

        self.assertNotIn(1.0, self.rates(swapped, steps=9))

    def test_those_that_multiply(self):
        made = lambda o: [schedules.ExponentialLR(o, 0.9), Cosine(o, T_max=20)]
        self.assertEqual(self.rates(made), [])

    def test_a_plateau_beside_it_that_waits(self):
        net = Net()
        optimizer = sgd(net)
        computed = Lambda(optimizer, rises)
        plateau = schedules.ReduceLROnPlateau(optimizer, patience=3)
        for _ in range(6):
            train_step(net, optimizer)
            computed.step()
            plateau.step(1.0)
        self.assertEqual(set(self.said()), {0.0})


class Untrained(CauseCase):
    NAME = "loader.trains_no_more"

    def setUp(self):
        super().setUp()
        self.net = Net()
        self.optimizer = sgd(self.net)
        self.scheduler = Cosine(self.optimizer, T_max=20)
        rows = data.TensorDataset(torch.randn(16, 3))
        self.loaders = [data.DataLoader(rows, batch_size=4) for _ in "ab"]

    def train(self, batches):
        for _ in batches:
            train_step(self.net, self.optimizer)

    def evaluate(self):
        self.net.eval()
        with torch.no_grad():
            for (x,) in self.loaders[1]:
                self.net(x)
        self.net.train()

    def test_pairs_that_are_used_up(self):
        pairs = zip(*self.loaders)
        for epoch in range(5):
            self.train(pairs)
            self.scheduler.step()
            self.assertEqual(self.said(), [1.0] if epoch > 2 else [])

    def test_pairs_that_are_made_again(self):
        for _ in range(6):
            self.train(zip(*self.loaders))
            self.scheduler.step()
        self.assertEqual(self.said(), [0.0])

    def test_a_generator_beside_an_evaluation(self):
        batches = iter(range(4))
        for _ in range(5):
            self.train(batches)
            self.evaluate()
            self.scheduler.step()
        self.assertEqual(self.said(), [1.0])

    def test_a_schedule_that_is_wound_forward(self):
        for epoch in range(8):
            self.train(self.loaders[0] if epoch > 4 else ())
            self.evaluate()
            self.scheduler.step()
        self.assertEqual(self.said(), [0.0])

    def test_a_schedule_that_is_drawn(self):
        for _ in range(3):
            self.train(self.loaders[0])
            self.scheduler.step()
        for _ in range(9):
            self.evaluate()
            self.scheduler.step()  # from another line
        self.assertEqual(self.said(), [0.0])

    def test_several_steps_at_once(self):
        """accelerate steps a schedule once for each rank."""
        for _ in range(3):
            self.train(self.loaders[0])
            for _ in range(8):
                self.scheduler.step()
        self.assertEqual(self.said(), [0.0])

    def test_several_schedules(self):
        more = [self.scheduler, *(Cosine(self.optimizer, T_max=9) for _ in range(3))]
        both = [Cosine(self.optimizer, T_max=9) for _ in range(2)]
        more.append(schedules.SequentialLR(self.optimizer, both, [3]))
        for _ in range(6):
            self.train(self.loaders[0])
            for scheduler in more:
                scheduler.step()
        self.assertEqual(self.said(), [0.0])

    def test_batches_that_are_left_out(self):
        for epoch in range(2):
            for number, _ in enumerate(self.loaders[0]):
                if number == 0:
                    train_step(self.net, self.optimizer)
                self.scheduler.step()
        self.assertEqual(self.said(), [0.0])

    def test_losses_that_are_not_used(self):
        """A forward with gradients is a training: its loss may not be finite."""
        for epoch in range(6):
            for (x,) in self.loaders[0]:
                self.net(x)
                if epoch < 2:
                    train_step(self.net, self.optimizer)
            self.scheduler.step()
        self.assertEqual(self.said(), [0.0])

    def test_two_empty_passes(self):
        for epoch in range(9):
            self.train(() if epoch % 3 else self.loaders[0])
            self.evaluate()
            self.scheduler.step()
        self.assertNotIn(1.0, self.said())

    def test_training_goes_on_later(self):
        for epoch in range(8):
            self.train(() if 1 < epoch < 6 else self.loaders[0])
            self.evaluate()
            self.scheduler.step()
        self.assertEqual(self.said(), [0.0, 1.0, 0.0])


class Past(HooksCase):
    def setUp(self):
        super().setUp()
        self.past, self.wrapper = PastWrappers(), nn.Linear(2, 1)
        self.past.wrapped(self.wrapper)
        self.optimizer = sgd(self.wrapper)

    def step(self, through=False, collective=False, loss=None):
        self.optimizer.zero_grad()
        if through:
            self.past.forward_begins(self.wrapper)
        result = self.wrapper(torch.ones(3, 2)).sum() if loss is None else loss
        self.past.backward_begins()
        result.backward()
        self.past.backward_ended()
        if collective:
            self.past.collective()
        return self.past.steps(self.optimizer)

    def test_no_forward_of_the_wrapper(self):
        self.assertIsNone(self.step())
        self.assertTrue(self.step())

    def test_a_forward_of_the_wrapper_now_and_then(self):
        self.assertEqual([self.step(), self.step(True), self.step()], [None, 0, None])

    def test_who_averages_by_hand(self):
        self.assertEqual([self.step(collective=True) for _ in range(3)], [None] * 3)

    def test_a_backward_of_something_else(self):
        other = nn.Linear(2, 1)
        losses = [other(torch.ones(3, 2)).sum() for _ in range(3)]
        self.assertEqual([self.step(loss=loss) for loss in losses], [None] * 3)

    def test_models_that_are_averaged(self):
        self.past.models_are_averaged()
        self.assertEqual([self.step() for _ in range(3)], [None] * 3)


class BesidesScaler(HooksCase):
    def setUp(self):
        super().setUp()
        self.steps, self.optimizer = ScalerSteps(), sgd(nn.Linear(2, 1))

    def scaler_steps(self, optimizer):
        self.steps.scaler_begins(optimizer)
        said = self.steps.steps(optimizer)
        self.steps.scaler_ended(optimizer)
        return said

    def test_once_more(self):
        self.steps.backward_begins()
        self.assertFalse(self.scaler_steps(self.optimizer))
        self.assertTrue(self.steps.steps(self.optimizer))

    def test_by_the_scaler_alone(self):
        for _ in range(2):
            self.steps.backward_begins()
            self.assertFalse(self.scaler_steps(self.optimizer))

    def test_an_optimizer_within_another_one(self):
        self.steps.backward_begins()
        outer = sgd(nn.Linear(2, 1))
        self.steps.scaler_begins(outer)
        self.assertIsNone(self.steps.steps(self.optimizer))

    def test_no_scaler(self):
        self.steps.backward_begins()
        self.assertIsNone(self.steps.steps(self.optimizer))


class ClearedTooLate(CauseCase):
    NAME = "opt.clears_before_step"

    def train(self, steps, to_none=True, write=False, times=3):
        model = Net()
        optimizer = sgd(model)
        for number in range(times):
            optimizer.zero_grad(set_to_none=to_none)
            model(torch.ones(5, 3)).sum().backward()
            if number in steps:
                optimizer.zero_grad(set_to_none=to_none)
                if write:
                    for one in model.parameters():
                        one.grad = torch.ones_like(one)
            optimizer.step()
        return self.said()[-1:]

    def test_in_each_step(self):
        self.assertEqual(self.train({0, 1, 2}), [1.0])

    def test_set_to_zero_in_each_step(self):
        self.assertEqual(self.train({0, 1, 2}, to_none=False), [1.0])

    def test_once(self):
        self.assertEqual(self.train({1}), [0.0])

    def clear_by_hand(self, of_user=False, among=slice(None)):
        model = Net()
        kind = type("Own", (torch.optim.SGD,), {}) if of_user else torch.optim.SGD
        optimizer = kind(model.parameters(), lr=0.1)
        for _ in range(3):
            model(torch.ones(5, 3)).sum().backward()
            for one in list(model.parameters())[among]:
                one.grad = None
            optimizer.step()
            optimizer.zero_grad()
        return self.said()[-1:]

    def test_set_to_none_by_hand(self):
        self.assertEqual(self.clear_by_hand(), [1.0])

    def test_a_part_is_set_to_none_by_hand(self):
        self.assertEqual(self.clear_by_hand(among=slice(1)), [0.0])

    def test_an_optimizer_of_the_users_may_keep_them(self):
        self.assertEqual(self.clear_by_hand(of_user=True), [0.0])

    def test_others_are_written_in_their_place(self):
        self.assertEqual(self.train({0, 1, 2}, write=True), [0.0])

    def test_others_are_written_over_zeros(self):
        self.assertEqual(self.train({0, 1, 2}, to_none=False, write=True), [0.0])


class Tower(nn.Linear):
    @torch.no_grad()
    def forward(self, x):
        return super().forward(x)


class BlindForward(CauseCase):
    NAME = "opt.forward_without_gradients"

    def train(self, freezes=False, holds=True):
        model = nn.Sequential(Tower(3, 3), nn.Linear(3, 1))
        model[0].requires_grad_(not freezes)
        held = model if holds else model[1]
        optimizer = sgd(held)
        for _ in range(2):
            train_step(model, optimizer)
        return self.said()[-1:]

    def test_a_part_that_is_trained(self):
        self.assertEqual(self.train(), [1.0])

    def test_a_part_that_is_frozen(self):
        self.assertEqual(self.train(freezes=True), [])

    def test_a_part_that_no_optimizer_holds(self):
        self.assertEqual(self.train(holds=False), [])


class Averages:
    def store(self, parameters):
        pass

    def copy_to(self, parameters):
        pass

    def restore(self, parameters):
        pass


class AverageLeftIn(CauseCase):
    NAME = "opt.average_left_in"

    def train(self, *calls, anew=False):
        model, averages = Net(), Averages()
        optimizer = sgd(model)
        train_step(model, optimizer)
        for call in calls:
            getattr(averages, call)(model.parameters())
        if anew:
            model = Net()
            optimizer = sgd(model)
        train_step(model, optimizer)
        return self.said()

    def test_put_in_for_good(self):
        self.assertEqual(self.train("store", "copy_to"), [1.0])

    def test_taken_out_again(self):
        self.assertEqual(self.train("store", "copy_to", "restore"), [0.0])

    def test_another_training(self):
        self.assertEqual(self.train("store", "copy_to", anew=True), [])

    def test_never_stored(self):
        self.assertEqual(self.train("copy_to"), [])


class SeededOrders(CauseCase):
    NAME = "loader.generator_set_back"

    def train(self, seed, generator=None, anew=False):
        model = Net()
        optimizer = sgd(model)
        data = [torch.ones(3) for _ in range(8)]
        loader = torch.utils.data.DataLoader(
            data, batch_size=4, shuffle=True, generator=generator
        )
        for _ in range(3):
            for batch in loader:
                optimizer.zero_grad()
                model(batch).sum().backward()
                optimizer.step()
            if seed:
                torch.manual_seed(5)
            if anew:
                optimizer = sgd(model)
        return self.said()

    def test_seeded_after_each_pass(self):
        self.assertEqual(self.train(seed=True), [0.0, 1.0])

    def test_never_seeded(self):
        self.assertEqual(self.train(seed=False), [0.0, 0.0])

    def made_anew(self, seed):
        """A loader is made for each epoch, over samples that are not."""
        model = Net()
        optimizer = sgd(model)
        data = torch.utils.data.TensorDataset(torch.ones(8, 3))
        loaders = [
            torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
            for _ in range(3)
        ]
        for number in range(3):
            if seed:
                torch.manual_seed(5)
            for (batch,) in loaders[number]:
                optimizer.zero_grad()
                model(batch).sum().backward()
                optimizer.step()
        return self.said()

    def test_loaders_that_are_made_for_each_epoch(self):
        self.assertEqual(self.made_anew(seed=True), [1.0, 1.0])
        self.setUp()
        self.assertEqual(self.made_anew(seed=False), [0.0, 0.0])

    def test_a_generator_of_its_own(self):
        self.assertEqual(self.train(seed=True, generator=torch.Generator()), [])

    def test_another_training(self):
        self.assertEqual(self.train(seed=True, anew=True), [])


if __name__ == "__main__":
    unittest.main()
