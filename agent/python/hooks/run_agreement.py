"""How ranks that nobody gave a run agree on one: by their default store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Core

_KEY = "traincheck/run"


def winner(core: Core) -> str:
    """The name that all ranks of this process group use; "": this process's."""
    mine = core.provisional_run()
    if mine is None or torch.distributed.get_world_size() == 1:
        return ""
    try:
        # Sets the key only where it is not there yet; waits for nobody.
        agreed: str = _store().compare_set(_KEY, "", mine).decode()
        return agreed
    except Exception as error:
        core.log_once(
            "run agreement",
            "the ranks cannot agree on a run, set TRAINCHECK_RUN for all of them: "
            f"{type(error).__name__}: {error}",
        )
        return ""


def _store() -> Any:
    store = torch.distributed.distributed_c10d._get_default_store()
    # torchrun's own store outlives its restarts, without the prefixes that
    # tell one restart from another.
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        while isinstance(store, torch.distributed.PrefixStore):
            store = store.underlying_store
    return store
