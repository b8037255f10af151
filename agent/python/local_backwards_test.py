"""Which backwards of a step stay on their rank."""

import pathlib
import sys
import unittest

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase
from _traincheck.local_backwards import LocalBackwards


class Wrapper(torch.nn.Linear):
    """What is asked of DistributedDataParallel."""

    require_backward_grad_sync = True


class Backwards(HooksCase):
    def setUp(self):
        super().setUp()
        self.backwards = LocalBackwards()
        self.wrapper = self.wrap()
        self.optimizer = torch.optim.SGD(self.wrapper.parameters(), lr=0.1)

    def wrap(self):
        wrapper = Wrapper(2, 1)
        self.backwards.wrapped(wrapper)
        return wrapper

    def forward(self, averages, wrapper=None):
        wrapper = wrapper or self.wrapper
        wrapper.require_backward_grad_sync = averages
        self.backwards.forward_begins(wrapper)

    def step(self, *averages):
        """One with these micro-batches."""
        for each in averages:
            self.forward(each)
            self.backwards.backward_begins()
        return self.backwards.steps(self.optimizer)

    def test_the_first_is_averaged(self):
        self.assertTrue(self.step(True, False, False))

    def test_the_last_is_averaged(self):
        self.assertFalse(self.step(False, False, True))

    def test_each_step_is_looked_at_alone(self):
        self.assertFalse(self.step(False, True))
        self.assertFalse(self.step(False, False))
        self.assertTrue(self.step(True, False))
        self.assertFalse(self.step(False, True))

    def test_a_flag_that_is_set_too_late(self):
        """Each forward runs as the micro-batch before it was to."""
        self.forward(True)
        self.backwards.backward_begins()
        for _ in range(3):
            self.forward(False)
            self.backwards.backward_begins()
        self.assertTrue(self.backwards.steps(self.optimizer))

    def test_who_averages_by_hand_has_no_mixture(self):
        for _ in range(3):
            self.assertFalse(self.step(False, False))

    def test_nobody_has_left_averaging_out(self):
        self.assertIsNone(self.step(True, True))

    def test_of_several_forwards_it_is_not_known_which_is_meant(self):
        self.forward(True)
        self.forward(False)
        self.backwards.backward_begins()
        self.assertIsNone(self.backwards.steps(self.optimizer))
        # From the next step on it is.
        self.assertTrue(self.step(True, False))

    def test_a_backward_of_something_else_changes_nothing(self):
        self.forward(False)
        self.backwards.backward_begins()
        self.forward(True)
        self.backwards.backward_begins()
        self.backwards.backward_begins()
        self.assertFalse(self.backwards.steps(self.optimizer))

    def test_what_a_graph_averages_is_not_known(self):
        self.forward(True)
        self.backwards.backward_begins()
        self.forward(False)
        self.backwards.backward_begins()
        self.backwards.replayed()
        self.assertIsNone(self.backwards.steps(self.optimizer))

    def test_an_optimizer_is_asked_of_what_it_holds(self):
        other = self.wrap()
        of_other = torch.optim.SGD(other.parameters(), lr=0.1)
        for averages in (True, False):
            self.forward(averages)
            self.backwards.backward_begins()
        self.forward(True, other)
        self.backwards.backward_begins()
        self.assertIsNone(self.backwards.steps(of_other))
        self.assertTrue(self.backwards.steps(self.optimizer))

    def test_a_wrapper_that_comes_later_is_known(self):
        self.assertFalse(self.step(False, True))
        later = self.wrap()
        self.optimizer.add_param_group({"params": list(later.parameters())})
        for averages in (True, False):
            self.forward(averages, later)
            self.backwards.backward_begins()
        self.assertTrue(self.backwards.steps(self.optimizer))

    def test_one_rank_has_nothing_to_average(self):
        alone = Wrapper(2, 1)
        self.backwards.forward_begins(alone)
        self.backwards.backward_begins()
        optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
        self.assertIsNone(LocalBackwards().steps(optimizer))
        self.assertIsNone(self.backwards.steps(optimizer))


if __name__ == "__main__":
    unittest.main()
