"""Tests of lists that hold one object again and again (kept_objects.py)."""

import unittest
from collections import deque, namedtuple

import numpy
import torch

from hooks_case import SignsCase, said

NAME = "opt.keeps_one_object"

Step = namedtuple("Step", "state action reward next_state")


class Agent:
    """Replays whole episodes."""

    def __init__(self, clears):
        self.clears = clears
        self.replay, self.lengths = deque(maxlen=1000), []
        self.states = []

    def play(self):
        if self.clears:
            self.states.clear()
        else:
            self.states = []
        for _ in range(5):
            self.states.append(numpy.random.rand(4))
        self.replay.append(self.states)
        self.lengths.append(len(self.states))


class Env:
    def __init__(self, in_place, like=numpy.zeros(4)):
        self.in_place, self.state = in_place, like

    def step(self):
        drawn = torch.rand(4)
        if self.in_place:
            self.state[:] = drawn if torch.is_tensor(self.state) else drawn.numpy()
        else:
            self.state = drawn
        return self.state


class Memory:
    def __init__(self):
        self.steps = []

    def push(self, *step):
        self.steps.append(step if len(step) > 1 else step[0])


class OfTensors(Memory):
    def push(self, *step):
        super().push(*(torch.as_tensor(one) for one in step))
        self.steps.append(self.steps.pop())


class OfSteps(Memory):
    def push(self, state, action, reward, following):
        self.steps.append(Step(state, action, reward, following))


class WithItsEpisode:
    """A state is drawn by where it lies in its episode, or long ones more often."""

    def __init__(self, places):
        self.places, self.episode, self.entries = places, [], []

    def push(self, state):
        self.episode.append(state)
        entry = self.episode
        if self.places:
            entry = (self.episode, len(self.episode) - 1)
        self.entries.append(entry)


class WithItsSeries:
    """Windows of an array that is written from its begin to its end."""

    def __init__(self):
        self.series, self.entries = numpy.zeros((1000, 4)), []

    def push(self, state):
        self.series[len(self.entries)] = state
        self.entries.append((self.series, len(self.entries)))


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kept, self.one = [], numpy.zeros(4)

    def push(self):
        self.kept.append(self.one)
        self.one += 1


class KeptObjects(SignsCase):
    def setUp(self):
        super().setUp()
        self.step()  # from here on classes are observed

    def found(self, call, times=40):
        self.setUp()
        for _ in range(times):
            call()
        self.step()
        return set(said(NAME))

    def test_a_list_that_is_cleared(self):
        self.assertEqual(self.found(Agent(True).play), {1.0})
        self.assertEqual(self.found(Agent(False).play), {0.0})

    def test_a_state_that_is_written_in_place(self):
        for like in (numpy.zeros(4), torch.zeros(4), torch.zeros(4).bfloat16()):
            env, memory = Env(True, like), Memory()
            self.assertEqual(self.found(lambda: memory.push(env.step())), {1.0})
        env, memory = Env(False), Memory()
        self.assertEqual(self.found(lambda: memory.push(env.step())), {0.0})

    def test_states_before_and_after_a_step(self):
        for kind in (Memory, OfTensors, OfSteps):
            for in_place in (True, False):
                env, memory = Env(in_place), kind()

                def play():
                    state = env.state
                    memory.push(state, 1, 0.5, env.step())

                found = self.found(play)
                self.assertEqual(found, {float(in_place)}, (kind, in_place))

    def test_places_of_a_buffer(self):
        buffer, memory = torch.zeros(1000, 4), Memory()

        def play():
            place = len(memory.steps)
            buffer[place] = torch.rand(4)
            memory.push(buffer[place], 1, buffer[place + 1])

        self.assertEqual(self.found(play), {0.0})

    def test_copies_of_it(self):
        env, memory = Env(True), Memory()

        def play():
            memory.push(env.state.copy(), 1, 0.5, env.step().copy())

        self.assertEqual(self.found(play), {0.0})

    def test_shared_and_never_written(self):
        for one in (numpy.zeros(4), [1, 2], torch.full((3,), float("nan"))):
            memory = Memory()
            self.assertEqual(self.found(lambda: memory.push(one)), set())

    def test_a_goal_beside_the_states(self):
        goal, memory = numpy.zeros(2), Memory()

        def play():
            goal[:] = numpy.random.rand(2)
            memory.push(numpy.random.rand(4), 1, numpy.random.rand(4), goal)

        self.assertEqual(self.found(play), {0.0})

    def test_records_of_what_they_are_a_part_of(self):
        for kept in (WithItsEpisode(True), WithItsEpisode(False), WithItsSeries()):
            call = lambda: kept.push(numpy.random.rand(4))
            self.assertNotIn(1.0, self.found(call), kept)

    def test_a_window_that_begins_with_one(self):
        class Frames:
            def __init__(self):
                self.frames = deque([numpy.zeros(4)] * 16, maxlen=16)

            def push(self, frame):
                self.frames.append(frame)

        globals()["Frames"] = Frames
        frames = Frames()
        call = lambda: frames.push(numpy.random.rand(4))
        self.assertEqual(self.found(call), set())

    def test_numbers_and_texts(self):
        memory = Memory()
        self.assertEqual(self.found(lambda: memory.push(1)), set())

    def test_a_queue_that_is_used_up(self):
        env, memory = Env(True), Memory()

        def play():
            memory.push(env.step())
            memory.steps.pop(0)

        self.assertEqual(self.found(play), set())

    def test_modules_are_left_alone(self):
        self.assertEqual(self.found(Module().push), set())


if __name__ == "__main__":
    unittest.main()
