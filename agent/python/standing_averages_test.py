"""Averages and target networks whose update stores nothing."""

import copy
import inspect
import pathlib
import pickle
import sys
import unittest

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, said

STANDS = "opt.average_stands_still"


class Rebound:
    """The classic: a name is bound anew, and no tensor is written to."""

    def __init__(self, model):
        self.net = copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update_average(self, model):
        for average, p in zip(self.net.parameters(), model.parameters()):
            average = 0.9 * average + 0.1 * p


class Written(Rebound):
    @torch.no_grad()
    def update_average(self, model):
        for average, p in zip(self.net.parameters(), model.parameters()):
            average.mul_(0.9).add_(p, alpha=0.1)


class Ema:
    def __init__(self, model):
        self.shadow = {n: p.detach().clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for name, p in model.named_parameters():
            if name in self.shadow and p.requires_grad:
                value = self.shadow[name]
                value = value.lerp(p, 0.1)


class EmaThatStores(Ema):
    @torch.no_grad()
    def update(self, model):
        for name, p in model.named_parameters():
            self.shadow[name] = self.shadow[name].lerp(p, 0.1)


class EmaThatWaits(Ema):
    """On purpose, until the weights have settled."""

    calls = 0

    def update(self, model):
        self.calls += 1
        if self.calls > 1000:
            super().update(model)


class Agent:
    """Mixes two states, and loads none."""

    def __init__(self, model, loads=False):
        self.online = model
        self.target_net = copy.deepcopy(model).requires_grad_(False)
        self.loads = loads

    def soft_update(self):
        new, old = self.online.state_dict(), self.target_net.state_dict()
        mixed = {name: 0.1 * new[name] + 0.9 * old[name] for name in new}
        if self.loads:
            self.target_net.load_state_dict(mixed)


class AgentThatCounts(Agent):
    calls = 0

    def update_target(self):
        self.calls += 1
        if self.calls % 100 == 0:
            self.target_net.load_state_dict(self.online.state_dict())


class Partner:
    """Keeps a frozen reference, and updates something else."""

    def __init__(self, model):
        self.reference = copy.deepcopy(model).requires_grad_(False)
        self.losses = []

    def update_targets(self, loss):
        self.losses.append(float(loss))


class Trainer:
    """Steps, and keeps a reference that is to stand still."""

    def __init__(self, model):
        self.model = model
        self.reference = copy.deepcopy(model).requires_grad_(False)
        self.average_loss = 0.0
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def update(self, model):
        x = torch.randn(8, 4)
        self.optimizer.zero_grad()
        (self.model(x) - self.reference(x)).pow(2).mean().backward()
        self.optimizer.step()


class AverageBesideItsStart(Written):
    def __init__(self, model):
        super().__init__(model)
        self.begin = copy.deepcopy(model).requires_grad_(False)
        self.net, self.begin = self.begin, self.net


def soft_update(target, source, tau):
    mixed = {}
    old, new = target.state_dict(), source.state_dict()
    for name, value in old.items():
        mixed[name] = (1 - tau) * value + tau * new[name]
    return mixed


@torch.no_grad()
def update_ema(ema_model, model, decay):
    for average, p in zip(ema_model.parameters(), model.parameters()):
        average.mul_(decay).add_(p, alpha=1 - decay)


def update_target(target, source, step):
    if step % 1000 == 0:
        target.load_state_dict(source.state_dict())


def update_ema_loss(teacher, student, average):
    """Keeps the average of something else."""
    return 0.9 * average + 0.1 * float(len(list(student.children())))


def update_kept_target(target, source, tau):
    for mine, other in zip(target.parameters(), source.parameters()):
        mine = (1 - tau) * mine + tau * other


KEPT = [update_kept_target]


class AgentOfTwo:
    """Its method is given both."""

    def soft_update(self, local_model, target_model, tau):
        for target, local in zip(target_model.parameters(), local_model.parameters()):
            target = tau * local.data + (1.0 - tau) * target.data


class StandingAverages(HooksCase):
    def train(self, keeper_of, update, rate=0.1, steps=20):
        self.setUp()
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        keeper = keeper_of(model)
        for _ in range(steps):
            loss = model(torch.randn(8, 4)).pow(2).mean() + model[0].weight.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            update(keeper, model)
        return (said(STANDS) or [None])[-1]

    def averages(self, cls, **options):
        name = "update_average" if issubclass(cls, Rebound) else "update"
        return self.train(cls, lambda k, model: getattr(k, name)(model), **options)

    def test_an_average_that_is_bound_to_names_stands_still(self):
        self.assertEqual(self.averages(Rebound), 1.0)
        ((file, line, _),) = CORE.sites_at
        self.assertEqual(pathlib.Path(file).name, "standing_averages_test.py")
        first = inspect.unwrap(Rebound.update_average).__code__.co_firstlineno
        self.assertEqual((line, set(said(f"{STANDS}.site"))), (first, {1.0}))
        self.assertEqual(self.averages(Ema), 1.0)

    def test_an_average_that_is_stored_moves(self):
        self.assertEqual(self.averages(Written), 0.0)
        self.assertEqual(self.averages(EmaThatStores), 0.0)

    def test_a_source_that_hardly_moves_says_nothing(self):
        self.assertIsNone(self.averages(Ema, rate=0.0))
        self.assertIsNone(self.averages(Ema, rate=1e-6))
        self.assertIsNone(self.averages(Ema, steps=6))

    def test_what_waits_for_its_time_is_left_alone(self):
        self.assertIsNone(self.averages(EmaThatWaits))
        update = lambda agent, model: agent.update_target()
        self.assertIsNone(self.train(AgentThatCounts, update))

    def test_what_an_update_does_not_speak_of_may_stand_still(self):
        self.assertEqual(self.averages(AverageBesideItsStart), 0.0)
        self.assertIsNone(self.averages(Trainer))
        update = lambda keeper, model: keeper.update_targets(0.5)
        self.assertIsNone(self.train(Partner, update))

    def test_a_target_network_that_gets_no_state_stands_still(self):
        update = lambda agent, model: agent.soft_update()
        self.assertEqual(self.train(Agent, update), 1.0)
        loads = lambda model: Agent(model, loads=True)
        self.assertEqual(self.train(loads, update), 0.0)

    def copies(self, update):
        return self.train(lambda model: copy.deepcopy(model), update)

    def test_functions_that_are_given_both(self):
        # By their names in the module, as whoever calls them finds them.
        self.assertEqual(self.copies(lambda c, m: soft_update(c, m, 0.1)), 1.0)
        self.assertEqual(self.copies(lambda c, m: soft_update(c, m, tau=0.1)), 1.0)
        self.assertIsNone(self.copies(lambda c, m: soft_update(c, m, 0.0)))
        self.assertEqual(self.copies(lambda c, m: update_ema(c, m, 0.9)), 0.0)
        self.assertIsNone(self.copies(lambda c, m: update_target(c, m, 1)))
        self.assertIsNone(self.copies(lambda c, m: update_ema_loss(c, m, 0.5)))

        def loads(copied, model):
            copied.load_state_dict(soft_update(copied, model, 0.1))

        self.assertEqual(self.copies(loads), 0.0)
        agent = AgentOfTwo()
        self.assertEqual(self.copies(lambda c, m: agent.soft_update(m, c, 0.1)), 1.0)

    def test_a_function_that_is_kept_can_be_pickled(self):
        """So it is not replaced by one of its name."""
        update = lambda c, m: update_kept_target(c, m, 0.1)
        self.assertIsNone(self.copies(update))
        self.assertIs(pickle.loads(pickle.dumps(KEPT))[0], update_kept_target)

    def test_one_that_has_moved_may_stand_still(self):
        """A rate may have fallen to 0."""

        def update(agent, model):
            agent.soft_update()
            agent.loads = False

        self.assertEqual(self.train(lambda m: Agent(m, loads=True), update), 0.0)


if __name__ == "__main__":
    unittest.main()
