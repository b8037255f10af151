"""How ranks agree by their default store: on a run, if nobody gave them one, and
on what tells their start from every other start of the same run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Core

_RUN = "traincheck/run"
_START = "traincheck/start"


def winner(core: Core) -> str:
    """The name that all ranks of this process group use; "": this process's."""
    mine = core.provisional_run()
    if mine is None or torch.distributed.get_world_size() == 1:
        return ""
    try:
        return _agree(_store_of_all_restarts(), _RUN, mine)
    except Exception as error:
        core.log_once(
            "run agreement",
            "the ranks cannot agree on a run, set TRAINCHECK_RUN for all of them: "
            f"{type(error).__name__}: {error}",
        )
        return ""


def start(core: Core, mine: str) -> str:
    """The nonce of this start, equal on all ranks of its process group and on no
    other's; "": it has none. `mine`: that of a process that had a group before.

    A process stays in the start that it began with. Ranks that join a group of
    such processes take over theirs if one of them asks the store first.
    """
    if torch.distributed.get_world_size() == 1:
        return mine
    try:
        agreed = _agree_in_start(_START, mine or os.urandom(16).hex())
    except Exception as error:
        core.log_once(
            "start agreement",
            "the ranks cannot agree on a name of their start, give each start its "
            f"own TRAINCHECK_RUN: {type(error).__name__}: {error}",
        )
        return mine
    return mine or agreed


def differs(core: Core, what: str, key: str, value: str) -> float | None:
    """1: a rank of this start has said another value first by this key; None: the store
    is gone. what: is compared, in words."""
    first = said_first(core, what, key, value)
    return None if first is None else float(first != value)


def repeats(core: Core, what: str, key: str, value: str) -> bool | None:
    """Has another rank said the same first by this key? None: this one was the first, or
    the store is gone. what: is compared, in words."""
    mine = f"{torch.distributed.get_rank()} {value}"
    said = said_first(core, what, key, mine)
    if said is None or said == mine:
        return None
    return said.split(" ", 1)[1] == value


def said_first(core: Core, what: str, key: str, value: str) -> str | None:
    """What the first rank that used this key has said; None: the store is gone. what: is
    compared, in words."""
    try:
        return _agree_in_start(f"traincheck/{key}", value)
    except RuntimeError as error:
        core.log_once(what, f"{what} are not compared: {error}")
        return None


def _agree_in_start(key: str, mine: str) -> str:
    # torchrun may give one store, without prefixes, to all its restarts.
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    world = torch.distributed.get_world_size()
    store = torch.distributed.distributed_c10d._get_default_store()
    return _agree(store, f"{key}/{restart}/{world}", mine)


def _agree(store: Any, key: str, mine: str) -> str:
    # Sets the key only where it is not there yet; waits for nobody.
    agreed: str = store.compare_set(key, "", mine).decode()
    return agreed


def _store_of_all_restarts() -> Any:
    store = torch.distributed.distributed_c10d._get_default_store()
    # torchrun's own store outlives its restarts, without the prefixes that
    # tell one restart from another.
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        while isinstance(store, torch.distributed.PrefixStore):
            store = store.underlying_store
    return store
