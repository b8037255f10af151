"""States that are kept as the best: for the worst value?"""

import copy
import io
import operator
import pathlib
import sys
import unittest
import weakref

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, KeepCase, WATCH

INF = float("inf")


def wer(number):
    return float(number)


def accuracy_score(number):
    return float(number)


def evaluated(number):
    return float(number)


class Keeper:
    """What the classes below share: a best value, and a state."""

    def __init__(self, best=INF, **settings):
        self.best = self.score = best
        self.best_loss = self.best_acc = best
        self.state = None
        vars(self).update(settings)

    def keep(self, model):
        self.state = copy.deepcopy(model.state_dict())


class BySign(Keeper):
    def ends(self, model, metrics):
        value = self.sign * metrics[self.monitor]
        if value > self.best:
            self.best = value
            torch.save(model.state_dict(), io.BytesIO())


class ByFlag(Keeper):
    def ends(self, model, metrics):
        config = self.config
        value = metrics[config["metric"]]
        improved = self.best is None or (
            value > self.best if self.greater else value < self.best
        )
        if improved:
            self.best, self.epoch = value, 1
            self.keep(model)


class ByParameter(Keeper):
    def offer(self, score, model):
        if (score < self.score) if self.lower else (score > self.score):
            self.score, self.epoch = score, 1
            self.state = {k: v.clone() for k, v in model.state_dict().items()}
            return True
        return False


class ByMode(Keeper):
    def ends(self, model, metrics):
        value = metrics[self.monitor]
        if self.better(value, self.best):
            self.best = value
            self.keep(model)


class ByFunction(Keeper):
    def ends(self, model, val_loss):
        current = val_loss["loss"]
        if self.better(current - self.delta, self.best):
            self.best = current
            self.keep(model)


class EarlyStopping(Keeper):
    """As it is copied from one repository to the other: made for losses."""

    def __init__(self, delta=0):
        super().__init__(best=None)
        self.delta = delta
        self.counter = 0

    def __call__(self, val_loss, model):
        score = -val_loss
        if self.best is None:
            self.best = score
            self.keep(model)
        elif score < self.best + self.delta:
            self.counter += 1
        else:
            self.best = score
            self.keep(model)


class Hardest(Keeper):
    def ends(self, model, loss):
        if loss["loss"] > self.best:
            self.best = loss["loss"]
            self.keep(model)


class BestCase(KeepCase):
    KEPT = "opt.keeps_the_worst"

    def anew(self):
        CORE.log.clear()
        WATCH.kept_bests._places.clear()


class Keeps(BestCase):
    def test_what_is_monitored_and_its_sign(self):
        for monitor, sign, expected in (
            ("val_loss", 1, [1.0]),
            ("val_loss", -1, [0.0]),
            ("val_acc", 1, [0.0]),
            ("val_acc", -1, [1.0]),
            ("SSIM", -1, []),  # a similarity, or a distance
            ("negLoss", 1, []),
            ("forget_acc", -1, []),
        ):
            self.anew()
            keeper = BySign(best=-INF, sign=sign, monitor=monitor)
            keeper.ends(self.model, {monitor: 0.5})
            self.assertEqual(self.said(), expected, (monitor, sign))
        self.assertEqual(self.said("opt.keeps_the_worst.site"), [])

    def test_the_line_of_the_condition(self):
        BySign(best=-INF, sign=1, monitor="val_loss").ends(
            self.model, {"val_loss": 0.5}
        )
        self.assertEqual(len(self.said("opt.keeps_the_worst.site")), 1)

    def test_a_flag(self):
        for greater, expected in ((True, [1.0]), (False, [0.0])):
            for best in (None, 3.0):
                self.anew()
                if best is not None:
                    best = -best if greater else best
                config = {"metric": "eval_perplexity"}
                keeper = ByFlag(best=best, greater=greater, config=config)
                keeper.ends(self.model, {"eval_perplexity": 1.0})
                self.assertEqual(self.said(), expected)

    def test_a_parameter_is_what_the_caller_gives(self):
        for lower, expected in ((False, [1.0]), (True, [0.0])):
            self.anew()
            keeper = ByParameter(best=INF if lower else -INF, lower=lower)
            score = wer(0.3)
            keeper.offer(score, self.model)
            self.assertEqual(self.said(), expected)
            self.anew()
            keeper.score = INF if lower else -INF
            keeper.offer(accuracy_score(0.3), model=self.model)
            self.assertEqual(self.said(), [1 - expected[0]])

    def test_an_object_that_says_what_it_monitors(self):
        for monitor, mode, expected in (
            ("val_acc", "min", [1.0]),
            ("val/loss", "min", [0.0]),
            ("valLoss", "max", [1.0]),
            ("reward", "min", []),
        ):
            self.anew()
            better = operator.lt if mode == "min" else operator.gt
            settings = {"monitor": monitor, "mode": mode, "better": better}
            keeper = ByMode(INF if mode == "min" else -INF, **settings)
            keeper.ends(self.model, {monitor: 0.5})
            self.assertEqual(self.said(), expected, monitor)
            self.anew()
            keeper = ByMode(INF, save_top_k=-1, **settings)
            keeper.better = lambda one, other: True
            keeper.ends(self.model, {monitor: 0.5})
            self.assertEqual(self.said(), [])

    def test_a_function_that_compares(self):
        for better, best, expected in (
            (operator.gt, -INF, [1.0]),
            (torch.lt, INF, [0.0]),
        ):
            self.anew()
            keeper = ByFunction(torch.tensor(best), delta=0.01, better=better)
            keeper.ends(self.model, {"loss": torch.tensor(0.5)})
            self.assertEqual(self.said(), expected)

    def test_the_other_branch(self):
        for turned, expected in ((False, [0.0]), (True, [1.0])):
            self.anew()
            stopping = EarlyStopping()
            val_loss = val_acc = 0.5
            for _ in range(3):
                if turned:
                    stopping(val_acc, self.model)
                    val_acc -= 0.1
                else:
                    stopping(val_loss, self.model)
                    val_loss = val_loss / 2
            self.assertEqual(self.said(), [] if turned else expected)

    def test_an_accuracy_for_a_loss(self):
        stopping = EarlyStopping()
        for number in (0.5, 0.4, 0.3):
            val_acc = evaluated(number)
            stopping(val_acc, self.model)
        self.assertEqual(self.said(), [1.0])

    def test_an_accuracy_that_was_turned_around(self):
        for turn in (lambda s, a: s(-a, self.model), lambda s, a: s(1 - a, self.model)):
            stopping = EarlyStopping()
            for number in (0.3, 0.4, 0.5):
                turn(stopping, number)
            self.assertEqual(self.said(), [])
        stopping = EarlyStopping()
        for number in (0.3, 0.4, 0.5):
            val_acc = evaluated(number)
            stopping(1 - val_acc, self.model)
        self.assertEqual(self.said(), [0.0])

    def test_variables(self):
        best_loss, best_acc = -INF, INF
        for number in (0.3, 0.5):
            val_loss = evaluated(number)
            if val_loss > best_loss:
                best_loss = val_loss
                self.model.state_dict()
        self.assertEqual(self.said(), [1.0])
        CORE.log.clear()
        for number in (0.5, 0.3):
            acc = evaluated(number)
            if best_acc > acc:
                best_acc = acc
                self.model.state_dict()
        self.assertEqual(self.said(), [1.0])

    def test_a_choice_beside_the_condition(self):
        best_loss = -INF
        loss = evaluated(0.5)
        is_best = loss > best_loss
        best_loss = max(best_loss, loss)
        if is_best:
            self.model.state_dict()
        self.assertEqual(self.said(), [1.0])

    def test_parts_of_what_is_kept(self):
        best = {"acc": INF, "epoch": 0}
        acc = evaluated(0.5)
        if acc < best["acc"]:
            best = {"acc": acc, "state": self.model.state_dict()}
        self.assertEqual(self.said(), [1.0])
        CORE.log.clear()
        kept = (-INF, None)
        loss = torch.tensor(0.5)
        if loss.item() > kept[0]:
            kept = (loss.item(), self.model.state_dict())
        self.assertEqual(self.said(), [1.0])


class Silent(BestCase):
    def test_sums_and_differences(self):
        best = INF
        total_loss = 0.0
        for _ in range(3):
            total_loss += evaluated(0.5)
        mean = total_loss / 3
        if best - mean > 1e-4:
            best = mean
            self.model.state_dict()
        self.assertEqual(self.said(), [0.0])
        CORE.log.clear()
        best = INF
        acc = evaluated(0.9)
        error = 1 - acc
        if error < best * 0.99:
            best = error
            self.model.state_dict()
        self.assertEqual(self.said(), [0.0])

    def test_turned_around(self):
        best = -INF
        loss = -evaluated(0.5)  # a likelihood
        if loss > best:
            best = loss
            self.model.state_dict()
        factor = evaluated(-1)
        value = factor * loss
        if value > best:
            best = value
            self.model.state_dict()
        self.assertEqual(self.said(), [])

    def test_a_complement(self):
        best = -INF
        loss = wer(0.5)
        value = 3 - loss
        if value > best:
            best = value
            self.model.state_dict()
        self.assertEqual(self.said(), [0.0])

    def test_names_that_do_not_say(self):
        best = -INF
        score = evaluated(0.5)
        if score > best:
            best = score
            self.model.state_dict()
        loss_scale = evaluated(2)
        if loss_scale > best:
            best = loss_scale
            self.model.state_dict()
        acc_loss = evaluated(3)
        if acc_loss > best:
            best = acc_loss
            self.model.state_dict()
        self.assertEqual(self.said(), [])

    def test_what_is_no_extreme(self):
        loss, threshold, last_loss, step = evaluated(0.5), 0.1, 0.2, 3
        best_loss, max_loss = 0.3, 0.1
        if loss > threshold:
            self.model.state_dict()
        if loss > last_loss:
            last_loss = loss
            self.model.state_dict()
        if loss > max_loss:
            max_loss = loss
            self.model.state_dict()
        if step > 2:
            best_loss = loss
            self.model.state_dict()
        if loss > 1.5 * best_loss:  # it diverges
            self.model.state_dict()
        best_loss = min(best_loss, loss)
        before = 0.1
        if loss > before:
            before = loss
            self.model.state_dict()
        else:
            before = loss
        self.assertEqual(self.said(), [])

    def test_the_hardest_ones(self):
        def hardest_start():
            best, loss = -INF, evaluated(0.5)
            if loss > best:
                best = loss
                return self.model.state_dict()

        hardest_start()
        best, loss = -INF, evaluated(0.5)
        if loss > best:
            best, worst_state = loss, self.model.state_dict()
        Hardest().ends(self.model, {"loss": 0.5})
        Hardest(-INF).ends(self.model, {"loss": 0.5})
        self.assertEqual(self.said(), [])

    def test_nothing_was_trained(self):
        self.setUp()
        WATCH.reset()
        keeper = BySign(best=-INF, sign=1, monitor="val_loss")
        keeper.ends(nn.Linear(2, 2), {"val_loss": 0.5})
        self.assertEqual(self.said(), [])

    def test_first_keeps_alone(self):
        keeper = BySign(best=-INF, sign=1, monitor="val_loss")
        for number in range(20):
            keeper.ends(self.model, {"val_loss": number})
            self.step()
        self.assertLessEqual(len(self.said()), 16)  # of state_dict, and of save


class Frames(BestCase):
    """That of the user keeps nothing that it would not keep."""

    def test_names_of_a_method(self):
        class Large:
            pass

        class Method(Keeper):
            def ends(self, model, metrics):
                large = Large()
                seen = weakref.ref(large)
                if self.monitor and metrics[self.monitor] > self.best:
                    self.best = metrics[self.monitor]
                    self.keep(model)
                del large
                return seen() is None

        keeper = Method(best=-INF, monitor="val_loss", sign=1)
        self.assertTrue(keeper.ends(self.model, {"val_loss": 1.0}))
        self.assertEqual(self.said(), [1.0])

    def test_who_took_all_names(self):
        class Method(Keeper):
            def ends(self, model, metrics):
                taken = locals()
                before = dict(taken)
                if self.sign * metrics[self.monitor] > self.best:
                    self.best = self.sign * metrics[self.monitor]
                    self.keep(model)
                return taken == before

        keeper = Method(best=-INF, monitor="val_loss", sign=1)
        self.assertTrue(keeper.ends(self.model, {"val_loss": 1.0}))
        self.assertEqual(self.said(), [])

    def test_properties_are_not_run(self):
        class Method(Keeper):
            @property
            def monitor(self):
                raise AssertionError

            def ends(self, model, metrics):
                value = metrics["score"] if self.sign else metrics[self.monitor]
                if value > self.best:
                    self.best = value
                    self.keep(model)

        Method(best=-INF, sign=1).ends(self.model, {"score": 1.0})
        self.assertEqual(self.said(), [])


if __name__ == "__main__":
    unittest.main()
