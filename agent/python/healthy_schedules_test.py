"""Schedules of healthy trainings that come close to a mistake, and the mistakes beside
them."""

import functools
import math
import pathlib
import sys
import tempfile
import unittest

import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils import data

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import WATCH, HooksCase, SignsCase, last, said


class ScheduleCase(SignsCase):
    NAME: str

    def values(self):
        """What was said; "not a number" says that there is no word of it any more."""
        return {value for value in said(self.NAME) if value == value}


class MilestonesToCome(ScheduleCase):
    NAME = "schedule.state_not_saved"

    def resume(self, make, at=None, **progress):
        """A second job goes on from the file of the first, before a milestone; at: the
        epoch that it sets by hand."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "last.pt")
            for _ in range(2):
                optimizer = torch.optim.Adam(self.net.parameters(), lr=0.1)
                scheduler = make(optimizer)
                if path.exists():
                    optimizer.load_state_dict(torch.load(path)["optimizer"])
                for _ in range(2):
                    self.step(optimizer=optimizer)
                    if path.exists() and at is not None:
                        scheduler.last_epoch = at
                    if scheduler is not None:
                        scheduler.step()
                torch.save({"optimizer": optimizer.state_dict(), **progress}, path)
        return self.values()

    def test_one_that_is_not_saved(self):
        milestones = lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [6, 9])
        self.assertEqual(self.resume(milestones, epoch=1), {1.0})
        self.setUp()
        self.assertEqual(self.resume(milestones, at=1, epoch=1), {0.0})

    def test_a_file_that_says_nothing_of_epochs(self):
        steps = lambda optimizer: lr_scheduler.StepLR(optimizer, 6)
        self.assertEqual(self.resume(steps), set())
        self.setUp()
        self.assertEqual(self.resume(steps, epoch=0), set())

    def test_no_schedule(self):
        self.assertEqual(self.resume(lambda optimizer: None, epoch=1), set())


class MilestonesEarly(ScheduleCase):
    NAME = "schedule.milestones_in_first_pass"

    def of(self, milestones, batches=12, steps=60, gamma=0.1, each_step=True):
        HooksCase.setUp(self)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        scheduler = lr_scheduler.MultiStepLR(optimizer, milestones, gamma)
        rows = data.DataLoader(torch.randn(4 * batches, 5), batch_size=4)
        for _ in range(steps // batches):
            for _ in rows:
                self.step(optimizer=optimizer)
                if each_step:
                    scheduler.step()
            if not each_step:
                scheduler.step()
        return {value for value in said(self.NAME) if value == value}

    def test_epochs_in_each_step(self):
        self.assertEqual(self.of((5, 8)), {0.0, 1.0})

    def test_right_ones(self):
        self.assertEqual(self.of((2, 4), each_step=False), {0.0})
        self.assertEqual(self.of((30, 45)), {0.0})
        self.assertEqual(self.of((5, 8), batches=60), {0.0})  # one pass, by steps
        self.assertEqual(self.of((5, 8), steps=24), {0.0})  # too short to tell
        self.assertEqual(self.of((5, 8), gamma=0.9), set())
        self.assertEqual(self.of((100, 150), batches=240, steps=720), set())


class EndsEarly(ScheduleCase):
    NAME = "schedule.ends_in_first_pass"

    def of(self, end, batches=None, steps=48, evaluates=0, made=None):
        """What is said of a cosine, and of one that rises again. batches: of a loader;
        evaluates: after so many steps."""
        HooksCase.setUp(self)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        scheduler = (made or lr_scheduler.CosineAnnealingLR)(optimizer, end)
        rows = data.DataLoader(torch.randn(4 * (batches or 1), 5), batch_size=4)
        number = 0
        while number < steps:
            for _ in range(1) if batches is None else rows:
                self.step(optimizer=optimizer)
                scheduler.step()
                number += 1
                if evaluates and number % evaluates == 0:
                    with torch.no_grad():
                        self.net(torch.randn(2, 5))
        again = {v for v in said("schedule.rises_again") if v == v}
        return self.values(), again

    def test_epochs_in_each_step(self):
        wrong = ({0.0, 1.0}, {0.0})
        for end, batches, evaluates in ((4, 12, 0), (10, 12, 0), (4, None, 16)):
            self.assertEqual(self.of(end, batches, 48, evaluates), wrong)

    def test_a_training_that_is_longer_than_planned(self):
        longer = ({0.0}, {0.0, 1.0})
        self.assertEqual(self.of(12, 12), longer)
        self.assertEqual(self.of(11, 12), longer)  # one less
        self.assertEqual(self.of(24, 12, 96), longer)  # two passes
        self.assertEqual(self.of(5, None, evaluates=1), longer)
        self.assertEqual(self.of(5, None, 300), longer)  # no pass is to be seen

    def test_too_short_to_tell(self):
        self.assertEqual(self.of(10, 24, 24), ({0.0}, {0.0}))

    def test_right_ones(self):
        right = ({0.0}, {0.0})
        self.assertEqual(self.of(48, 12), right)
        restarts = lr_scheduler.CosineAnnealingWarmRestarts
        self.assertEqual(self.of(4, 12, made=restarts), (set(), set()))

    def test_one_that_goes_on(self):
        def goes_on(optimizer, end):
            scheduler = lr_scheduler.CosineAnnealingLR(optimizer, end)
            scheduler.load_state_dict({**scheduler.state_dict(), "last_epoch": 40})
            return scheduler

        self.assertEqual(self.of(10, 60, made=goes_on)[0], set())


def cosine(done):
    return 0.5 * (1 + math.cos(math.pi * done))


class CosineWaves(ScheduleCase):
    NAME = "schedule.rises_again"

    def of(self, factor, steps=48, each=1):
        """each: steps of the optimizer for one of the scheduler."""
        HooksCase.setUp(self)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        scheduler = lr_scheduler.LambdaLR(optimizer, factor)
        for number in range(1, steps + 1):
            self.step(optimizer=optimizer)
            if number % each == 0:
                scheduler.step()
        return self.values()

    def test_a_cosine_that_goes_on(self):
        for factor in (
            lambda s: cosine(s / 24),
            lambda s: cosine(2 * s / 47),  # two calls for each step
            lambda s: min(s / 6, cosine((s - 6) / 18))
            if s < 24
            else cosine((s - 6) / 18),
            lambda s: 0.005 + 0.995 * cosine(s / 24),
        ):
            self.assertEqual(self.of(factor), {0.0, 1.0})

    def test_one_of_epochs(self):
        self.assertEqual(
            self.of(lambda s: cosine(s / 12), each=3, steps=60), {0.0, 1.0}
        )

    def test_one_that_ends(self):
        for factor in (
            lambda s: cosine(min(1, s / 24)),
            lambda s: cosine(s / 47),
            lambda s: max(0, 1 - s / 24),
            lambda s: 0.6**s,
        ):
            self.assertEqual(self.of(factor), {0.0})

    def test_one_that_is_a_step_longer(self):
        self.assertEqual(self.of(lambda s: cosine(s / 45)), {0.0})

    def test_restarts(self):
        for factor in (
            lambda s: cosine(s % 24 / 24),
            lambda s: s % 24 / 6 if s % 24 < 6 else cosine((s % 24 - 6) / 18),
            lambda s: s % 24 / 9 if s % 24 < 9 else cosine((s % 24 - 9) / 15),
        ):
            self.assertNotIn(1.0, self.of(factor))

    def test_triangles(self):
        self.assertNotIn(1.0, self.of(lambda s: abs(1 - s % 48 / 24)))
        self.assertNotIn(1.0, self.of(lambda s: abs(1 - s % 24 / 12)))

    def test_waves_that_stay_above(self):
        found = self.of(lambda s: 0.1 + 0.9 * cosine(s / 24))
        self.assertEqual(found, set())

    def test_cycles_that_are_wanted(self):
        def wave(step, num_cycles):
            return cosine(2 * num_cycles * step / 48)

        self.assertEqual(self.of(functools.partial(wave, num_cycles=1)), set())
        self.assertEqual(self.of(functools.partial(wave, num_cycles=0.5)), {0.0})

    def test_a_short_one(self):
        self.assertEqual(self.of(lambda s: cosine(s / 6)), set())


class VanishingRates(ScheduleCase):
    NAME = "schedule.rate_vanishes"

    def fall(self, batches):
        HooksCase.setUp(self)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=1.0)
        scheduler = lr_scheduler.ExponentialLR(optimizer, 0.3)
        for _ in batches:
            self.step(optimizer=optimizer)
            scheduler.step()
        return self.values()

    def test_a_step_is_an_epoch(self):
        self.assertEqual(self.fall(range(12)), set())

    def test_a_schedule_of_epochs_in_each_step(self):
        rows = data.DataLoader(torch.randn(48, 5), batch_size=4)
        self.assertEqual(self.fall(rows), {0.0, 1.0})


class MetricDirection(ScheduleCase):
    NAME = "schedule.against_metric"

    def wait(self, values, mode="min"):
        HooksCase.setUp(self)
        scheduler = lr_scheduler.ReduceLROnPlateau(self.optimizer, mode=mode)
        for r2 in values:
            scheduler.step(r2)
            self.step()
        return self.values()

    def test_a_squared_residual_that_falls(self):
        self.assertEqual(self.wait([0.34, 0.29, 0.3, 0.28, 0.2]), set())

    def test_a_share_that_rises(self):
        self.assertEqual(self.wait([0.1, 0.3, 0.5]), {1.0})
        self.assertEqual(self.wait([0.1, 0.3, 0.5], mode="max"), {0.0})


class Schedules(ScheduleCase):
    def optimizers(self):
        nets = nn.Linear(5, 4), nn.Linear(5, 4)
        return nets, [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]

    def critic_and_generator(self, each, advances=1):
        """The generator steps once in so many of the critic's steps."""
        nets, both = self.optimizers()
        schedulers = [lr_scheduler.StepLR(one, 99) for one in both]
        for number in range(25):
            self.step(nets[0], both[0])
            if each and number % each == 0:
                self.step(nets[1], both[1])
            for scheduler in schedulers * advances:
                scheduler.step()

    def test_schedules_that_count_the_steps_of_the_critic(self):
        self.critic_and_generator(each=5)
        self.assertEqual(max(said("schedule_idle")), 0.0)
        moved = [value for value in said("schedule_moved") if value == value]
        self.assertEqual(max(moved), 1.0)

    def test_an_optimizer_that_never_steps(self):
        self.critic_and_generator(each=0)
        self.assertGreater(max(said("schedule_idle")), 3.0)

    def replaced(self, makes_anew):
        """After ten steps all layers are trained, not only the first."""
        net = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 4))
        optimizer = torch.optim.SGD(net[0].parameters(), lr=0.1)
        scheduler = lr_scheduler.StepLR(optimizer, 99)
        for number in range(20):
            if number == 10:
                optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
                if makes_anew:
                    scheduler = lr_scheduler.StepLR(optimizer, 99)
            self.step(net, optimizer)
            scheduler.step()
        return max(said("schedule_idle"))

    def test_an_optimizer_that_takes_the_place_of_another(self):
        self.assertLess(self.replaced(makes_anew=True), 2.0)
        HooksCase.setUp(self)
        self.assertGreater(self.replaced(makes_anew=False), 3.0)

    def test_schedules_that_advance_twice(self):
        self.critic_and_generator(each=1, advances=2)
        self.assertEqual(last("schedule_moved"), 2.0)


class Cycles(ScheduleCase):
    NAME = "schedule.cycle_waits"

    def train(self, total, epochs, each_epoch):
        HooksCase.setUp(self)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        cycle = lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=total)
        rows = data.DataLoader(torch.randn(32, 5), batch_size=4, shuffle=True)
        for epoch in range(epochs):
            for _ in rows:
                self.step(optimizer=optimizer)
                if not each_epoch and cycle.last_epoch < total - 1:
                    cycle.step()
            if each_epoch and cycle.last_epoch < total - 1:
                cycle.step()
        return self.values()

    def test_another_schedule_takes_over(self):
        self.assertEqual(self.train(16, epochs=4, each_epoch=False), {0.0})

    def test_a_cycle_of_epochs(self):
        self.assertEqual(self.train(20, epochs=20, each_epoch=True) & {1.0}, set())
        self.assertEqual(self.train(5, epochs=5, each_epoch=True) & {1.0}, set())

    def test_a_cycle_of_batches_that_waits(self):
        for total in (32, 33):
            self.assertEqual(self.train(total, epochs=1, each_epoch=True), {1.0})


class UnusedSchedules(ScheduleCase):
    NAME = "schedule.unused"

    def train(self, step):
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        scheduler = lr_scheduler.StepLR(optimizer, 1, 0.5)
        rows = data.DataLoader(torch.randn(16, 5), batch_size=8)
        step(self, optimizer, scheduler, rows)
        return self.values()

    def test_a_rate_that_is_held_at_first(self):
        def hold(case, optimizer, scheduler, rows):
            for epoch in range(6):
                for _ in rows:
                    case.step(optimizer=optimizer)
                if epoch >= 4:
                    scheduler.step()

        self.assertEqual(self.train(hold), {0.0})

    def test_a_rate_that_nobody_changes(self):
        def forget(case, optimizer, scheduler, rows):
            for epoch in range(6):
                for _ in rows:
                    case.step(optimizer=optimizer)
                if epoch >= 4:
                    rows.sampler

        self.assertEqual(self.train(forget), {0.0, 1.0})


class RateAsFactor(ScheduleCase):
    NAME = "schedule.rate_as_factor"

    def train(self, factor, rate=0.1):
        HooksCase.setUp(self)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=rate)
        scheduler = lr_scheduler.LambdaLR(optimizer, factor)
        for _ in range(9):
            self.step(optimizer=optimizer)
            scheduler.step()
        return self.values()

    def test_first_steps_at_a_tenth(self):
        self.assertEqual(self.train(lambda n: 0.1 if n < 4 else 1.0), {0.0})

    def test_the_rate_itself(self):
        self.assertEqual(self.train(lambda n: 0.1 if n < 4 else 0.01), {1.0})
        self.assertEqual(self.train(lambda n: 0.1 * min(1.0, (n + 1) / 4)), {1.0})


class GivenEpochs(ScheduleCase):
    NAME = "schedule.last_epoch_apart"

    def resume(self, function, steps, epoch):
        """A state after so many steps of the schedule is loaded, and the schedule is
        made to go on from the epoch."""
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        scheduler = lr_scheduler.LambdaLR(optimizer, function)
        for _ in range(steps):
            self.step(optimizer=optimizer)
            scheduler.step()
        state = optimizer.state_dict()
        HooksCase.setUp(self)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        optimizer.load_state_dict(state)
        scheduler = lr_scheduler.LambdaLR(optimizer, function, last_epoch=epoch)
        for _ in range(3):
            self.step(optimizer=optimizer)
            scheduler.step()
        return self.values()

    def test_a_state_that_was_saved_before_the_schedules_step(self):
        self.assertEqual(self.resume(lambda n: 0.8**n, 3, epoch=3), {0.0})

    def test_a_schedule_that_is_given_another_counter(self):
        self.assertEqual(self.resume(lambda n: 1 / (1 + n), 20, epoch=3), {1.0})


class SharedSchedules(ScheduleCase):
    NAME = "schedule.all_on_one"

    def train(self, make):
        HooksCase.setUp(self)
        nets = nn.Linear(5, 4), nn.Linear(5, 4)
        both = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
        schedulers = make(both[0])
        for _ in range(4):
            for net, optimizer in zip(nets, both):
                self.step(net, optimizer)
            for scheduler in schedulers:
                scheduler.step()
        return max(self.values())

    def test_a_warm_up_and_a_cool_down(self):
        line = lr_scheduler.LinearLR
        make = lambda o: [line(o, 0.1, total_iters=3), line(o, 1.0, 0.1)]
        self.assertEqual(self.train(make), 0.0)

    def test_one_schedule_twice(self):
        at, fall = [1, 3], lambda n: 0.9**n
        steps = lambda o: [
            lr_scheduler.MultiStepLR(o, at),
            lr_scheduler.MultiStepLR(o, at),
        ]
        self.assertEqual(self.train(steps), 1.0)
        functions = lambda o: [lr_scheduler.LambdaLR(o, fall) for _ in range(2)]
        self.assertEqual(self.train(functions), 1.0)


class ResumedSchedules(ScheduleCase):
    NAME = "schedule.state_not_loaded"

    def resume(self, again):
        HooksCase.setUp(self)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        scheduler = lr_scheduler.StepLR(optimizer, 1, 0.5)
        self.step(optimizer=optimizer)
        scheduler.step()
        content = {"o": optimizer.state_dict(), "s": scheduler.state_dict()}
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        WATCH.resumed_schedules.loaded(content)
        optimizer.load_state_dict(content["o"])
        if again:
            optimizer.param_groups[0]["lr"] = 0.1
        scheduler = lr_scheduler.StepLR(optimizer, 1, 0.5)
        self.step(optimizer=optimizer)
        return self.values()

    def test_a_rate_that_is_set_to_warm_up_again(self):
        self.assertEqual(self.resume(again=True), set())

    def test_a_state_that_is_forgotten(self):
        self.assertEqual(self.resume(again=False), {1.0})


if __name__ == "__main__":
    unittest.main()
