"""Parts of a training that are lost on the way: a term of the loss, an augmentation, the
optimizer's state, the share of real tokens in a mean. Each mistake, and right programs
that come close to it."""

import ast
import copy
import pathlib
import sys
import tempfile
import unittest

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Subset, random_split

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, SignsCase, said
from _traincheck.file_entries import entries_of
from _traincheck import replaced_transforms


def adam(*modules):
    return torch.optim.Adam([p for m in modules for p in m.parameters()], lr=0.1)


class SecondModels(SignsCase):
    NAME = "opt.late_left_out"

    def second_model(self, unfrozen_at):
        """Trained by an optimizer that is given a part of it."""
        for _ in range(3):
            self.step()
        net = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 4))
        net[0].requires_grad_(unfrozen_at == 0)
        optimizer = torch.optim.SGD(net[2].parameters(), lr=0.1)
        for step in range(20):
            if step == unfrozen_at:
                net[0].requires_grad_(True)
            self.step(net, optimizer)
        return said(self.NAME)

    def test_a_part_of_a_second_model_is_trained(self):
        self.assertNotIn(1.0, self.second_model(unfrozen_at=0))

    def test_a_part_of_a_second_model_is_unfrozen_for_nobody(self):
        self.assertIn(1.0, self.second_model(unfrozen_at=8))

    def test_it_is_unfrozen_after_the_first_step(self):
        self.assertIn(1.0, self.second_model(unfrozen_at=1))


class StrayTerms(HooksCase):
    NAME = "loss.stray_term"

    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.maker, self.judge = nn.Linear(4, 4), nn.Linear(4, 1)
        self.makes, self.judges = adam(self.maker), adam(self.judge)

    def adversaries(self, shown, clear=None, judge_steps=True, rounds=4):
        clear = clear or self.judges.zero_grad
        for _ in range(rounds):
            x = torch.randn(8, 4)
            made = self.maker(x)
            loss = (made - x).square().mean() - 0.1 * self.judge(shown(made)).mean()
            self.makes.zero_grad()
            loss.backward()
            self.makes.step()
            clear()
            self.judge(made.detach()).square().mean().backward()
            if judge_steps:
                self.judges.step()
        return said(self.NAME)

    def test_the_judge_sees_a_detached_result(self):
        detach = lambda made: made.detach()
        self.assertEqual(self.adversaries(detach), [1.0, 1.0])

    def test_the_module_is_cleared(self):
        detach = lambda made: made.detach()
        clear = self.judge.zero_grad
        self.assertEqual(self.adversaries(detach, clear), [1.0, 1.0])

    def test_once_is_no_habit(self):
        detach = lambda made: made.detach()
        self.assertEqual(self.adversaries(detach, rounds=2), [])

    def test_the_judge_sees_the_result(self):
        self.assertEqual(self.adversaries(lambda made: made), [0.0] * 3)

    def test_the_other_optimizer_waits(self):
        detach = lambda made: made.detach()
        self.assertEqual(self.adversaries(detach, judge_steps=False), [])

    def test_one_backward_for_both(self):
        for _ in range(4):
            x = torch.randn(8, 4)
            loss = self.maker(x).square().mean() + self.judge(x).square().mean()
            for optimizer in (self.makes, self.judges):
                optimizer.zero_grad()
            loss.backward()
            for optimizer in (self.makes, self.judges):
                optimizer.step()
        self.assertEqual(said(self.NAME), [0.0] * 3)

    def test_an_output_is_not_taken_apart(self):
        """Terms of a loss are numbers."""
        for _ in range(4):
            x = torch.randn(8, 4)
            both = self.maker(x) + self.judge(x)
            self.makes.zero_grad()
            both.square().mean().backward()
            self.makes.step()
            self.judges.zero_grad()
            self.judge(x).square().mean().backward()
            self.judges.step()
        self.assertEqual(said(self.NAME), [])

    def test_one_optimizer_alone(self):
        del self.judges
        for _ in range(3):
            self.makes.zero_grad()
            self.maker(torch.randn(8, 4)).square().mean().backward()
            self.makes.step()
        self.assertEqual(said(self.NAME), [])


class FileEntries(unittest.TestCase):
    def test_a_file_of_many_numbers_is_not_gone_through(self):
        """A billion entries: a look at all of them would not end."""
        content = {"rows": [[[0] * 1000] * 1000] * 1000, "optimizer": {"state": {}}}
        found = list(entries_of(content))
        self.assertLess(len(found), 5000)
        self.assertIn(content["optimizer"], found)


class LeavesState(SignsCase):
    NAME = "opt.leaves_state"

    def jobs(self, take, to="last.pt", fill=lambda net, state: state, extra={}):
        """Each job reads what the one before it has written."""
        with tempfile.TemporaryDirectory() as folder:
            last = pathlib.Path(folder, "last.pt")
            for job in range(2):
                net = nn.Linear(5, 4)
                optimizer = adam(net)
                if job > 0:
                    content = torch.load(last)
                    net.load_state_dict(fill(net, content["model"]))
                    if take:
                        optimizer.load_state_dict(take(optimizer, content))
                for _ in range(2):
                    optimizer.zero_grad()
                    net(torch.randn(8, 5)).square().mean().backward()
                    optimizer.step()
                    state = {
                        "model": net.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        **extra,
                    }
                    torch.save(state, pathlib.Path(folder, to) if job > 0 else last)
        return said(self.NAME)

    def test_nobody_takes_it(self):
        self.assertEqual(self.jobs(take=None), [1.0])

    def test_an_optimizer_goes_on_without_it(self):
        """The file says how far the training has come: nothing needs to be written."""
        for extra in (
            {"global_step": 2},
            {"updates": 2},
            {"torch_rng": torch.get_rng_state()},
        ):
            with self.subTest(extra):
                self.setUp()
                found = self.jobs(take=None, to="tuned.pt", extra=extra)
                self.assertEqual(found, [1.0])

    def test_another_number_says_nothing(self):
        self.assertEqual(self.jobs(take=None, to="tuned.pt", extra={"version": 2}), [])

    def test_it_is_taken(self):
        taken = self.jobs(take=lambda optimizer, content: content["optimizer"])
        self.assertEqual(taken, [0.0])

    def test_a_template_without_moments_is_taken(self):
        """What the file holds has no place in it."""
        taken = self.jobs(
            take=lambda optimizer, content: optimizer.state_dict(), to="tuned.pt"
        )
        self.assertEqual(set(taken), {1.0})

    def test_the_model_is_a_template_too(self):
        def fill(net, state):
            template = net.state_dict()
            for name, value in state.items():
                template[name].copy_(value)
            return template

        taken = self.jobs(
            take=lambda optimizer, content: optimizer.state_dict(), fill=fill
        )
        self.assertEqual(set(taken), {1.0})

    def test_the_result_goes_to_another_file(self):
        self.assertEqual(self.jobs(take=None, to="tuned.pt"), [])


class Signals(Dataset):
    def __init__(self, transform=torch.neg):
        self.rows = torch.randn(32, 3)
        self.transform = transform

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return row if self.transform is None else self.transform(row)


class ReplacedTransforms(HooksCase):
    NAME = "loader.transform_replaced"

    def train(self, data):
        net = nn.Linear(3, 2)
        optimizer = adam(net)
        for x in DataLoader(data, batch_size=4):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        return said(self.NAME)

    def test_through_the_other_part(self):
        part, held_out = random_split(Signals(), [24, 8])
        held_out.dataset.transform = torch.abs
        self.assertEqual(self.train(part), [1.0])

    def test_of_a_copy_that_took_the_place_of_a_part(self):
        data = Signals()
        part, held_out = random_split(data, [24, 8])
        held_out = Subset(copy.copy(data), held_out.indices)
        part.dataset.transform = torch.abs
        held_out.dataset.transform = None
        self.assertEqual(self.train(part), [0.0])

    def test_parts_are_not_asked_whether_they_are_equal(self):
        asked = []

        class Part(Subset):
            def __eq__(self, other):
                asked.append(other)
                raise RuntimeError("compares no parts")

        data, places = Signals(), list(range(24, 32))
        parts = [Part(data, range(24)), Part(data, places)]
        parts.append(Part(copy.copy(data), places))
        data.transform = torch.abs
        self.assertEqual(self.train(parts[0]), [0.0])
        self.assertEqual(asked, [])

    def test_of_a_part_of_a_part(self):
        part, held_out = random_split(Signals(), [24, 8])
        held_out.dataset.transform = None
        self.assertEqual(self.train(Subset(part, range(16))), [1.0])

    def test_before_the_split(self):
        data = Signals()
        data.transform = torch.abs
        self.assertEqual(self.train(random_split(data, [24, 8])[0]), [0.0])

    def test_through_both_parts_where_there_was_none(self):
        def split():
            part, held_out = random_split(Signals(None), [24, 8])
            part.dataset.transform = torch.abs
            held_out.dataset.transform = None
            return part

        self.assertEqual(self.train(split()), [1.0])

    def test_statements_that_set_it_in_turns(self):
        for source, expected in (
            ("a.dataset.transform = f\nb.dataset.transform = g", True),
            ("a.dataset.transform = f\na.dataset.transform = g", False),
            ("a.dataset.transform = f\nb.dataset.target_transform = g", False),
            ("for _ in x:\n a.dataset.transform = f\n b.dataset.transform = g", False),
        ):
            body = ast.parse(source).body
            found = replaced_transforms._sets_apart(body, {"transform"})
            self.assertEqual(found, expected, source)

    def test_one_part_alone(self):
        part = Subset(Signals(), range(24))
        part.dataset.transform = torch.abs
        self.assertEqual(self.train(part), [])

    def test_data_without_attributes(self):
        part, _ = random_split(list(torch.randn(32, 3)), [24, 8])
        self.assertEqual(self.train(part), [])


class PaddedTargets(HooksCase):
    NAME = "loss.learns_padding"

    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        lengths = torch.arange(3, 9)
        self.text = torch.randint(1, 11, (6, 9))
        self.text[torch.arange(9) >= lengths[:, None]] = 0

    def of(self, targets, **options):
        HooksCase.setUp(self)  # only the first backwards are looked at
        embed, head = nn.Embedding(11, 8, padding_idx=0), nn.Linear(8, 3)
        scores = head(embed(self.text)).flatten(0, 1)
        F.cross_entropy(scores, targets.flatten(), **options).backward()
        return said(self.NAME)

    def test_a_class_for_padding(self):
        parities = self.text % 2
        self.assertEqual(self.of(parities), [1.0])
        ignored = parities.masked_fill(self.text == 0, -100)
        self.assertEqual(self.of(ignored), [0.0])
        self.assertEqual(self.of(ignored.clamp(min=-1), ignore_index=-1), [0.0])

    def test_one_that_weighs_nothing(self):
        third = (self.text % 2).masked_fill(self.text == 0, 2)
        weight = torch.tensor((1.0, 1.0, 0.0))
        self.assertEqual(self.of(third, weight=weight), [0.0])

    def test_elements_that_the_script_weighs(self):
        HooksCase.setUp(self)
        embed, head = nn.Embedding(11, 8, padding_idx=0), nn.Linear(8, 3)
        scores = head(embed(self.text)).flatten(0, 1)
        losses = F.cross_entropy(scores, self.text.flatten() % 2, reduction="none")
        (losses * (self.text != 0).flatten()).sum().backward()
        self.assertEqual(said(self.NAME), [])

    def test_other_classes_behind_the_texts(self):
        self.assertEqual(self.of(torch.randint(3, self.text.shape)), [])


if __name__ == "__main__":
    unittest.main()
