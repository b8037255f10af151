"""States of random generators: read, never advanced.

In a DataLoader's worker after its worker_init, at the first fetch of each pass
over a loader, at the first forwards that train and, on plan, where every
outermost forward begins and ends.
"""

from __future__ import annotations

import array
import struct
import sys
from typing import TYPE_CHECKING

import torch
from torch.utils.data._utils import fetch

from _traincheck.observing import observe
from _traincheck.private_generators import NAME as PRIVATE
from _traincheck.private_generators import PrivateGenerators

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Args, Core, Kwargs

    from _traincheck.planner import Planner
    from _traincheck.control import Recorded
    from _traincheck.watch import Watch

_BYTES = "torch.uint8"
# That train. The first is recorded in any case, the others with the states of their
# steps: they show which generators are drawn from.
_FORWARDS = 4


def drawn_state() -> bytes:
    """Of torch's generators for the CPU and for the current device: equal where nothing
    was drawn in between."""
    state = bytes(torch.default_generator.get_state().numpy())
    generator = _generator_of_device()
    if generator is not None:
        state += bytes(generator.get_state().numpy())
    return state


def _generator_of_device() -> torch.Generator | None:
    """Its state is kept on the host: nothing waits for the device."""
    cuda = torch.cuda
    if not cuda.is_initialized() or cuda.is_current_stream_capturing():
        return None
    generator: torch.Generator = cuda.default_generators[cuda.current_device()]
    return generator


class Generators:
    def __init__(self, core: Core, recorded: Recorded, planner: Planner) -> None:
        self._core = core
        self._recorded = recorded
        self._planner = planner
        self._variables: dict[str, int] = {}  # name -> variable
        self._trained = 0  # forwards, up to _FORWARDS
        self._private = PrivateGenerators()

    def forward_begins(self, trains: bool) -> None:
        """Called at every outermost one."""
        few = trains and self._trained < _FORWARDS
        first = few and (self._trained == 0 or self._recorded.states)
        if first:
            self._trained += 1
        if first or (self._recorded.states and self._planner.plan.generators):
            self.record(self._core.POINT_FORWARD_BEGIN)

    def forward_ended(self) -> None:
        if self._recorded.states and self._planner.plan.generators:
            self.record(self._core.POINT_FORWARD_END)

    def worker_begins(self, fetcher: Any, data: Any) -> None:
        """Called in a worker, once its worker_init_fn has run."""
        # A stream may draw one order in all workers, and each take its share: their states
        # are not compared.
        of_items = isinstance(fetcher, fetch._MapDatasetFetcher)
        info = torch.utils.data.get_worker_info()
        if of_items or info is None or info.num_workers < 2:
            self.record(self._core.POINT_WORKER_INIT)
        if of_items:
            self._private.worker_begins(data)

    def fetch_ended(self) -> None:
        drawn = self._private.fetch_ended()
        if drawn is not None:
            self._record_bytes(self._core.POINT_WORKER_INIT, PRIVATE, drawn)

    def record(self, point: int) -> None:
        """Rare: done whatever the step records."""
        self._record_bytes(point, "python", _python_state())
        numpy_random = sys.modules.get("numpy.random")
        if numpy_random is not None:
            self._record_bytes(point, "numpy", _numpy_state(numpy_random))
        self._record_state(point, "torch.cpu", torch.default_generator)
        generator = _generator_of_device()
        if generator is not None:
            name = f"torch.cuda:{generator.device.index}"
            self._record_state(point, name, generator)

    def _record_bytes(self, point: int, name: str, state: bytes) -> None:
        self._core.record_bytes(point, self._variable(name), state, _BYTES)

    def _record_state(self, point: int, name: str, generator: torch.Generator) -> None:
        core, variable = self._core, self._variable(name)
        core.record_states(point, core.STATE_DATA, [variable], [generator.get_state()])

    def _variable(self, name: str) -> int:
        variable = self._variables.get(name)
        if not variable:
            core = self._core
            variable = core.define_variable(
                None, name, "generator", 0, core.VARIABLE_GENERATOR, "", 0
            )
            self._variables[name] = variable
        return variable


def _python_state() -> bytes:
    import random

    version, words, gauss = random.getstate()
    tail = b"" if gauss is None else struct.pack("<d", gauss)
    return array.array("I", words).tobytes() + tail


def _numpy_state(numpy_random: Any) -> bytes:
    state = numpy_random.get_state(legacy=False)
    bits = state["state"]
    tail = struct.pack("<qd", state.get("has_gauss", 0), state.get("gauss", 0.0))
    if "key" in bits:
        words: bytes = bits["key"].tobytes()
        return words + struct.pack("<q", bits["pos"]) + tail
    # A generator that the user put in place of numpy's own: numbers by name.
    return repr(sorted(bits.items())).encode() + tail


def install(watch: Watch) -> None:
    def fetcher_made(fetcher: Any, args: Args, kwargs: Kwargs) -> None:
        # Before: an iterable dataset is asked for its iterator within.
        if torch.utils.data.get_worker_info() is not None:
            watch.process.loads_data()
            watch.generators.worker_begins(fetcher, args[0] if args else None)

    observe(watch, fetch._BaseDatasetFetcher, "__init__", before=fetcher_made)
