"""What the agent looks at itself at steps: each mistake, and right programs that
come close to it."""

import copy
import io
import pathlib
import sys
import threading
import unittest
import unittest.mock

import torch
import torch.utils.checkpoint
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, SignsCase, TARGETS, WATCH, last, said


class DiscardedBackwards(SignsCase):
    NAME = "opt.discards_backwards"

    def test_micro_batches_that_clear(self):
        for _ in range(2):
            for _ in range(3):
                self.optimizer.zero_grad()
                self.loss().backward()
            self.optimizer.step()
        self.assertEqual(said(self.NAME), [0.0, 1.0])

    def test_through_the_model(self):
        for _ in range(2):
            for _ in range(3):
                self.net.zero_grad()
                self.loss().backward()
            self.optimizer.step()
        self.assertEqual(last(self.NAME), 1.0)

    def test_accumulation_and_a_batch_that_is_left_out(self):
        for step in range(6):
            self.optimizer.zero_grad()
            if step == 3:  # left out
                self.loss().backward()
                self.optimizer.zero_grad()
            for _ in range(2):
                self.loss().backward()
            self.optimizer.step()
        self.assertEqual(set(said(self.NAME)), {0.0})

    def test_adversaries_that_share_a_function(self):
        other = nn.Linear(4, 4)
        second = torch.optim.SGD(other.parameters(), lr=0.1)

        def descend(optimizer, loss):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        for _ in range(4):
            made = self.net(torch.randn(8, 5))
            descend(second, F.cross_entropy(other(made.detach()), TARGETS))
            descend(self.optimizer, -F.cross_entropy(other(made), TARGETS))
        self.assertEqual(set(said(self.NAME)), {0.0})

    def test_adversaries_that_take_turns_in_one_place(self):
        other = nn.Linear(4, 4)
        second = torch.optim.SGD(other.parameters(), lr=0.1)
        for _ in range(4):
            for optimizer, sign in ((second, 1), (self.optimizer, -1)):
                made = self.net(torch.randn(8, 5))
                self.net.zero_grad()
                other.zero_grad()
                (sign * F.cross_entropy(other(made), TARGETS)).backward()
                optimizer.step()
        self.assertEqual(set(said(self.NAME)), {0.0})

    def test_micro_batches_of_two_optimizers_that_clear(self):
        head = nn.Linear(4, 4)
        second = torch.optim.SGD(head.parameters(), lr=0.1)
        for _ in range(3):
            for _ in range(3):
                self.optimizer.zero_grad()
                second.zero_grad()
                F.cross_entropy(head(self.net(torch.randn(8, 5))), TARGETS).backward()
            self.optimizer.step()
            second.step()
        self.assertEqual(last(self.NAME), 1.0)

    def test_sharpness_aware_minimisation(self):
        weight = self.net.weight
        for _ in range(4):
            self.optimizer.zero_grad()
            for climbs in (True, False):
                self.loss().backward()
                if climbs:
                    rise = 0.05 * weight.grad
                    with torch.no_grad():
                        weight.add_(rise)
                    self.optimizer.zero_grad()
            with torch.no_grad():
                weight.sub_(rise)
            self.optimizer.step()
        self.assertEqual(set(said(self.NAME)), {0.0})

    def test_gradients_that_are_collected_and_written_back(self):
        weight = self.net.weight
        for _ in range(4):
            kept = []
            for _ in range(2):
                self.optimizer.zero_grad()
                self.loss().backward()
                kept.append(weight.grad.clone())
            weight.grad = sum(kept)
            self.optimizer.step()
        self.assertNotIn(1.0, said(self.NAME))


class HiddenParts(SignsCase):
    def holder(self, hidden):
        class Holder(nn.Module):
            def __init__(self):
                super().__init__()
                self.own = nn.Linear(5, 5)
                self.last = nn.Linear(5, 4)
                self.others = [hidden]

            def forward(self, x):
                return self.last(self.others[0](self.own(x)))

        return Holder()

    def train(self, hidden, optimizer=None):
        net = self.holder(hidden)
        optimizer = torch.optim.SGD([*net.parameters(), *(optimizer or ())], lr=0.1)
        self.step(net, optimizer)

    def test_layers_in_a_list(self):
        self.train(nn.Linear(5, 5))
        self.assertEqual(last("opt.parts_hidden"), 1.0)

    def test_a_frozen_teacher_in_a_list(self):
        self.train(nn.Linear(5, 5).requires_grad_(False))
        self.assertEqual(last("opt.parts_hidden"), 0.0)

    def test_layers_in_a_list_that_the_optimizer_is_given(self):
        hidden = nn.Linear(5, 5)
        self.train(hidden, hidden.parameters())
        self.assertEqual(last("opt.parts_hidden"), 0.0)

    def test_frozen_by_an_attribute(self):
        self.net.requires_grad = False
        self.step()
        self.assertEqual(last("opt.frozen_in_vain"), 1.0)

    def test_frozen_with_a_misspelt_name(self):
        wrong = ["require_grad", "requires_gradient", "requires_gard"]
        for name in [*wrong, "requires_grad_", "requires_grad_sync", "retain_grad"]:
            self.setUp()
            setattr(
                self.net if name == "requires_grad_" else self.net.bias, name, False
            )
            self.step()
            right = name in ("requires_grad_sync", "retain_grad")
            self.assertEqual(last("opt.frozen_in_vain"), float(not right), name)

    def test_a_part_of_an_earlier_model_that_is_frozen_with_a_misspelt_name(self):
        net = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 4))
        self.step(net, torch.optim.SGD(net.parameters(), lr=0.1))
        body, net = net[0], None
        body.weight.require_grad = False
        net = nn.Sequential(body, nn.Linear(5, 4))
        self.step(net, torch.optim.SGD(net.parameters(), lr=0.1))
        self.assertEqual(last("opt.frozen_in_vain"), 1.0)

    def test_frozen(self):
        self.net.bias.requires_grad = False
        self.step()
        self.assertEqual(last("opt.frozen_in_vain"), 0.0)

    def unfreeze(self, *, held):
        net = self.holder(nn.Linear(5, 5).requires_grad_(False))
        net.own.requires_grad_(False)
        optimizer = torch.optim.SGD(net.last.parameters(), lr=0.1)
        self.step(net, optimizer)
        net.own.requires_grad_(True)
        if held:
            optimizer.add_param_group({"params": net.own.parameters()})
        self.step(net, optimizer)
        return net

    def test_unfrozen_for_nobody(self):
        self.unfreeze(held=False)
        self.assertEqual(last("opt.late_left_out"), 1.0)

    def test_unfrozen_and_given_and_then_left_out_by_the_next_optimizer(self):
        net = self.unfreeze(held=True)
        optimizer = torch.optim.SGD(net.last.parameters(), lr=0.1)
        for _ in range(20):
            self.step(net, optimizer)
        self.assertIsNone(last("opt.late_left_out"))

    def test_trained_and_frozen_and_unfrozen_for_nobody(self):
        net = self.unfreeze(held=True)
        net.own.requires_grad_(False)
        optimizer = torch.optim.SGD(net.last.parameters(), lr=0.1)
        for _ in range(4):
            self.step(net, optimizer)
        net.own.requires_grad_(True)
        for _ in range(2):
            self.step(net, optimizer)
        self.assertEqual(last("opt.late_left_out"), 1.0)

    def test_one_layer_many_times(self):
        layer = nn.Linear(5, 5)
        for layers, wrong in (
            ([layer] * 2, 1.0),
            ([layer, nn.Linear(5, 5)], 0.0),
            ([nn.ReLU(), layer, nn.ReLU()], 0.0),
        ):
            net = nn.Sequential(*layers, self.net)
            self.step(net)
            self.assertEqual(last("opt.layers_repeated"), wrong)

    def test_a_layer_that_is_made_in_forward(self):
        class Maker(nn.Linear):
            def forward(self, x):
                return super().forward(nn.Linear(5, 5)(x))

        net = Maker(5, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        self.step(net, optimizer)
        self.assertIsNone(last("opt.layers_made_in_forward"))  # may be lazy
        self.step(net, optimizer)
        self.assertEqual(last("opt.layers_made_in_forward"), 1.0)


class RepeatedDraws(SignsCase):
    NAME = "opt.repeats_draws"

    def train(self, before=lambda: None, steps=4):
        net = nn.Sequential(nn.Dropout(0.5), self.net)
        for _ in range(steps):
            before()
            self.step(net)

    def test_seeded_in_each_step(self):
        self.train(lambda: torch.manual_seed(3))
        self.assertEqual(last(self.NAME), 1.0)

    def test_seeded_otherwise_in_each_step(self):
        seeds = iter(range(10))
        self.train(lambda: torch.manual_seed(next(seeds)))
        self.assertEqual(last(self.NAME), 0.0)

    def test_a_fixed_evaluation_in_each_step(self):
        def evaluate():
            with torch.random.fork_rng(), torch.no_grad():
                torch.manual_seed(3)
                self.net(torch.randn(8, 5))

        self.train(evaluate)
        self.assertEqual(last(self.NAME), 0.0)


class RoundedSteps(SignsCase):
    NAME = "opt.rounded_away"

    def train(
        self,
        rate,
        dtype=torch.bfloat16,
        optimizer_class=torch.optim.AdamW,
        **options,
    ):
        net = nn.Linear(5, 4, dtype=dtype)
        nn.init.uniform_(net.weight, 0.5, 1.0)
        # Enough elements for a verdict.
        wide = nn.Linear(64, 5, dtype=dtype)
        nn.init.uniform_(wide.weight, 0.5, 1.0)
        model = nn.Sequential(wide, net)
        optimizer = optimizer_class(model.parameters(), lr=rate)
        for group in optimizer.param_groups:
            group.update(options)
        for _ in range(4):
            optimizer.zero_grad()
            scores = model(torch.randn(8, 64, dtype=dtype)).float()
            F.cross_entropy(scores, TARGETS).backward()
            optimizer.step()

    def test_steps_that_are_lost(self):
        self.train(1e-5)
        self.assertEqual(said(self.NAME), [0.0, 1.0, 1.0, 1.0])

    def test_steps_that_are_long_enough(self):
        self.train(0.05)
        self.assertEqual(set(said(self.NAME)), {0.0})

    def test_an_optimizer_that_rounds_at_random(self):
        class Drawing(torch.optim.AdamW):
            @torch.no_grad()
            def step(self, closure=None):
                super().step(closure)
                torch.randint(0, 2, (1,))

        self.train(1e-5, optimizer_class=Drawing)
        self.assertEqual(said(self.NAME), [])

    def test_a_warm_up(self):
        self.train(1e-5, initial_lr=0.05)
        self.assertEqual(said(self.NAME), [])

    def test_float32(self):
        self.train(1e-5, dtype=torch.float32)
        self.assertEqual(said(self.NAME), [])


class Others(SignsCase):
    def test_nobody_looks_once_two_threads_train(self):
        self.step()
        self.assertTrue(said("opt.loss_not_finite"))
        other = threading.Thread(target=self.step)
        other.start()
        other.join()
        CORE.log.clear()
        self.step()
        names = {e[2] for e in CORE.log if e[0] == "scalar"}
        self.assertEqual({n for n in names if n.startswith("opt.")}, set())

    def test_optimizers_made_anew(self):
        for epoch in range(4):
            optimizer = torch.optim.Adam(self.net.parameters())
            self.step(optimizer=optimizer)
            self.step(optimizer=optimizer)
        self.assertEqual(last("opt.made_anew"), 1.0)

    def test_a_problem_is_solved_anew_each_time(self):
        for task in range(5):
            optimizer = torch.optim.LBFGS(self.net.parameters(), max_iter=20)
            optimizer.step(lambda: self.scores_loss(optimizer))
        self.assertNotIn(1.0, said("opt.made_anew"))

    def scores_loss(self, optimizer):
        optimizer.zero_grad()
        loss = self.net(torch.ones(2, 5)).square().sum()
        loss.backward()
        return loss

    def test_optimizers_of_weights_that_came_from_elsewhere(self):
        for epoch in range(5):
            with torch.no_grad():
                self.net.weight.mul_(0.5)
            optimizer = torch.optim.Adam(self.net.parameters())
            self.step(optimizer=optimizer)
        self.assertNotIn(1.0, said("opt.made_anew"))

    def test_optimizers_that_take_over_a_state(self):
        state = None
        for epoch in range(5):
            optimizer = torch.optim.Adam(self.net.parameters())
            if state is not None:
                optimizer.load_state_dict(state)
            self.step(optimizer=optimizer)
            state = optimizer.state_dict()
        self.assertNotIn(1.0, said("opt.made_anew"))

    def test_an_average_without_statistics(self):
        name = "opt.averages_without_statistics"
        statistics = ("running_mean", "running_var")
        every = (*statistics, "num_batches_tracked")
        for copied, wrong in (((), 1.0), (every, 0.0), (statistics, 0.0)):
            net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))
            average = copy.deepcopy(net)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(4):
                self.step(net, optimizer)
                WATCH.shadows.update()  # as when a step closes
                average.eval()
                with torch.no_grad():
                    for mine, other in zip(average.parameters(), net.parameters()):
                        mine.lerp_(other, 0.1)
                    for buffer in copied:
                        getattr(average[1], buffer).copy_(getattr(net[1], buffer))
                    average(torch.randn(8, 5))
            self.assertEqual(last(name), wrong)

    def test_a_state_of_other_names(self):
        state = self.net.state_dict()
        state = {"module." + name: tensor.clone() for name, tensor in state.items()}
        self.net.load_state_dict(state, strict=False)
        self.assertEqual(said("load.of_nothing"), [1.0])
        state["weight"] = torch.zeros(4, 5)
        self.net.load_state_dict(state, strict=False)
        self.assertEqual(said("load.of_nothing"), [1.0, 0.0])

    def test_what_was_loaded_is_lost(self):
        name = "opt.loaded_state_lost"
        layers = [nn.Linear(5, 5) for _ in range(3)]
        net = nn.Sequential(*layers, self.net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        state = copy.deepcopy(net).state_dict()
        for again, wrong in ((layers, 1.0), ([self.net], 0.0), ([], 0.0)):
            net.load_state_dict(state)
            for layer in again:
                nn.init.normal_(layer.weight)
            self.step(net, optimizer)
            self.assertEqual(last(name), wrong)

    def test_what_came_from_the_file_takes_its_place(self):
        """Weights that an average had replaced when the file was written."""
        net = nn.Sequential(nn.Linear(5, 5), self.net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        raw = [p.detach().clone() for p in net.parameters()]
        state = {n: torch.randn(p.shape) for n, p in net.named_parameters()}
        for kept, wrong in ((raw, 0.0), (None, 1.0)):
            file = io.BytesIO()
            torch.save({"model": state, "average": {"kept": kept}}, file)
            file.seek(0)
            content = torch.load(file)
            net.load_state_dict(content["model"])
            with torch.no_grad():
                for p, one in zip(net.parameters(), content["average"]["kept"] or ()):
                    p.copy_(one)
                if kept is None:
                    for p in net.parameters():
                        p.normal_()
            self.step(net, optimizer)
            self.assertEqual(last("opt.loaded_state_lost"), wrong)

    def test_a_file_of_many_numbers_is_not_gone_through(self):
        """A billion entries: a look at all of them would not end."""
        rows = [0] * 1000
        WATCH.loaded_states.loaded({"data": [[rows] * 1000] * 1000})

    def test_the_best_weights_kept_by_reference(self):
        kept, copied = self.net.state_dict(), self.net.state_dict()
        copied = type(copied)((k, v.clone()) for k, v in copied.items())
        self.net.load_state_dict(kept)  # nothing has happened since
        self.step()
        self.net.load_state_dict(copied)
        self.assertEqual(said("load.of_itself"), [])
        self.net.load_state_dict(kept)
        self.assertEqual(said("load.of_itself"), [1.0])

    def test_a_file_that_is_read_into_the_own_tensors(self):
        """As torch.distributed.checkpoint fills in what it is given."""
        self.step()
        template = self.net.state_dict()
        for value in template.values():
            value.copy_(torch.randn_like(value))
        self.net.load_state_dict(template)
        self.assertEqual(said("load.of_itself"), [])
        kept = self.net.state_dict()
        self.net.load_state_dict({k: torch.randn_like(v) for k, v in kept.items()})
        self.net.load_state_dict(kept)  # other weights by now, for an evaluation
        self.assertEqual(said("load.of_itself"), [1.0])

    def test_a_model_that_is_its_own_target(self):
        target = self.net
        target.load_state_dict(self.net.state_dict())  # before the first step
        self.step()
        self.assertEqual(said("load.of_itself"), [])
        copied = copy.deepcopy(self.net)
        copied.load_state_dict(self.net.state_dict())
        self.assertEqual(said("load.of_itself"), [])
        target.load_state_dict(self.net.state_dict())
        target.load_state_dict({k: v for k, v in self.net.state_dict().items()})
        self.assertEqual(said("load.of_itself"), [1.0, 1.0])
        state = self.net.state_dict()
        state["bias"] = torch.zeros(4)  # the last layer is new
        self.net.load_state_dict(state)
        self.assertEqual(said("load.of_itself"), [1.0, 1.0])


class OnADevice(SignsCase):
    """What is said at the next step, as long as there is one."""

    ON_DEVICE = True
    test_averages = Others.test_an_average_without_statistics

    def test_what_an_average_was_at_first_comes_after_its_evaluations(self):
        net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))
        average = copy.deepcopy(net).eval()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with unittest.mock.patch.object(CORE, "copies", lambda: []):
            for _ in range(3):
                self.step(net, optimizer)
                WATCH.shadows.update()  # as when a step closes
                with torch.no_grad():
                    for mine, other in zip(average.parameters(), net.parameters()):
                        mine.lerp_(other, 0.1)
                    average(torch.randn(8, 5))
        self.assertEqual(said("opt.averages_without_statistics"), [])
        self.step(net, optimizer)
        self.assertEqual(said("opt.averages_without_statistics"), [1.0])


if __name__ == "__main__":
    unittest.main()
