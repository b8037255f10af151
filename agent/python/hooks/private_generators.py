"""Random generators of a data set's own, of which each worker of a loader has a copy.

torch gives each worker another seed for its own generator, Python's and NumPy's. A
generator that the data set keeps is copied with it: unless each worker seeds it anew,
all draw the same. What an item draws from a generator that it seeds itself, by its
number, is right.
"""

from __future__ import annotations

import pickle
import random
import sys
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# Name of the generator in records.
NAME = "dataset"
_FETCHES = 8  # of a worker that are looked at
_DEPTH = 3  # from the data set to its generators
_MOST = 64  # attributes of an object, elements of a list
_OBJECTS = 1000  # that are looked through
_WORD = 32  # bits
_WORDS = 624  # that a Mersenne twister makes at once
_TURNS = 64
_CHUNKS = 32  # of as many turns: 1.2 million words, if NumPy is there to draw them
_COMPARED = 4  # words


class PrivateGenerators:
    def __init__(self) -> None:
        # Generators of the data set, and their states as the worker began.
        self._began: list[tuple[Any, Any]] = []
        self._fetches = 0

    def worker_begins(self, data: Any) -> None:
        """Called in a worker, once its worker_init_fn has run."""
        self._began = [(one, _state(one)) for one in _generators(data)]
        self._fetches = 0

    def fetch_ended(self) -> bytes | None:
        """What those that were drawn from began with, once it is known; None: nothing
        new."""
        if not self._began:
            return None
        self._fetches += 1
        drawn = [state for one, state in self._began if _was_drawn(one, state)]
        if drawn or self._fetches == _FETCHES:
            self._began = []
        return pickle.dumps(drawn, protocol=4) if drawn else None


def _generators(data: Any) -> Iterator[Any]:
    """Those that it, or what it consists of, refers to."""
    todo = [(data, _DEPTH)]
    for owner, depth in todo:
        for part in _parts_of(owner):
            if _is_generator(part):
                yield part
            elif depth > 0 and len(todo) < _OBJECTS:
                todo.append((part, depth - 1))


def _parts_of(owner: Any) -> list[Any]:
    if isinstance(owner, (list, tuple)):
        return list(owner[:_MOST])
    if isinstance(owner, (torch.nn.Module, torch.Tensor)):
        return []
    attributes: Any = getattr(owner, "__dict__", None)
    return list(attributes.values())[:_MOST] if type(attributes) is dict else []


def _is_generator(value: Any) -> bool:
    if type(value) is random.Random:
        return True
    if type(value) is torch.Generator:
        return str(value.device) == "cpu"
    numpy_random = sys.modules.get("numpy.random")
    return numpy_random is not None and type(value) in (
        numpy_random.Generator,
        numpy_random.RandomState,
    )


def _state(generator: Any) -> Any:
    if type(generator) is random.Random:
        return generator.getstate()
    if type(generator) is torch.Generator:
        return generator.initial_seed(), generator.get_state().numpy().tobytes()
    if hasattr(generator, "bit_generator"):
        return generator.bit_generator.state
    return _plain(generator.get_state())


def _plain(state: Any) -> Any:
    """Of a RandomState, as values that can be compared."""
    return (state[0], tuple(state[1].tolist()), *state[2:])


def _was_drawn(generator: Any, began: Any) -> bool:
    """Has its state moved on from that, without a new seed?"""
    now = _state(generator)
    if now == began:
        return False
    if type(generator) is random.Random:
        return _leads_to(began[1][:_WORDS], now[1][:_WORDS])
    if type(generator) is torch.Generator:
        return bool(now[0] == began[0])
    if hasattr(generator, "bit_generator"):
        return True  # it has no method that seeds it
    return _leads_to(began[1], now[1])


def _leads_to(began: tuple[int, ...], now: tuple[int, ...]) -> bool:
    """Does a Mersenne twister come from these words to those by drawing?"""
    numpy = sys.modules.get("numpy")
    if began == now or numpy is None:
        return any(words == now for words in _turns(began))
    twister = numpy.random.MT19937(0)
    state = twister.state
    state["state"] = {"key": numpy.array(began, dtype=numpy.uint32), "pos": _WORDS}
    twister.state = state
    wanted = numpy.array([_tempered(word) for word in now[:_COMPARED]])
    for _ in range(_CHUNKS):
        drawn = twister.random_raw(_TURNS * _WORDS).reshape(_TURNS, _WORDS)
        if bool((drawn[:, :_COMPARED] == wanted).all(1).any()):
            return True
    return False


def _turns(words: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    twister = random.Random()
    for _ in range(_TURNS):
        yield words
        twister.setstate((3, (*words, _WORDS), None))
        twister.getrandbits(_WORD)
        words = twister.getstate()[1][:_WORDS]


def _tempered(word: int) -> int:
    """What a Mersenne twister gives for a word of its state."""
    word ^= word >> 11
    word ^= (word << 7) & 0x9D2C5680
    word ^= (word << 15) & 0xEFC60000
    return word ^ word >> 18
