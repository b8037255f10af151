"""Lines of the user's code that findings name: those that made a loader or a scheduler,
and those that step one."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import core_for_testing
from hooks_case import CORE, HooksCase, SignsCase, last, said


def here(number):
    """The line of this file that a site is."""
    file, line = CORE.sites_here[int(number) - core_for_testing.SITES_HERE - 1]
    assert file == __file__, file
    return pathlib.Path(__file__).read_text().splitlines()[line - 1].strip()


class LinesOfLoadersTest(HooksCase):
    def test_where_it_was_made(self):
        loader = DataLoader(TensorDataset(torch.ones(4, 3)), batch_size=2)
        for _ in range(2):
            list(loader)
        (site,) = said("loader.made.site")
        self.assertEqual(
            here(site),
            "loader = DataLoader(TensorDataset(torch.ones(4, 3)), batch_size=2)",
        )


class LinesOfSchedulersTest(SignsCase):
    def test_where_it_was_made(self):
        name = "schedule.rate_as_factor"
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
        schedule = lr_scheduler.LambdaLR(self.optimizer, lambda epoch: 0.01)
        lr_scheduler.StepLR(self.optimizer, 1000)
        for _ in range(4):
            self.step()
            schedule.step()
        self.assertEqual(last(name), 1.0)
        self.assertTrue(here(last(f"{name}.site")).startswith("schedule = "))

    def test_where_it_is_stepped(self):
        schedule = lr_scheduler.StepLR(self.optimizer, 1000)
        schedule.step()  # too early
        self.step()
        self.assertEqual(last("schedule.early"), 1.0)
        line = here(last("schedule.early.site"))
        self.assertEqual(line, "schedule.step()  # too early")

    def test_one_that_does_not_call_its_base(self):
        schedule = lr_scheduler.ReduceLROnPlateau(self.optimizer, "max")  # made
        loss = 2.0
        for _ in range(2):
            self.step()
            schedule.step(loss)
        found = [e[2] for e in CORE.log if e[0] == "scalar" and e[2].endswith(".site")]
        self.assertIn("schedule.against_metric.site", found)
        for name in set(found) - {"schedule.fast.site"}:
            self.assertIn("# made", here(last(name)), name)

    def test_one_that_is_right(self):
        schedule = lr_scheduler.StepLR(self.optimizer, 1000)
        for _ in range(4):
            self.step()
            schedule.step()
        sites = {e[2] for e in CORE.log if e[0] == "scalar" and e[2].endswith(".site")}
        self.assertEqual(sites - {"schedule.fast.site"}, set())


class LinesOfCallsTest(SignsCase):
    """Calls that go wrong before a step shows it."""

    def site(self, name, steps=4):
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.loss().backward()
            yield
            self.optimizer.step()
        self.assertEqual(last(name), 1.0)
        self.found = here(last(f"{name}.site"))

    def test_clipping_of_nothing(self):
        given = self.net.parameters()
        list(given)
        for _ in self.site("opt.clips_nothing"):
            nn.utils.clip_grad_norm_(given, 1.0)  # used up
            nn.utils.clip_grad_norm_([], 1.0)
        self.assertIn("# used up", self.found)

    def test_clearing_before_the_step(self):
        for _ in self.site("opt.clears_before_step"):
            self.net.zero_grad()  # too early
        self.assertIn("# too early", self.found)

    def test_clearing_of_micro_batches(self):
        for _ in range(4):
            for _ in range(2):
                self.optimizer.zero_grad()  # for each
                self.loss().backward()
            self.optimizer.step()
        line = here(last("opt.discards_backwards.site"))
        self.assertIn("# for each", line)

    def test_clipping_of_micro_batches(self):
        def clip():
            nn.utils.clip_grad_norm_(self.net.parameters(), 1e-3)  # again

        for _ in self.site("opt.clips_micro_batches"):
            for _ in range(2):
                self.loss().backward()
                clip()
        self.assertIn("# again", self.found)

    def test_another_optimizer(self):
        other = torch.optim.SGD(nn.Linear(5, 4).parameters(), lr=0.1)
        for _ in range(3):
            self.step()
            other.zero_grad()
        names = [e[2] for e in CORE.log if e[0] == "scalar"]
        self.assertFalse([name for name in names if name.endswith(".site")])

    def test_a_forward_without_gradients(self):
        class Tower(nn.Linear):
            @torch.no_grad()  # of all of it
            def forward(self, x):
                return super().forward(x)

        self.net = nn.Sequential(Tower(5, 5), nn.Linear(5, 4))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.step()
        name = "opt.forward_without_gradients"
        self.assertEqual(last(name), 1.0)
        ((_, line, _),) = CORE.sites_at
        self.assertEqual(last(f"{name}.site"), 1.0)
        source = pathlib.Path(__file__).read_text().splitlines()
        self.assertIn("# of all of it", source[line - 1])


if __name__ == "__main__":
    unittest.main()
