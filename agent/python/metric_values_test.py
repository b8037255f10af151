"""Which way a value gets better that is given by settings, or kept in a list."""

import pathlib
import sys
import unittest

from torch.optim import lr_scheduler

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, KeepCase, SignsCase, WATCH, said


def mean_loss(number):
    return float(number)


def mean_accuracy(number):
    return float(number)


def judged(number):
    return float(number)


class Stopper:
    """As it is copied from one repository to the other, with a setting."""

    def __init__(self, turns=False, mode="max"):
        self.turns = turns
        self.mode = mode
        self.flips = False
        self.best = None
        self.rounds = 0

    def keep(self, model):
        model.state_dict()


class BySetting(Stopper):
    def __call__(self, val_loss, model):
        score = val_loss
        if self.turns:
            score = -val_loss
        if self.best is None or score >= self.best:
            self.best = score
            self.keep(model)


class ByMode(Stopper):
    def __call__(self, metric, model):
        if self.mode == "min":
            score = -metric
        else:
            score = metric
        if self.best is None or score > self.best:
            self.best = score
            self.keep(model)


class Asking(Stopper):
    """Asks a method whether a value is better."""

    def better(self, value):
        """As most of them are written."""
        if self.best is None:
            return True
        if self.mode == "max":
            return value > self.best + 0.01
        return value < self.best - 0.01

    def __call__(self, value, model):
        if self.better(value):
            self.best, self.rounds = value, 0
            self.keep(model)
        else:
            self.rounds += 1


class AskingFirst(Asking):
    """Keeps what is worse than the best, by one that turns the answer around."""

    def worse(self, value):
        if self.mode == "max":
            return not (value > self.best)
        return not (value < self.best)

    def __call__(self, value, model):
        found = self.best is None or not self.worse(value)
        if found:
            self.keep(model)
            self.best = value


class AskingAFunction(Stopper):
    def __call__(self, value, model):
        if self.best is None or is_better(value, self.best, self.mode):
            self.best = value
            self.keep(model)


class AskingMore(Asking):
    """Does more than to answer."""

    def better(self, value):
        value = self.turned(value)
        return self.best is None or value > self.best

    def turned(self, value):
        return -value


class AskingItsOwn(Asking):
    """Another one than that of the class."""

    def __init__(self, **options):
        super().__init__(**options)
        self.better = lambda value: self.best is None or value < self.best


class OfAnotherName(Stopper):
    def better(this, value):
        return this.best is None or value > this.best

    def __call__(self, value, model):
        if self.better(value):
            self.best = value
            self.keep(model)


def is_better(value, best, mode):
    return value > best if mode == "max" else value < best


class ByFlip(Stopper):
    """What turns it around is set within the training."""

    def __call__(self, val_loss, model):
        score = val_loss
        if self.flips:
            score = -val_loss
        self.flips = False
        if self.best is None or score >= self.best:
            self.best = score
            self.keep(model)

    def begin(self):
        self.flips = True


class Turning(KeepCase):
    KEPT = "opt.keeps_the_worst"

    def anew(self):
        CORE.log.clear()
        WATCH.kept_bests._places.clear()

    def test_a_setting_that_turns_it_around(self):
        stopper = BySetting()
        for number in (0.5, 0.4):
            val_loss = judged(number)
            stopper(val_loss, self.model)
        self.assertEqual(self.said(), [1.0])
        # It may be the one or the other where the setting is on.
        self.anew()
        stopper = BySetting(turns=True)
        for number in (0.5, 0.4):
            val_loss = judged(number)
            stopper(val_loss, self.model)
        self.assertEqual(self.said(), [])

    def test_another_metric_than_the_class_was_made_for(self):
        stopper = BySetting()
        for number in (0.4, 0.5):
            val_acc = judged(number)
            stopper(val_acc, self.model)
        self.assertEqual(self.said(), [0.0])
        self.anew()
        stopper = BySetting()
        for number in (0.4, 0.5):
            stopper(judged(number), self.model)
        self.assertEqual(self.said(), [])

    def test_a_mode(self):
        for way, of_loss in (("min", [0.0]), ("max", [1.0])):
            self.anew()
            stopper = ByMode(mode=way)
            val_loss = judged(0.5)
            stopper(val_loss, self.model)
            self.assertEqual(self.said(), of_loss)
            self.anew()
            stopper = ByMode(mode=way)
            val_loss = judged(0.5)
            stopper(-val_loss, self.model)
            self.assertEqual(self.said(), [1 - of_loss[0]])

    def test_a_method_that_is_asked(self):
        for kind in (Asking, AskingFirst, AskingAFunction):
            for way, of_loss in (("min", 0.0), ("max", 1.0)):
                for numbers in ((0.5,), (0.5, 0.4), (0.5, 0.6)):
                    self.anew()
                    stopper = kind(mode=way)
                    for number in numbers:
                        val_loss = judged(number)
                        stopper(val_loss, self.model)
                    self.assertEqual(self.said(), [of_loss], (kind, way, numbers))
                self.anew()
                stopper = kind(mode=way)
                val_accuracy = judged(0.5)
                stopper(val_accuracy, self.model)
                self.assertEqual(self.said(), [1 - of_loss], (kind, way))
                self.anew()
                stopper = kind(mode=way)
                val_loss = judged(0.5)
                stopper(-val_loss, self.model)
                self.assertEqual(self.said(), [1 - of_loss], (kind, way))

    def test_methods_that_do_not_say(self):
        for kind in (AskingMore, AskingItsOwn, OfAnotherName):
            self.anew()
            stopper = kind()
            for number in (0.5, 0.4):
                val_loss = judged(number)
                stopper(val_loss, self.model)
            self.assertEqual(self.said(), [], kind)

    def test_a_mode_that_is_set_later(self):
        stopper = Asking()
        stopper.mode = "min"
        for number in (0.5, 0.4):
            val_loss = judged(number)
            stopper(val_loss, self.model)
        self.assertEqual(self.said(), [0.0])

    def test_a_setting_that_changes(self):
        stopper = ByFlip()
        stopper.begin()
        for number in (0.5, 0.4):
            val_loss = judged(number)
            stopper(val_loss, self.model)
        self.assertEqual(self.said(), [])


class Lists(KeepCase):
    KEPT = "opt.keeps_the_worst"

    def setUp(self):
        super().setUp()
        WATCH.kept_bests._places.clear()

    def test_the_last_one_of_a_list(self):
        history, stopper = [], BySetting()
        for number in (0.5, 0.4):
            history.append(mean_loss(number))
            stopper(history[-1], self.model)
        self.assertEqual(self.said(), [1.0])

    def test_what_was_turned_around_before(self):
        history, stopper = [], BySetting()
        for number in (0.5, 0.4):
            history.append(-mean_loss(number))
            stopper(history[-1], self.model)
        self.assertEqual(self.said(), [0.0])

    def test_an_accuracy_for_a_loss(self):
        history, stopper = [], BySetting()
        for number in (0.4, 0.5):
            history.append(mean_accuracy(number))
            stopper(history[-1], self.model)
        self.assertEqual(self.said(), [0.0])

    def test_lists_that_do_not_say(self):
        both, judgements, given = [], [], [0.1]
        extended, row = [], [mean_loss(1.0), mean_accuracy(0.5)]
        for number in (0.4, 0.5):
            both.append(mean_loss(number))
            both.append(mean_accuracy(number))
            judgements.append(judged(number))
            given.append(mean_loss(number))
            extended.append(mean_loss(number))
            extended.extend([judged(number)])
            BySetting()(both[-1], self.model)
            BySetting()(judgements[-1], self.model)
            BySetting()(given[-1], self.model)
            BySetting()(extended[-1], self.model)
            BySetting()(row[-1], self.model)
        self.assertEqual(self.said(), [])


class Plateaus(SignsCase):
    """Metrics that are given to ReduceLROnPlateau as more than a name."""

    def after(self, way, step):
        HooksCase.setUp(self)
        scheduler = lr_scheduler.ReduceLROnPlateau(self.optimizer, mode=way)
        step(scheduler)
        self.step()
        return said("schedule.against_metric")

    def test_by_what_gives_the_metric(self):
        losses, hits, total, accuracy = [2.0, 1.0], 5, 8, 0.5
        metrics = {"val_loss": 1.0, "val_accuracy": 0.5}

        def all_of(way, *values):
            def step(scheduler):
                for accuracy in values:
                    scheduler.step(sum(accuracy) / len(accuracy))

            return self.after(way, step)[-1:]

        def of_key(scheduler):
            monitor = "val_loss"
            scheduler.step(metrics[monitor])

        def turned(scheduler):
            score = -metrics["val_loss"]
            scheduler.step(score)

        def summed(scheduler):
            acc = 0.0
            for loss in losses:
                acc += loss
            scheduler.step(acc / 2)

        for way, step, expected in (
            ("max", lambda s: s.step(-accuracy), [1.0]),
            ("max", lambda s: s.step(sum(losses) / len(losses)), [1.0]),
            ("min", lambda s: s.step(sum(losses) / len(losses)), [0.0]),
            ("max", of_key, [1.0]),
            ("min", of_key, [0.0]),
            ("max", turned, []),
            ("min", summed, []),
            ("min", lambda s: s.step(hits / total), []),
        ):
            self.assertEqual(self.after(way, step), expected)
        self.assertEqual(all_of("min", [0.1], [0.2], [0.3]), [1.0])
        self.assertEqual(all_of("max", [0.1], [0.2], [0.3]), [0.0])
        self.assertEqual(all_of("min", [0.3], [0.2], [0.1]), [])


if __name__ == "__main__":
    unittest.main()
