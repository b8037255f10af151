"""A training that is to end after a few steps: in order, and nobody else."""

import os
import pathlib
import sys
import threading
import unittest
import unittest.mock

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, Net, WATCH, train_step


class Stops(HooksCase):
    def setUp(self):
        super().setUp()
        CORE.closing = {"clear"}
        CORE.steps = 0
        self.done = []
        self.said = []
        said = unittest.mock.patch.object(CORE, "log_once", self.log_once)
        said.start()
        self.addCleanup(said.stop)

    def log_once(self, key, message):
        self.said.append(message)

    def stop_after(self, text):
        with unittest.mock.patch.dict(os.environ, TRAINCHECK_STOP_AFTER=text):
            WATCH.reset()

    def train(self, steps=6):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(steps):
            train_step(model, optimizer)
            self.done.append(step)

    def test_nobody_asks(self):
        self.stop_after("")
        self.train()
        self.assertEqual(len(self.done), 6)
        self.assertEqual(self.said, [])

    def test_the_call_that_closes_the_last_step_raises(self):
        self.stop_after("3")
        with self.assertRaises(SystemExit) as raised:
            self.train()
        self.assertEqual(raised.exception.code, 0)
        # In this stand-in the first gradient clear closes a step, too.
        self.assertEqual(self.done, [0, 1])
        self.assertEqual(self.said, ["the training ends here: TRAINCHECK_STOP_AFTER=3"])

    def test_who_catches_it_meets_it_again(self):
        self.stop_after("1")
        for _ in range(2):
            with self.assertRaises(SystemExit):
                self.train()
        self.assertEqual(self.done, [])

    def test_a_worker_goes_on(self):
        self.stop_after("1")
        WATCH.process._kind = CORE.PROCESS_WORKER
        self.train()
        self.assertEqual(len(self.done), 6)

    def test_the_end_itself_closes_a_step_and_goes_on(self):
        self.stop_after("9")
        self.train(3)
        CORE.steps, CORE.closing = 8, {"end"}
        WATCH.process.ends(WATCH.clock)
        self.assertEqual(CORE.steps, 9)
        self.assertIn(("mark", "CLEAN_EXIT", 0, 0), CORE.log)

    def test_a_thread_beside_the_main_one_ends_alone(self):
        self.stop_after("2")
        thread = threading.Thread(target=self.train)
        thread.start()
        thread.join()
        self.assertEqual(self.done, [0])


if __name__ == "__main__":
    unittest.main()
