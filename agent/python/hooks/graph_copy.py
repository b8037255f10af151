"""What an analysis reads of a loss's graph, kept until values of a device have come.

The graph itself is freed by its backward, and kept longer it would keep the program's
memory. The copy has its nodes' names, edges, shapes and numbers, and of what they keep
the tensors that analyses read, if they are small. It answers as the nodes do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.device_values import MOST, bytes_of
from _traincheck.graph_nodes import FUSED_ATTENTION, inputs, is_of_rows, kept, walk
from _traincheck.rounded_positions import LINE, lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from torch.autograd.graph import Node

    from _traincheck.device_values import DeviceValues

_NUMBERS = (
    "alpha",
    "batch_first",
    "bidirectional",
    "blank",
    "dim",
    "dim0",
    "dim1",
    "dims",
    "end",
    "exponent",
    "ignore_index",
    "index",
    "is_causal",
    "max",
    "min",
    "padding_idx",
    "reduction",
    "reverse",
    "self_sym_sizes",
    "start",
    "weight_sym_argsize_0",
)
# Of which nodes, by the begin of their names, which tensors are read.
_TENSORS = {
    "BinaryCrossEntropy": ("target", "pos_weight", "weight"),
    "CtcLoss": ("targets", "target_lengths", "log_probs", "input_lengths"),
    "CudnnCtcLoss": ("targets", "target_lengths", "log_probs", "input_lengths"),
    "Embedding": ("indices",),
    "HuberLoss": ("target",),
    "IndexBackward": ("indices",),
    "IndexSelect": ("index",),
    "LinalgVectorNorm": ("self",),
    "MaskedSelect": ("mask",),
    "MseLoss": ("target",),
    "NllLoss": ("target", "weight", "total_weight", "self"),
    "PackPaddedSequence": ("result1",),
    "SafeSoftmax": ("result",),
    FUSED_ATTENTION: ("query", "key", "attn_mask", "attn_bias"),
    "SmoothL1Loss": ("target",),
    "SoftMarginLoss": ("target",),
    "SoftmaxBackward": ("result",),
    "Where": ("condition",),
}
# Of nodes next to the loss, unless they are large: every layer has such nodes, too.
_NEAR = {
    "BmmBackward0": ("self", "mat2"),
    "DivBackward0": ("other",),
    "DotBackward0": ("self", "tensor"),
    "ExpBackward0": ("result",),
    "GatherBackward0": ("index",),
    "MaskedFillBackward0": ("mask",),
    "MulBackward0": ("self", "other"),
}
_NEAREST = 32  # nodes
_LINES = 4  # of tables that queries and keys are multiplied by
_ERRORS = ("HuberLoss", "MseLoss", "SmoothL1Loss")
# Of a difference, to the targets most often.
_OWN_ERRORS = ("AbsBackward0", "PowBackward0")
# What is asked for its shape alone, unless it is small.
_SHAPES = frozenset(("self", "query", "key", "other"))
_OF_ATTENTION = frozenset(("result", "attn_mask", "attn_bias"))


class _Metadata:
    def __init__(self, shape: Any) -> None:
        self.shape = shape


class NodeCopy:
    def __init__(self, node: Node) -> None:
        self._name = str(node.name())
        self.next_functions: tuple[tuple[NodeCopy | None, int], ...] = ()
        results: Any = getattr(node, "_input_metadata", ())
        self._input_metadata = [_Metadata(result.shape) for result in results]
        for name in _NUMBERS:
            number = getattr(node, f"_saved_{name}", None)
            if number is not None:
                setattr(self, f"_saved_{name}", number)

    def name(self) -> str:
        return self._name


class GraphCopy:
    """At most so many nodes, the nearest to the roots first."""

    def __init__(self, roots: list[Node], most: int, values: DeviceValues) -> None:
        self._values = values
        self._left = MOST
        # Too large to be copied: of an attention, of another node that is read?
        self.left_out_attention = False
        self.left_out = False
        # What is to come: of which copy, under which name.
        self._tensors: list[torch.Tensor] = []
        self._places: list[tuple[NodeCopy, str]] = []
        nodes = list(walk(roots, most))
        activations: set[Node] = set()  # from whose results targets are subtracted
        copies = {node: NodeCopy(node) for node in nodes}
        self.roots: list[Any] = [copies[root] for root in roots]
        for number, node in enumerate(nodes):
            copies[node].next_functions = tuple(
                (copies.get(following), place)
                for following, place in node.next_functions
            )
            names = set(_names(node, number))
            if number < _NEAREST and _is_of_values(node):
                names.add("self")
                activations.update(_subtracted_from(node))
            if node in activations:
                names.add("result")
            for name in sorted(names):
                self._keep(node, copies[node], name)
        self._keep_lines(copies)

    def take_tensors(self) -> list[torch.Tensor]:
        """Those whose values fill() is to get; their memory is not kept."""
        tensors, self._tensors = self._tensors, []
        return tensors

    def fill(self, values: list[torch.Tensor]) -> None:
        for (copy, name), value in zip(self._places, values):
            setattr(copy, f"_saved_{name}", value)

    def _keep_lines(self, copies: dict[Node, NodeCopy]) -> None:
        left = _LINES
        for node, copy in copies.items():
            for line in lines_of(node)[-1:]:
                # What lies between its elements is copied, too.
                count = line.numel()
                over = line.shape.index(count)
                size = line.stride(over) * count * line.element_size()
                if self._values.is_strided(line) and size <= self._left:
                    self._left -= size
                    self._take(copy, LINE, line)
                    left -= 1
            if left == 0:
                return

    def _keep(self, node: Node, copy: NodeCopy, name: str) -> None:
        value = kept(node, name)
        if isinstance(value, (tuple, list)):
            setattr(copy, f"_saved_{name}", value)
        if type(value) is not torch.Tensor:
            return
        tensor = value.detach()
        # Its shape is known in any case.
        here = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
        setattr(copy, f"_saved_{name}", here)
        if tensor.numel() == 0 or not self._values.is_strided(tensor):
            return
        size = bytes_of(tensor)
        if size > self._left:
            if node.name() in _NEAR:
                return
            if name in _OF_ATTENTION:
                self.left_out_attention = True
            elif name not in _SHAPES:
                self.left_out = True
            return
        self._left -= size
        self._take(copy, name, tensor)

    def _take(self, copy: NodeCopy, name: str, tensor: torch.Tensor) -> None:
        if self._values.is_here(tensor):
            setattr(copy, f"_saved_{name}", tensor.clone())
        else:
            self._tensors.append(tensor)
            self._places.append((copy, name))


def _is_of_values(node: Node) -> bool:
    """Is it an error whose targets come first, or of a difference to them?"""
    if node.name() in _OWN_ERRORS:
        return any(one.name() == "SubBackward0" for one in inputs(node))
    first = node.name().startswith(_ERRORS) and node.next_functions[:1]
    return bool(first) and first[0][0] is None


def _subtracted_from(node: Node) -> list[Node]:
    differences = [one for one in inputs(node) if one.name() == "SubBackward0"]
    return [one for each in differences for one in inputs(each)]


def _names(node: Node, number: int) -> Iterator[str]:
    name = node.name()
    if name in _NEAR:
        near = number < _NEAREST and (name != "BmmBackward0" or is_of_rows(node))
        yield from _NEAR[name] if near else ()
        return
    for begin, names in _TENSORS.items():
        if name.startswith(begin):
            yield from names
