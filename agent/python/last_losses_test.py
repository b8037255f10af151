"""Tests of hooks/last_losses.py."""

import copy
import io
import pickle
import unittest

import torch
from hooks_case import HooksCase, WATCH, said
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

NAME = "opt.only_last_loss"


class SlicedLoss(nn.Module):
    """Slices of a batch, each of which should be gone backward from."""

    def __init__(self, model, right):
        super().__init__()
        self.model, self.right = model, right

    def forward(self, inputs, targets):
        for start in range(0, len(inputs), 4):
            end = start + 4
            rows = {"inputs": inputs[start:end]}
            loss = F.mse_loss(self.model(**rows), targets[start:end])
            if end < len(inputs) and self.right:
                loss.backward()
        return loss


class Wide(nn.Module):
    """Which has parts that do not hold all of it."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(5, 8), nn.Linear(8, 1)

    def forward(self, inputs):
        return self.head(self.body(inputs).relu())


class Case(HooksCase):
    def setUp(self):
        super().setUp()
        self.model = Wide()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.inputs, self.targets = torch.randn(16, 5), torch.randn(16, 1)
        samples = TensorDataset(self.inputs, self.targets)
        self.loader = DataLoader(samples, 4)
        self.shuffled = DataLoader(samples, 4, shuffle=True)

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def found(self):
        return 1.0 in said(NAME)

    def loss(self, inputs, targets):
        return F.mse_loss(self.model(inputs), targets)


class Broken(Case):
    def test_backward_behind_the_loop(self):
        for _ in range(10):
            for inputs, targets in self.loader:
                loss = self.loss(inputs, targets)
            loss.backward()
            self.step()
        self.assertTrue(self.found())
        self.assertNotIn(0.0, said(NAME))

    def test_in_slices_of_a_tensor(self):
        for _ in range(10):
            for rows in range(0, 16, 4):
                loss = self.loss(
                    self.inputs[rows : rows + 4], self.targets[rows : rows + 4]
                )
            loss.backward()
            self.step()
        self.assertTrue(self.found())

    def test_in_a_loss_that_is_a_module(self):
        criterion = SlicedLoss(self.model, right=False)
        for _ in range(10):
            criterion(self.inputs, self.targets).backward()
            self.step()
        self.assertTrue(self.found())
        self.assertEqual(len(self.model._forward_hooks), 0)

    def test_a_few_steps_do_not_tell(self):
        for _ in range(3):
            for inputs, targets in self.loader:
                loss = self.loss(inputs, targets)
            loss.backward()
            self.step()
        self.assertFalse(self.found())

    def test_begins_late(self):
        for index in range(560):
            for inputs, targets in self.loader:
                loss = self.loss(inputs, targets)
                if index < 300:
                    loss.backward()
            if index >= 300:
                loss.backward()
            self.step()
        # The place has trained with all of them: it may choose.
        self.assertFalse(self.found())


class Healthy(Case):
    STEPS = 12

    def tearDown(self):
        self.assertFalse(self.found())
        self.assertEqual(len(self.model._forward_hooks), 0)
        super().tearDown()

    def test_each_goes_backward(self):
        for _ in range(self.STEPS):
            for inputs, targets in self.loader:
                self.loss(inputs, targets).backward()
            self.step()
        self.assertIn(0.0, said(NAME))

    def test_module_goes_backward_from_each(self):
        criterion = SlicedLoss(self.model, right=True)
        for _ in range(self.STEPS):
            criterion(self.inputs, self.targets).backward()
            self.step()
        self.assertIn(0.0, said(NAME))

    def test_sum_of_all(self):
        for _ in range(self.STEPS):
            sum(self.loss(*batch) for batch in self.loader).backward()
            self.step()
        self.assertIn(0.0, said(NAME))

    def test_grad_of_each(self):
        for _ in range(self.STEPS):
            parameters = list(self.model.parameters())
            for inputs, targets in self.loader:
                found = torch.autograd.grad(self.loss(inputs, targets), parameters)
                for parameter, gradient in zip(parameters, found):
                    parameter.grad = gradient
            self.loss(inputs, targets).backward()
            self.step()

    def test_best_of_several(self):
        for _ in range(self.STEPS):
            losses = [self.loss(*batch) for batch in self.shuffled]
            min(losses, key=torch.Tensor.item).backward()
            self.step()

    def test_minimum_of_a_stack(self):
        for _ in range(self.STEPS):
            losses = [self.loss(*batch) for batch in self.loader]
            torch.stack(losses).amin().backward()
            self.step()

    def test_refinement_of_one_batch(self):
        inputs = self.inputs
        for _ in range(self.STEPS):
            for _ in range(4):
                step = self.model(inputs)
                inputs = (inputs - 0.1 * step).detach()
            step.pow(2).mean().backward()
            self.step()

    def test_refinement_of_what_was_returned(self):
        model = nn.Linear(5, 5)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(self.STEPS):
            state = self.inputs
            for _ in range(4):
                state = model(state.detach())
            state.pow(2).mean().backward()
            optimizer.step()

    def test_states_of_a_recurrence_are_cut(self):
        cell = nn.GRUCell(5, 4)
        optimizer = torch.optim.SGD(cell.parameters(), lr=0.01)
        for _ in range(self.STEPS):
            state = torch.zeros(4, 4)
            for rows in self.inputs.split(4):
                state = cell(rows, state.detach())
            state.pow(2).mean().backward()
            optimizer.step()

    def test_state_is_kept_in_the_module(self):
        class Keeping(Wide):
            def forward(self, inputs):
                last = super().forward(inputs) + getattr(self, "last", 0)
                self.last = last.detach()
                return last

        model = Keeping()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(self.STEPS):
            for inputs, targets in self.loader:
                loss = F.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()

    def test_draws_of_dropout(self):
        model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(self.STEPS):
            results = [model(self.inputs) for _ in range(5)]
            weights = torch.stack(results).detach().std(dim=0)
            (results[-1] * weights).mean().backward()
            optimizer.step()

    def test_views_of_which_the_last_is_predicted(self):
        for _ in range(self.STEPS):
            views = torch.randn(4, 16, 5)
            results = [self.model(view) for view in views.unbind(0)]
            F.mse_loss(results[-1], results[0].detach()).backward()
            self.step()

    def test_generator_of_a_critic(self):
        critic = nn.Linear(1, 1)
        other = torch.optim.SGD(critic.parameters(), lr=0.01)
        for index, (inputs, _) in enumerate(list(self.loader) * self.STEPS):
            fake = self.model(inputs)
            critic(fake.detach()).mean().backward()
            other.step()
            if index % 4 == 3:
                (-critic(fake).mean()).backward()
                self.step()

    def test_loop_goes_on_until_a_sample_fits(self):
        for index in range(self.STEPS):
            fits = 3 + index % 3
            for inputs, targets in list(self.loader) * 2:
                loss = self.loss(inputs, targets)
                fits -= 1
                if not fits:
                    break
            loss.backward()
            self.step()

    def test_evaluation_with_gradients(self):
        for _ in range(self.STEPS):
            for inputs, targets in self.loader:
                self.loss(inputs, targets)
            self.loss(self.inputs, self.targets).backward()
            self.step()

    def test_phases_of_one_loop(self):
        one = DataLoader(TensorDataset(self.inputs, self.targets), 16)
        for _ in range(self.STEPS):
            for is_trained in (False, True):
                for inputs, targets in one if is_trained else self.loader:
                    loss = self.loss(inputs, targets)
                if is_trained:
                    loss.backward()
                    self.step()

    def test_helper_of_training_and_evaluation(self):
        for _ in range(self.STEPS):
            for rows in self.inputs.split(4):
                self.loss(rows, self.targets[:4])
            self.loss(self.inputs[12:], self.targets[12:]).backward()
            self.step()

    def test_evaluation_mode(self):
        self.model.eval()
        for _ in range(self.STEPS):
            for inputs, targets in self.loader:
                loss = self.loss(inputs, targets)
            loss.backward()
            self.step()

    def test_frozen_part_before_the_head(self):
        body, head = nn.Linear(5, 8).requires_grad_(False), nn.Linear(8, 1)
        optimizer = torch.optim.SGD(head.parameters(), lr=0.01)
        for _ in range(self.STEPS):
            features = torch.cat([body(inputs) for inputs, _ in self.loader])
            F.mse_loss(head(features), self.targets).backward()
            optimizer.step()

    def test_towers_in_one_line(self):
        towers = nn.ModuleList(Wide() for _ in range(4))
        optimizer = torch.optim.SGD(towers.parameters(), lr=0.01)
        for _ in range(self.STEPS):
            results = [tower(self.inputs) for tower in towers]
            F.mse_loss(torch.stack(results).mean(dim=0), self.targets).backward()
            optimizer.step()

    def test_one_tower_is_stepped_at_a_time(self):
        towers = nn.ModuleList(Wide() for _ in range(4))
        optimizer = torch.optim.SGD(towers.parameters(), lr=0.01)
        for _ in range(self.STEPS):
            results = [t(x) for t, x in zip(towers, self.inputs.split(4))]
            results[-1].mean().backward()
            optimizer.step()

    def test_cached_gradients(self):
        for _ in range(self.STEPS):
            with torch.no_grad():
                found = torch.cat([self.model(x) for x, _ in self.loader])
            found.requires_grad_()
            F.mse_loss(found, self.targets).backward()
            for (inputs, _), gradient in zip(self.loader, found.grad.split(4)):
                self.model(inputs).backward(gradient)
            self.step()

    def test_closures(self):
        optimizer = torch.optim.LBFGS(self.model.parameters(), max_iter=4)

        def closure():
            optimizer.zero_grad()
            for inputs, targets in self.loader:
                loss = self.loss(inputs, targets)
            loss.backward()
            return loss

        for _ in range(self.STEPS):
            optimizer.step(closure)

    def test_network_of_another_optimizer(self):
        other = Wide()
        for _ in range(self.STEPS):
            for inputs, targets in self.loader:
                loss = F.mse_loss(other(inputs), targets)
            (loss + self.loss(inputs, targets)).backward()
            self.step()


class Hooks(Case):
    def test_copies_of_what_is_looked_at_do_nothing(self):
        class Copying(SlicedLoss):
            def forward(self, inputs, targets):
                copied = copy.deepcopy(self.model)
                stored = io.BytesIO()
                pickle.dump(self.model, stored)
                stored.seek(0)
                assert self.model._forward_hooks
                assert torch.equal(copied(inputs), pickle.load(stored)(inputs))
                return super().forward(inputs, targets)

        criterion = Copying(self.model, right=False)
        criterion(self.inputs, self.targets).backward()
        self.step()
        self.assertEqual(len(self.model._forward_hooks), 0)

    def test_hook_goes_where_the_call_raises(self):
        criterion = SlicedLoss(self.model, right=False)
        with self.assertRaises(RuntimeError):
            criterion(self.inputs[:, :2], self.targets)
        self.assertEqual(len(self.model._forward_hooks), 0)

    def test_looks_end(self):
        for _ in range(40):
            self.loss(self.inputs, self.targets).backward()
            self.step()
        self.assertFalse(WATCH.last_losses.asks())

    def test_results_of_other_kinds(self):
        class Result:
            def __init__(self, value):
                self.value = {"of": (value,)}

        class Net(Wide):
            def forward(self, inputs):
                return Result(super().forward(inputs))

        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(10):
            for inputs, _ in self.loader:
                result = model(inputs)
            result.value["of"][0].mean().backward()
            optimizer.step()
        self.assertTrue(self.found())


if __name__ == "__main__":
    unittest.main()
