"""What lies in the containers of a file that was read or is written."""

from __future__ import annotations

import collections
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_DEPTH = 4  # containers within each other
# Of a container, and of all together: data may lie in files, too.
_EACH = 256
_IN_ALL = 4096


def entries_of(content: Any) -> Iterator[Any]:
    """The content itself and the first entries of its dictionaries, lists and tuples, the
    outer ones first."""
    todo = collections.deque([(content, _DEPTH)])
    left = _IN_ALL
    while todo:
        one, depth = todo.popleft()
        yield one
        if isinstance(one, (dict, list, tuple)) and depth > 0:
            inner = dict.values(one) if isinstance(one, dict) else one
            few = list(islice(inner, min(_EACH, left)))
            left -= len(few)
            todo.extend((entry, depth - 1) for entry in few)
