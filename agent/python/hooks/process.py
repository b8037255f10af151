"""What this process is: its kind, its place in the world, its end."""

import atexit
import functools
import multiprocessing.util
import os
import sys

import torch


class Process:
    def __init__(self, core):
        self._core = core
        self._kind = None
        self._place = None
        self.active = False  # has anything happened that is worth a clean exit?

    def trains(self):
        """Called when it constructs an optimizer, calls backward or binds a rank."""
        if self._kind is not None:
            return
        self.active = True
        self._set_kind(self._core.PROCESS_MAIN)
        # The variables alone make nobody a rank: children inherit them.
        rank, world = _number("RANK"), _number("WORLD_SIZE")
        if rank is not None and world is not None:
            self._set_place(rank, world, self._core.PLACE_ENVIRONMENT)

    def steps(self):
        """Called when an optimizer steps: now it must have some place."""
        if self._place is None and self.is_main():
            self._set_place(0, 1, self._core.PLACE_SINGLE)

    def binds_rank(self):
        distributed = torch.distributed
        if not distributed.is_initialized():
            return
        if self._kind is None:
            self._set_kind(self._core.PROCESS_MAIN)
        self.active = True
        self._set_place(
            distributed.get_rank(),
            distributed.get_world_size(),
            self._core.PLACE_PROCESS_GROUP,
        )

    def loads_data(self):
        """Called at every fetch: in a DataLoader worker?"""
        if self._kind is not None:
            return
        info = torch.utils.data.get_worker_info()
        if info is not None:
            self.active = True
            self._set_kind(self._core.PROCESS_WORKER, info.id)

    def is_main(self):
        return self._kind == self._core.PROCESS_MAIN

    def ends(self, clock):
        """Called once at a regular end."""
        if not self.active:
            return
        self.active = False
        if not _ends_by_exception():
            clock.end()
            self._core.record_mark(self._core.MARK_CLEAN_EXIT, 0, 0)
        # A worker's rings are with the relay of its main process, which may be
        # waiting for the worker to end.
        if self._kind != self._core.PROCESS_WORKER:
            self._core.exit_flush()

    def _set_kind(self, kind, worker_id=0):
        self._kind = kind
        self._core.set_process_kind(kind, worker_id)

    def _set_place(self, rank, world, source):
        local_rank = _number("LOCAL_RANK")
        place = (rank, world, -1 if local_rank is None else local_rank, source)
        if self._place != place:
            self._place = place
            self._core.record_place(*place)


def _number(variable):
    value = os.environ.get(variable, "")
    return int(value) if value.isdecimal() else None


def _ends_by_exception():
    # The interpreter leaves it there when an exception reaches the top.
    return getattr(sys, "last_value", None) is not None


def _end(watch):
    watch.loaders.flush()
    watch.process.ends(watch.clock)


def _end_child(watch):
    # Children that multiprocessing forks leave by os._exit, after its
    # finalizers; lowest priority: after those of user code.
    multiprocessing.util.Finalize(
        None, functools.partial(_end, watch), exitpriority=-1000
    )


def install(watch):
    # Exit functions run last in, first out: after all of user code's.
    atexit.register(_end, watch)
    os.register_at_fork(after_in_child=watch.reset)
    multiprocessing.util.register_after_fork(watch, _end_child)
