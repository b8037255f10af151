"""What this process is: its kind, its place in the world, its run, its end."""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import multiprocessing.util
import os
import sys
from typing import TYPE_CHECKING

import torch

from _traincheck import run_agreement

if TYPE_CHECKING:
    from traincheck_core import Core

    from _traincheck.clock import Clock
    from _traincheck.control import Control
    from _traincheck.watch import Watch


class Process:
    def __init__(self, core: Core, control: Control) -> None:
        self._core = core
        self._control = control
        self._kind: int | None = None
        self._place: tuple[int, int, int, int, str] | None = None
        # are RANK and WORLD_SIZE those of a rank above?
        self._inherits: bool | None = None
        self._settled = False  # is the name of its run?
        self._start = ""  # nonce that the ranks of its first group agreed on
        self.active = False  # has anything happened that is worth a clean exit?

    def trains(self) -> None:
        """Called when it constructs an optimizer or calls backward."""
        if self._kind is not None:
            return
        self.active = True
        if self.inherits():
            return
        self._set_kind(self._core.PROCESS_MAIN)
        # The variables alone make nobody a rank: children inherit them.
        place = _place_of("RANK", "WORLD_SIZE")
        if place is not None:
            self._set_place(*place, self._core.PLACE_ENVIRONMENT)

    def steps(self) -> None:
        """Called when an optimizer steps: now it must have some place."""
        self._settle()
        if self._place is not None or not self.is_main():
            return
        place = _place_by_launcher()
        if place is None:
            self._set_place(0, 1, self._core.PLACE_SINGLE)
        else:
            self._set_place(*place, self._core.PLACE_ENVIRONMENT)

    def binds_rank(self) -> None:
        """Called after init_process_group."""
        distributed = torch.distributed
        if not distributed.is_initialized():
            return
        self.active = True
        if self._kind is None:
            self._set_kind(self._core.PROCESS_MAIN)
        if not self._settled:
            self._settle(run_agreement.winner(self._core))
        self._start = run_agreement.start(self._core, self._start)
        self._set_place(
            distributed.get_rank(),
            distributed.get_world_size(),
            self._core.PLACE_PROCESS_GROUP,
        )

    def inherits(self) -> bool:
        """Is it below a rank whose RANK and WORLD_SIZE it has? Then it is none."""
        if self._inherits is None:
            self._inherits = "RANK" in os.environ and self._core.rank_is_inherited()
        return self._inherits

    def loads_data(self) -> None:
        """Called at every fetch: in a DataLoader worker?"""
        if self._kind is not None:
            return
        info = torch.utils.data.get_worker_info()
        if info is not None:
            self.active = True
            # Each worker's seed is that of its pass and its number.
            self._set_kind(self._core.PROCESS_WORKER, info.id, info.seed - info.id)
            self._settle()

    def is_main(self) -> bool:
        return self._kind == self._core.PROCESS_MAIN

    def ends(self, clock: Clock) -> None:
        """Called once at a regular end."""
        if not self.active:
            return
        self.active = False
        self._core.finish_states()
        error = _exception_at_the_top()
        if error is None:
            clock.process_ends()
        self._control.process_ends()
        if error is None:
            self._core.record_mark(self._core.MARK_CLEAN_EXIT, 0, 0)
        else:
            self._core.record_unclean_exit(error)
        # A worker's rings are with the relay of its main process, which may be
        # waiting for the worker to end.
        if self._kind != self._core.PROCESS_WORKER:
            self._core.exit_flush()

    def _set_kind(self, kind: int, worker_id: int = 0, pass_seed: int = 0) -> None:
        self._kind = kind
        self._core.set_process_kind(kind, worker_id, pass_seed)
        if self.is_main():
            self._control.trains()

    def _settle(self, run: str = "") -> None:
        """The run's name is final: `run`, or the one that it has."""
        if not self._settled:
            self._settled = True
            self._core.settle_run(run)

    def _set_place(self, rank: int, world: int, source: int) -> None:
        local_rank = _number("LOCAL_RANK")
        local_rank = -1 if local_rank is None else local_rank
        place = (rank, world, local_rank, source, self._start)
        if self._place != place:
            self._place = place
            self._core.record_place(*place)
            if source != self._core.PLACE_SINGLE:
                self._core.show_rank(rank, world)


def _number(variable: str) -> int | None:
    value = os.environ.get(variable, "")
    return int(value) if value.isdecimal() else None


def _place_of(rank: str, world: str) -> tuple[int, int] | None:
    first, second = _number(rank), _number(world)
    return None if first is None or second is None else (first, second)


def _place_by_launcher() -> tuple[int, int] | None:
    """The place that MPI or Slurm gave to a rank that uses no process group.

    What multiprocessing started has inherited these variables. Slurm sets its
    own in a batch script too, which is no task of a step.
    """
    if multiprocessing.parent_process() is not None:
        return None
    place = _place_of("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
    if place is None and "SLURM_STEP_ID" in os.environ:
        place = _place_of("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
    return place


def _exception_at_the_top() -> BaseException | None:
    # The interpreter leaves it there.
    return getattr(sys, "last_value", None)


def _end(watch: Watch) -> None:
    watch.loaders.flush()
    watch.process.ends(watch.clock)


def _end_child(watch: Watch) -> None:
    # Children that multiprocessing forks leave by os._exit, after its
    # finalizers; lowest priority: after those of user code.
    multiprocessing.util.Finalize(
        None, functools.partial(_end, watch), exitpriority=-1000
    )


def install(watch: Watch) -> None:
    # Exit functions run last in, first out: after all of user code's.
    atexit.register(_end, watch)
    os.register_at_fork(after_in_child=watch.reset)
    multiprocessing.util.register_after_fork(watch, _end_child)
