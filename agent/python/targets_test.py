"""Networks that give targets, and states that come from files: each mistake, and right
programs that come close to it."""

import io
import pathlib
import sys
import tempfile
import unittest

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler
from torch.utils import data

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, SignsCase, said


def network():
    return nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.2), nn.Linear(8, 4))


def sgd(module):
    return torch.optim.SGD(module.parameters(), lr=0.1)


class Teachers(SignsCase):
    NAME = "opt.teacher_drops"

    def train(self, teacher, steps=6, times=1, between=lambda: None, student=None):
        student = student or self.net
        optimizer = sgd(self.net)
        for _ in range(steps):
            x = torch.randn(8, 5)
            with torch.no_grad():
                taught = [teacher(x) for _ in range(times)][0]
            optimizer.zero_grad()
            F.mse_loss(student(x), taught).backward()
            optimizer.step()
            between()
        return said(self.NAME)

    def test_in_training_mode(self):
        self.assertEqual(self.train(network().requires_grad_(False)), [1.0])

    def test_called_with_gradients(self):
        teacher = network().requires_grad_(False)
        optimizer = sgd(self.net)
        for _ in range(6):
            x = torch.randn(8, 5)
            optimizer.zero_grad()
            F.mse_loss(self.net(x), teacher(x)).backward()
            optimizer.step()
        self.assertEqual(said(self.NAME), [1.0])

    def test_in_evaluation_mode(self):
        self.assertEqual(self.train(network().eval()), [0.0])

    def test_without_what_depends_on_the_mode(self):
        self.assertEqual(self.train(nn.Linear(5, 4)), [])

    def test_one_that_moves(self):
        teacher = network()

        def moves():
            with torch.no_grad():
                teacher[0].weight.mul_(0.99)

        self.assertEqual(self.train(teacher, between=moves), [])

    def test_one_that_was_trained_before(self):
        teacher = network()
        before = sgd(teacher)
        before.step(lambda: teacher(torch.randn(8, 5)).sum().backward())
        self.assertEqual(self.train(teacher.requires_grad_(False)), [1.0])
        teacher[-1].requires_grad_(True)  # in part, as what is fine-tuned
        self.assertEqual(self.train(teacher)[1:], [])

    def test_one_that_is_trained(self):
        teacher = network()
        optimizer = sgd(teacher)
        self.assertEqual(self.train(teacher), [])
        del optimizer

    def test_many_calls_estimate_uncertainty(self):
        self.assertEqual(self.train(network(), times=8), [])

    def test_within_a_model(self):
        for name, mode, expected in (
            ("teacher", True, [1.0]),
            ("teacher", False, [0.0]),
            ("backbone", True, []),  # dropout before a head that is trained
        ):
            HooksCase.setUp(self)
            inner = network().requires_grad_(False).train(mode)
            both = nn.ModuleDict({name: inner, "student": self.net})

            class Pair(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.both = both

                def forward(self, x):
                    return self.both["student"](x) - self.both[name](x)

            pair = Pair()
            self.assertEqual(self.train(pair, student=pair), expected, name)


class LateTeachers(Teachers):
    ON_DEVICE = True

    def test_in_training_mode(self):
        said_late = self.train(network().requires_grad_(False), steps=8)
        self.assertEqual(said_late, [1.0])


class Leads(HooksCase):
    NAME = "opt.follower_leads"

    def train(self, share, steps=16, dtype=torch.float32):
        torch.manual_seed(0)
        net, target = nn.Linear(5, 4), nn.Linear(5, 4, dtype=dtype)
        HooksCase.setUp(self)
        target.load_state_dict(net.state_dict())
        pair = nn.ModuleDict({"net": net, "target": target.requires_grad_(False)})

        class Pair(nn.Module):
            def __init__(self):
                super().__init__()
                self.pair = pair

            def forward(self, x):
                known = self.pair["target"](x.to(dtype)).to(x.dtype)
                return self.pair["net"](x) - 0.5 * known

        model, optimizer = Pair(), sgd(net)
        for step in range(steps):
            optimizer.zero_grad()
            model(torch.randn(8, 5)).square().mean().backward()
            optimizer.step()
            with torch.no_grad():
                for mine, other in zip(target.parameters(), net.parameters()):
                    moved = mine.float().lerp(other, share(step))
                    mine.copy_(moved)
        return said(self.NAME)

    def test_most_of_the_way(self):
        for share in (0.995, 0.9):
            self.assertEqual(self.train(lambda step: share)[-1:], [1.0], share)
        # A decay that is computed of the decay before.
        shares = [0.9999]
        for step in range(1, 20):
            shares.append(1 - min(shares[-1], (1 + step) / (10 + step)))
        self.assertEqual(self.train(shares.__getitem__, steps=20)[-1:], [1.0])

    def test_little_of_it(self):
        self.assertEqual(self.train(lambda step: 0.01), [0.0])
        self.assertEqual(set(self.train(lambda step: 0.3, steps=20)), {0.0})

    def test_fast_at_first(self):
        warm = self.train(lambda step: max(0.05, 1 - (1 + step) / (10 + step)))
        self.assertNotIn(1.0, warm)

    def test_copies(self):
        self.assertEqual(self.train(lambda step: 1.0), [])
        self.assertEqual(self.train(lambda step: 1.0, dtype=torch.bfloat16), [])


class Flees(Leads):
    NAME = "opt.follower_flees"

    def test_most_of_the_way(self):
        self.assertNotIn(1.0, self.train(lambda step: 0.9))

    def test_the_other_way(self):
        for share in (-0.1, -0.01):
            self.assertEqual(self.train(lambda step: share), [1.0], share)


class LateFlees(Flees):
    ON_DEVICE = True


class Heads(nn.Module):
    """Heads of one shape, in the order of their names as given."""

    def __init__(self, names):
        super().__init__()
        self.heads = nn.ModuleDict({name: nn.Linear(5, 5) for name in names})

    def forward(self, x):
        return sum(head(x) for head in self.heads.values())


class PositionalStates(HooksCase):
    NAME = "opt.state_by_position"

    def step(self, model, optimizer):
        optimizer.zero_grad()
        model(torch.randn(8, 5)).square().mean().backward()
        optimizer.step()

    def resume(self, names, order=list, saved_order=list, apart=False):
        """order: of the parameters in the optimizers."""
        model = Heads("abc")
        optimizer = torch.optim.Adam(saved_order(model.parameters()))
        self.step(model, optimizer)
        files = [io.BytesIO(), io.BytesIO()]
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        for file in files:
            torch.save(state, file)
            file.seek(0)
        again = Heads(names)
        optimizer = torch.optim.Adam(order(again.parameters()))
        loaded = torch.load(files[0])
        again.load_state_dict(loaded["model"])
        other = torch.load(files[1]) if apart else loaded
        optimizer.load_state_dict(other["optimizer"])
        self.step(again, optimizer)
        return said(self.NAME)

    def test_in_another_order(self):
        self.assertEqual(self.resume("cab"), [1.0])

    def test_in_the_same_order(self):
        self.assertEqual(self.resume("abc"), [0.0])

    def test_an_order_of_the_optimizer_own(self):
        def backwards(parameters):
            return list(parameters)[::-1]

        self.assertEqual(self.resume("abc", backwards, backwards), [])

    def test_a_file_with_a_sparse_tensor(self):
        file = io.BytesIO()
        torch.save({"graph": torch.eye(3).to_sparse()}, file)
        file.seek(0)
        torch.load(file)
        self.assertEqual(self.resume("cab"), [1.0])

    def test_from_several_files(self):
        self.assertEqual(self.resume("cab", apart=True), [])


class MetricDirection(SignsCase):
    NAME = "schedule.against_metric"

    def wait(self, mode, step):
        HooksCase.setUp(self)
        scheduler = lr_scheduler.ReduceLROnPlateau(self.optimizer, mode=mode)
        step(scheduler)
        self.step()
        return said(self.NAME)

    def test_by_the_name_of_the_metric(self):
        val_acc, loss, neg_acc, other = 0.5, 2.0, -0.5, 1.0
        metrics = {"val/loss": 1.0, "valF1": torch.tensor(0.5)}

        def over_lines(scheduler):
            scheduler.step(
                val_acc,
            )

        for mode, step, expected in (
            ("min", lambda s: s.step(val_acc), [1.0]),
            ("max", lambda s: s.step(val_acc), [0.0]),
            ("max", lambda s: s.step(loss), [1.0]),
            ("min", lambda s: s.step(loss), [0.0]),
            ("min", lambda s: s.step(metrics["valF1"].item()), [1.0]),
            ("min", lambda s: s.step(metrics["val/loss"]), [0.0]),
            ("min", over_lines, [1.0]),
            ("min", lambda s: s.step(neg_acc), []),
            ("min", lambda s: s.step(-val_acc), [0.0]),
            ("min", lambda s: s.step(1 - val_acc), [0.0]),
            ("max", lambda s: s.step(other), []),
        ):
            self.assertEqual(self.wait(mode, step), expected)


class StatelessResumes(SignsCase):
    NAME = "opt.resumes_without_state"

    def resume(self, save, jobs=3, take=True, make=torch.optim.Adam, to="last.pt"):
        """Each job reads what the one before it has written."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "last.pt")
            for _ in range(jobs):
                net = nn.Linear(5, 4)
                optimizer = make(net.parameters(), lr=0.1)
                if path.exists():
                    content = torch.load(path)
                    net.load_state_dict(content["model"])
                    if take and "optimizer" in content:
                        optimizer.load_state_dict(content["optimizer"])
                for _ in range(2):
                    optimizer.zero_grad()
                    net(torch.randn(8, 5)).square().mean().backward()
                    optimizer.step()
                torch.save(save(net, optimizer), pathlib.Path(folder, to))
        return said(self.NAME)

    def test_weights_alone(self):
        content = lambda net, optimizer: {"model": net.state_dict()}
        self.assertEqual(self.resume(content), [1.0])

    def test_an_empty_state_beside_them(self):
        empty = torch.optim.Adam([nn.Parameter(torch.ones(1))]).state_dict()
        content = lambda net, _: {"model": net.state_dict(), "optimizer": empty}
        self.assertEqual(self.resume(content, take=False), [1.0])

    def test_with_its_state(self):
        def content(net, optimizer):
            return {"model": net.state_dict(), "optimizer": optimizer.state_dict()}

        self.assertEqual(self.resume(content), [0.0] * 2)

    def test_an_optimizer_without_moments(self):
        content = lambda net, optimizer: {"model": net.state_dict()}
        self.assertEqual(self.resume(content, make=torch.optim.SGD), [])

    def test_back_to_the_best_weights(self):
        """The optimizer goes on as it was."""
        net = nn.Linear(5, 4)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "best.pt")
            for _ in range(3):
                optimizer.zero_grad()
                net(torch.randn(8, 5)).square().mean().backward()
                optimizer.step()
                torch.save(net.state_dict(), path)
                net.load_state_dict(torch.load(path))
        self.assertEqual(said(self.NAME), [])

    def test_the_result_goes_to_another_file(self):
        content = lambda net, optimizer: {"model": net.state_dict()}
        with tempfile.TemporaryDirectory() as folder:
            self.resume(content, to=pathlib.Path(folder, "tuned.pt"))
        self.assertEqual(said(self.NAME), [])


class EmptyPasses(SignsCase):
    NAME = "opt.loader_drops_all"

    def test_less_than_a_batch(self):
        class Stream(data.IterableDataset):
            def __iter__(self):
                return iter(torch.randn(6, 5))

        six = data.TensorDataset(torch.randn(6, 5))
        for given, options, expected in (
            (six, {"batch_size": 8, "drop_last": True}, [1.0]),
            (six, {"batch_size": 4, "drop_last": True}, [0.0]),
            (six, {"batch_size": 8}, []),
            (Stream(), {"batch_size": 8, "drop_last": True}, []),
        ):
            HooksCase.setUp(self)
            list(data.DataLoader(given, **options))
            self.step()
            self.assertEqual(said(self.NAME), expected)


class ResumedSchedules(SignsCase):
    NAMES = ("schedule.state_not_loaded", "schedule.state_not_saved")

    def resume(self, saves=True, loads=True, begin=-1, catches_up=False, epochs=2):
        """What two jobs said, of which the second goes on from the first one's file."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "last.pt")
            for _ in range(2):
                net = nn.Linear(5, 4)
                optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
                content = torch.load(path) if path.exists() else {}
                last = -1
                if content:
                    optimizer.load_state_dict(content["optimizer"])
                    last = begin
                make = torch.optim.lr_scheduler.StepLR
                scheduler = make(optimizer, 1, 0.5, last_epoch=last)
                if loads and "scheduler" in content:
                    scheduler.load_state_dict(content["scheduler"])
                if catches_up and content:
                    scheduler.step()
                for _ in range(epochs):
                    optimizer.zero_grad()
                    net(torch.randn(8, 5)).square().mean().backward()
                    optimizer.step()
                    scheduler.step()
                content = {
                    "model": net.state_dict(),
                    "optimizer": optimizer.state_dict(),
                }
                if saves:
                    content["scheduler"] = scheduler.state_dict()
                torch.save(content, path)
        found = [said(name) for name in self.NAMES]
        return [[value for value in values if value == value] for values in found]

    def test_a_state_that_is_read_and_not_loaded(self):
        self.assertEqual(self.resume(loads=False), [[1.0], []])

    def test_a_state_that_is_loaded(self):
        self.assertEqual(self.resume(), [[0.0], []])

    def test_a_state_that_is_not_saved(self):
        self.assertEqual(self.resume(saves=False), [[], [1.0]])

    def test_a_rate_that_no_schedule_has_moved(self):
        self.assertEqual(self.resume(saves=False, epochs=0), [[], []])

    def test_a_schedule_that_goes_on_without_it(self):
        self.assertEqual(self.resume(saves=False, begin=1), [[], [0.0]])
        self.setUp()
        self.assertEqual(self.resume(saves=False, catches_up=True), [[], [0.0]])

    def test_a_state_of_one_process(self):
        net = nn.Linear(5, 4)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        self.train_once(net, optimizer)
        again = torch.optim.Adam(net.parameters(), lr=0.1)
        again.load_state_dict(optimizer.state_dict())
        torch.optim.lr_scheduler.StepLR(again, 1)
        self.train_once(net, again)
        self.assertEqual([said(name) for name in self.NAMES], [[], []])

    def train_once(self, net, optimizer):
        optimizer.zero_grad()
        net(torch.randn(8, 5)).square().mean().backward()
        optimizer.step()


class RateAsFactor(SignsCase):
    def train(self, function, rate=0.01, steps=4):
        self.setUp()
        net = nn.Linear(5, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=rate)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, function)
        for _ in range(steps):
            optimizer.zero_grad()
            net(torch.randn(8, 5)).square().mean().backward()
            optimizer.step()
            scheduler.step()
        return said("schedule.rate_as_factor")

    def test_a_function_that_gives_rates(self):
        self.assertEqual(self.train(lambda epoch: 0.01 * 0.9**epoch), [1.0])
        self.assertEqual(self.train(lambda epoch: 0.01), [1.0])
        warm_up = lambda epoch: 0.01 * min(1.0, (epoch + 1) / 3)
        self.assertEqual(self.train(warm_up), [1.0])

    def test_factors(self):
        self.assertEqual(self.train(lambda epoch: 0.9**epoch), [0.0])
        warm_up = lambda epoch: min(1.0, (epoch + 1) / 3)
        self.assertEqual(self.train(warm_up), [0.0])
        # That of a right training of 300 steps begins like that of a wrong one.
        self.assertEqual(self.train(lambda epoch: 0.01 * (epoch + 1) / 100), [])
        self.assertEqual(self.train(lambda epoch: 1 / (1 + epoch), rate=1.0), [0.0])


class SharedSchedules(HooksCase):
    NAME = "schedule.all_on_one"
    KIND = torch.optim.lr_scheduler.StepLR

    def of(self, make):
        """Its values at steps of two optimizers, whose schedulers `make` gives."""
        nets = nn.Linear(3, 3), nn.Linear(3, 1)
        both = [torch.optim.Adam(net.parameters()) for net in nets]
        schedulers = make(*both)
        for _ in range(4):
            for net, optimizer in zip(nets, both):
                optimizer.zero_grad()
                net(torch.randn(4, 3)).square().mean().backward()
                optimizer.step()
            for scheduler in schedulers:
                scheduler.step()
        return max(said(self.NAME), default=None)

    def test_two_of_a_kind_for_one_optimizer(self):
        self.assertEqual(self.of(lambda a, b: [self.KIND(a, 2), self.KIND(a, 2)]), 1.0)

    def test_one_for_each(self):
        self.assertEqual(self.of(lambda a, b: [self.KIND(a, 2), self.KIND(b, 2)]), 0.0)
        HooksCase.setUp(self)
        self.assertIsNone(self.of(lambda a, b: [self.KIND(a, 2)]))

    def test_two_kinds_and_two_parts(self):
        module = torch.optim.lr_scheduler
        linear, cosine = module.LinearLR, module.CosineAnnealingLR
        self.assertEqual(self.of(lambda a, b: [linear(a), cosine(a, 8)]), 0.0)
        HooksCase.setUp(self)
        parts = lambda a, b: [
            module.SequentialLR(a, [linear(a), linear(a, 1, 0.1)], [2])
        ]
        self.assertEqual(self.of(parts), 0.0)


if __name__ == "__main__":
    unittest.main()
