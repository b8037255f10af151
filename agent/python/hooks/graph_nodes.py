"""Nodes of autograd's graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from torch.autograd.graph import Node


def inputs(node: Node) -> list[Node]:
    """Nodes of what it was given, as far as they need a gradient."""
    return [following for following, _ in node.next_functions if following is not None]


def shape(node: Node) -> tuple[int, ...] | None:
    """Of what it computed; None: not known, or of several results."""
    metadata: Any = getattr(node, "_input_metadata", ())
    if len(metadata) != 1:
        return None
    try:
        return tuple(int(size) for size in metadata[0].shape)
    except (RuntimeError, TypeError):  # nested tensors have no sizes
        return None
