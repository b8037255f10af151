"""States, copies and data that look like a mistake and are right, and the mistake."""

import copy
import io
import pathlib
import sys
import tempfile
import unittest

import torch
from torch import nn
from torch.distributions import Categorical
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import WATCH, HooksCase, said


def train(net, optimizer, steps=1, after=lambda step: None):
    for step in range(steps):
        optimizer.zero_grad()
        net(torch.randn(8, 5)).square().mean().backward()
        optimizer.step()
        after(step)


class LoadedWeights(HooksCase):
    NAME = "opt.loaded_state_lost"

    def after(self, change):
        HooksCase.setUp(self)
        net = nn.Sequential(*[nn.Linear(5, 5) for _ in range(4)])
        net.load_state_dict(copy.deepcopy(net).state_dict())
        with torch.no_grad():
            for layer in net:
                change(layer.weight)
        train(net, torch.optim.SGD(net.parameters(), lr=0.1))
        return said(self.NAME)

    def test_they_are_shrunk_and_disturbed(self):
        change = lambda w: w.mul_(0.5).add_(0.05 * torch.randn_like(w))
        self.assertEqual(self.after(change), [0.0])

    def test_half_of_each_is_drawn_anew(self):
        self.assertEqual(self.after(lambda w: w[::2].normal_()), [0.0])

    def test_all_are_drawn_anew(self):
        self.assertEqual(self.after(lambda w: w.normal_()), [1.0])
        self.assertEqual(self.after(lambda w: w.fill_(0.1)), [1.0])


class Ties(HooksCase):
    def lost(self, state, net):
        HooksCase.setUp(self)
        net.load_state_dict(state)
        train(net, torch.optim.SGD(net.parameters(), lr=0.1))
        return said("ties_lost")

    def test_experts_begin_from_one_layer(self):
        net = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5))
        one = torch.randn(5, 5)
        state = {f"{i}.weight": one for i in range(2)}
        state.update({f"{i}.bias": torch.zeros(5) for i in range(2)})
        self.assertEqual(self.lost(state, net), [])

    def test_a_tied_models_own_state(self):
        tied = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5))
        tied[1].weight = tied[0].weight
        net = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5))
        self.assertEqual(self.lost(tied.state_dict(), net), [1.0])


class StateByPosition(HooksCase):
    NAME = "opt.state_by_position"

    def resumed(self, sizes, order):
        """A file whose names are in this order, of a model that is made as before."""
        HooksCase.setUp(self)
        net = nn.Sequential(*[nn.Linear(5, size) for size in sizes])
        optimizer = torch.optim.Adam(net.parameters())
        sum(layer(torch.ones(2, 5)).sum() for layer in net).backward()
        optimizer.step()
        state = net.state_dict()
        state = {name: state[name] for name in sorted(state, key=order)}
        file = io.BytesIO()
        torch.save({"model": state, "optimizer": optimizer.state_dict()}, file)
        file.seek(0)
        content = torch.load(file)
        net.load_state_dict(content["model"])
        optimizer.load_state_dict(content["optimizer"])
        sum(layer(torch.ones(2, 5)).sum() for layer in net).backward()
        optimizer.step()
        return said(self.NAME)

    def test_the_file_is_sorted_and_the_moments_are_not(self):
        self.assertEqual(self.resumed([3, 4], order=lambda name: name), [])

    def test_moments_that_fit_the_order_of_the_file(self):
        reverse = lambda name: (-int(name[0]), name[2:] != "weight")
        self.assertEqual(self.resumed([4, 4], order=reverse), [1.0])


class LeftState(HooksCase):
    NAME = "opt.leaves_state"

    def second_phase(self, make):
        """It begins with the best weights of the first, and keeps its own there."""
        with tempfile.TemporaryDirectory() as folder:
            best = pathlib.Path(folder, "best.pt")
            net = nn.Linear(5, 4)
            first = torch.optim.Adam(net.parameters(), lr=0.1)
            for optimizer in (first, make(net)):
                if optimizer is not first:
                    net = nn.Linear(5, 4)
                    optimizer = make(net)
                    net.load_state_dict(torch.load(best)["model"])

                def save(step):
                    state = {"model": net.state_dict()}
                    state["optimizer"] = optimizer.state_dict()
                    torch.save(state, best)

                train(net, optimizer, 3, save)
        return said(self.NAME)

    def test_with_another_optimizer(self):
        sgd = lambda net: torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
        self.assertEqual(self.second_phase(sgd), [])

    def test_with_one_that_is_the_same(self):
        adam = lambda net: torch.optim.Adam(net.parameters(), lr=0.1)
        self.assertEqual(self.second_phase(adam), [1.0])


class Parts(HooksCase):
    def test_a_head_is_made_anew_in_a_row_of_layers(self):
        old = nn.ModuleDict({"body": nn.Linear(5, 5), "head": nn.Linear(5, 2)})
        head = nn.Sequential(nn.Dropout(0.1), nn.Linear(5, 2))
        new = nn.ModuleDict({"body": nn.Linear(5, 5), "head": head})
        new.load_state_dict(old.state_dict(), strict=False)
        self.assertEqual(said("load.leaves_renamed"), [0.0])

    def test_a_head_that_is_wrapped(self):
        old = nn.ModuleDict({"body": nn.Linear(5, 5), "head": nn.Linear(5, 2)})
        head = nn.ModuleDict({"wrapped": nn.Linear(5, 2)})
        new = nn.ModuleDict({"body": nn.Linear(5, 5), "head": head})
        new.load_state_dict(old.state_dict(), strict=False)
        self.assertEqual(said("load.leaves_renamed"), [1.0])

    def test_statistics_of_another_model_are_taken_over(self):
        net = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5))
        other = copy.deepcopy(net)
        train(net, torch.optim.SGD(net.parameters(), lr=0.1))
        state = net.state_dict()
        state.update(dict(other.named_buffers()))
        net.load_state_dict(state)
        self.assertEqual(said("load.of_itself"), [])
        net.load_state_dict(net.state_dict())
        train(net, torch.optim.SGD(net.parameters(), lr=0.1))
        kept = net.state_dict()
        train(net, torch.optim.SGD(net.parameters(), lr=0.1))
        net.load_state_dict(kept)
        self.assertEqual(said("load.of_itself")[-1:], [1.0])


class Copies(HooksCase):
    def test_an_average_is_known_before_it_is_evaluated(self):
        net = nn.Linear(5, 4)
        average = copy.deepcopy(net).requires_grad_(False)

        @torch.no_grad()
        def follow(step):
            for mine, now in zip(average.parameters(), net.parameters()):
                mine.mul_(0.1).add_(now, alpha=0.9)
            WATCH.shadows.update()  # as when a step closes

        train(net, torch.optim.SGD(net.parameters(), lr=0.1), 20, follow)
        self.assertEqual(said("opt.follower_leads")[-1:], [1.0])


class Recurrence(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.LSTM(5, 3, batch_first=True)
        self.head = nn.Linear(3, 2)

    def forward(self, x, state=None):
        out, state = self.cells(x, state)
        return self.head(out[:, -1]), state


class CarriedStates(HooksCase):
    NAME = "opt.carries_state"

    def trained(self, begin, shuffle=True, pieces=1, criterion=lambda a, b: a.mean()):
        HooksCase.setUp(self)
        net = Recurrence()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        loader = DataLoader(TensorDataset(torch.randn(24, 6, 5)), 4, shuffle=shuffle)
        state = None
        for (x,) in loader:
            state = begin(state)
            for piece in x.chunk(pieces, 1):
                optimizer.zero_grad()
                out, state = net(piece, state)
                criterion(out.square(), torch.zeros_like(out)).backward()
                optimizer.step()
                state = tuple(one.detach() for one in state)
        return said(self.NAME)

    def test_a_shuffled_batch_begins_with_the_state_of_another(self):
        self.assertEqual(self.trained(lambda state: state), [0.0, 1.0])

    def test_a_loss_that_is_a_module(self):
        for criterion in (nn.MSELoss(), nn.L1Loss()):
            carries = self.trained(lambda state: state, criterion=criterion)
            self.assertEqual(carries, [0.0, 1.0])
            zeros = lambda state: (torch.zeros(1, 4, 3), torch.zeros(1, 4, 3))
            self.assertEqual(self.trained(zeros, criterion=criterion), [0.0])

    def test_batches_in_order_continue_each_other(self):
        self.assertEqual(self.trained(lambda state: state, shuffle=False), [])

    def test_pieces_of_one_batch_continue_each_other(self):
        self.assertEqual(self.trained(lambda state: None, pieces=2), [])
        zeros = lambda state: (torch.zeros(1, 4, 3), torch.zeros(1, 4, 3))
        self.assertEqual(self.trained(zeros, pieces=2), [0.0])

    def test_a_learned_beginning(self):
        first = [torch.zeros(1, 4, 3, requires_grad=True) for _ in range(2)]
        self.assertEqual(self.trained(lambda state: tuple(first)), [])


class Terms(HooksCase):
    def test_two_networks_are_stepped_in_turn_with_one_loss(self):
        encoder, decoder = nn.Linear(5, 3), nn.Linear(3, 5)
        steps = [torch.optim.Adam(one.parameters()) for one in (encoder, decoder)]

        def update(optimizer):
            x = torch.randn(8, 5)
            code = encoder(x)
            loss = (decoder(code) - x).square().mean() + 0.1 * code.square().mean()
            for one in steps:
                one.zero_grad()
            loss.backward()
            optimizer.step()

        for _ in range(4):
            update(steps[0])
            update(steps[0])
            update(steps[1])
        self.assertNotIn(1.0, said("loss.stray_term"))


class ClimbedObjective(HooksCase):
    NAME = "loss.lowers_entropy"

    def after(self, **options):
        HooksCase.setUp(self)
        policy = nn.Linear(3, 4)
        optimizer = torch.optim.Adam(policy.parameters(), **options)
        for _ in range(2):
            optimizer.zero_grad()
            one = Categorical(logits=policy(torch.ones(3)))
            (one.entropy() + 0.3 * one.log_prob(torch.tensor(1))).backward()
            optimizer.step()
        return said(self.NAME)

    def test_an_optimizer_that_maximizes(self):
        self.assertEqual(self.after(maximize=True), [])

    def test_one_that_does_not(self):
        self.assertEqual(self.after()[:1], [1.0])


class Scales(HooksCase):
    def test_only_the_training_is_normalised_twice(self):
        raw = torch.rand(24, 3, 8, 8)
        once = (raw - 0.5) / 0.29
        net = nn.Sequential(nn.Flatten(), nn.Linear(192, 1))
        for (x,) in DataLoader(TensorDataset((once - 0.5) / 0.29), 8):
            net(x).mean().backward()
        with torch.no_grad():
            list(DataLoader(TensorDataset(once), 8))
        self.assertEqual(said("loader.not_standardised"), [1.0])


class Held:
    """Samples, and what else the data set keeps."""

    def __init__(self, **kept):
        vars(self).update(kept)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index


class Tables(HooksCase):
    def of(self, *sets):
        HooksCase.setUp(self)
        with torch.no_grad():
            for one in sets:
                list(DataLoader(one))
        return said("loader.classes_apart")

    def test_tables_within_an_object(self):
        one = Held(vocabulary=Held(index={"a": 0, "b": 1, "c": 2}))
        other = Held(vocabulary=Held(index={"a": 0, "c": 1}))
        self.assertEqual(self.of(one, other), [1.0])
        self.assertEqual(self.of(one, Held(vocabulary=one.vocabulary)), [0.0])

    def test_names_in_their_order(self):
        one = Held(classes=["a", "b", "c"])
        self.assertEqual(self.of(one, Held(classes=["a", "c"])), [1.0])
        self.assertEqual(self.of(one, Held(classes=["a", "b"])), [0.0])
        self.assertEqual(self.of(one, Held(classes=["x", "y"])), [0.0])

    def test_names_that_a_table_numbers(self):
        """A folder lacks a class, and was given the table of the training."""
        table = {"a": 0, "b": 1, "c": 2}
        one = Held(classes=["a", "b", "c"], class_to_idx=table)
        lacks = Held(classes=["a", "c"], class_to_idx=table)
        self.assertEqual(self.of(one, lacks), [0.0])
        of_its_own = Held(classes=["a", "c"], class_to_idx={"a": 0, "c": 1})
        self.assertEqual(self.of(one, of_its_own), [1.0])
        of_words = Held(classes=["a", "c"], word_to_id={"the": 0, "of": 1})
        self.assertEqual(self.of(Held(classes=["a", "b", "c"]), of_words), [1.0])
        self.assertEqual(self.of(one, Held(classes=3)), [])


class Moments(HooksCase):
    """Of torch's own optimizers, beside gradients that are next to nothing."""

    NAME = "opt.moments_forget"

    def step(self, *gradients):
        weight = nn.Parameter(torch.zeros(4, 5))
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        for weight.grad in gradients:
            optimizer.step()
        return said(self.NAME)

    def test_a_first_gradient(self):
        """As below a last layer whose rows are equal."""
        gradients = 1e-9 * torch.randn(4, 5), torch.randn(4, 5)
        self.assertEqual(self.step(*gradients), [])

    def test_a_last_gradient(self):
        first = torch.randn(4, 5)
        last = 1e-6 * (first + 1e-3 * torch.randn(4, 5))
        self.assertNotIn(1.0, self.step(first, last))


if __name__ == "__main__":
    unittest.main()
