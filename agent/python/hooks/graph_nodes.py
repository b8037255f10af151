"""Nodes of autograd's graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from torch.autograd.graph import Node


def inputs(node: Node) -> list[Node]:
    """Nodes of what it was given, as far as they need a gradient."""
    return [following for following, _ in node.next_functions if following is not None]


def dimension(node: Node, sizes: tuple[int, ...]) -> int | None:
    """The one that it was computed over, from 0 on; None: not known."""
    saved = getattr(node, "_saved_dim", None)
    if type(saved) is not int:
        return None
    return (
        saved if saved < 2**63 else saved - 2**64 + len(sizes)
    )  # read as unsigned


def shape(node: Node) -> tuple[int, ...] | None:
    """Of what it computed; None: not known, or of several results."""
    metadata: Any = getattr(node, "_input_metadata", ())
    if len(metadata) != 1:
        return None
    try:
        return tuple(int(size) for size in metadata[0].shape)
    except (RuntimeError, TypeError):  # nested tensors have no sizes
        return None
