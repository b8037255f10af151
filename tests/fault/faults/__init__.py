"""All kinds of fault, one file a family."""

from faults import (
    daemon,
    daemon_disk,
    files,
    limits,
    network,
    rank,
    relay,
    restart,
    tools,
    versions,
)
from faults.base import Fault


def _kinds():
    modules = (
        daemon,
        daemon_disk,
        relay,
        rank,
        restart,
        tools,
        network,
        files,
        limits,
        versions,
    )
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Fault) and value.name:
                yield value


KINDS = {kind.name: kind for kind in _kinds()}
