"""Tables of positions that are added to tokens, and counted over the samples.

A table of sines and cosines is a buffer, and leaves no trace in a graph. What the first
layer keeps of its input shows it: less the tokens' own vectors, the table remains. A
table that is cut to the number of samples gives all tokens of a text one position.
Series of numbers have no embedding: a layer that is given nothing but data projects them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import LAYER_PRODUCTS, VIEWS, Graph, factor, integer
from _traincheck.graph_nodes import saved, shape
from _traincheck.positions import dimension_of_steps

if TYPE_CHECKING:
    from torch.autograd.graph import Node

_DEPTH = 12  # nodes between an embedding and the first layer
_BRANCHES = 4
_MOST = 1 << 20  # elements of the tokens' vectors
_MOST_PRODUCTS = 1 << 24  # of numbers, for the vectors of a projection
_ROWS = 8  # samples and positions that are looked at
_LEAST = 3  # of each
_EXACT = 1e-4
_DTYPES = (torch.float32, torch.float64)
_IN_PLACE = VIEWS | {"CloneBackward0"}
_CUT = frozenset(("ExpandBackward0", "SliceBackward0", "UnsqueezeBackward0"))
# What a layer keeps of its input.
_INPUTS = {
    "AddmmBackward0": "mat1",
    "MmBackward0": "self",
    "NativeLayerNormBackward0": "input",
}


def are_of_samples(
    graph: Graph,
    embedding: Node,
    tokens: torch.Tensor,
    steps: int,
    reached: set[Node],
) -> bool | None:
    """steps: the dimension of the tokens [..., ...] that texts run along; reached: what
    was computed of them. None: no table is added to them, or it cannot be told."""
    variable = _variable(embedding.next_functions[0][0])
    if variable is None:
        return None
    if tokens.numel() * variable.shape[1] > _MOST:
        return None
    vectors = variable[tokens]
    return _Search(graph, steps, reached).at(embedding, _Path(vectors), _DEPTH)


def are_of_projected(graph: Graph, product: Node, lengths: list[int]) -> bool | None:
    """The same of a layer's product, which reads data [..., ..., numbers], and attention
    over so many positions. None, too: it reads something else."""
    for view in graph.takers(product):
        sizes = shape(view) if view.name() in VIEWS else None
        if sizes is None or len(sizes) != 3:
            continue
        steps = dimension_of_steps(sizes[:2], lengths)
        vectors = _projected(product) if steps is not None else None
        if steps is None or vectors is None or vectors.numel() != math.prod(sizes):
            continue
        path = _Path(vectors.reshape(sizes))
        return _Search(graph, steps, graph.reached_from(view)).at(view, path, _DEPTH)
    return None


def _projected(product: Node) -> torch.Tensor | None:
    given = saved(product, _INPUTS[product.name()])
    *biases, data, turned = (giver for giver, _ in product.next_functions)
    if given is None or data is not None or turned is None:
        return None
    weight = _variable(turned.next_functions[0][0]) if turned.next_functions else None
    added = [_variable(bias) for bias in biases]
    if weight is None or weight.dim() != 2 or given.shape[1:] != weight.shape[1:]:
        return None
    if given.numel() * len(weight) > _MOST_PRODUCTS:
        return None
    vectors = given @ weight.t()
    for bias in added:
        if bias is None:
            return None
        vectors = vectors + bias
    return vectors


def _variable(node: Node | None) -> torch.Tensor | None:
    """A parameter in this process's memory."""
    variable = getattr(node, "variable", None)
    if type(variable) is not torch.nn.Parameter or not variable.is_cpu:
        return None
    return variable.detach() if variable.dtype in _DTYPES else None


def reads_data(node: Node) -> bool:
    """Is it a layer's product, of something that needs no gradient?"""
    if node.name() not in LAYER_PRODUCTS or len(node.next_functions) < 2:
        return False
    return node.next_functions[-2][0] is None


class _Path:
    """What the tokens' vectors [..., ..., width] have become: (vectors + table) * scale,
    the first two dimensions exchanged or not."""

    def __init__(self, vectors: torch.Tensor) -> None:
        self.vectors = vectors
        self.scale: torch.Tensor | None = None
        self.is_added = False
        self.is_exchanged = False

    def then(self) -> _Path:
        other = _Path(self.vectors)
        other.scale, other.is_added = self.scale, self.is_added
        other.is_exchanged = self.is_exchanged
        return other

    def times(self, factor: torch.Tensor) -> bool:
        """False: that is no number, and no factor for each element."""
        if factor.dim() > 0 and factor.shape != self.vectors.shape:
            return False
        if not self.is_added:
            self.vectors = self.vectors * factor
        else:
            self.scale = factor if self.scale is None else self.scale * factor
        return True

    def table(self, given: torch.Tensor) -> torch.Tensor | None:
        """[..., ..., width]: what was added, where a layer was given this; nan: not
        known, an element was dropped."""
        first, second, width = self.vectors.shape
        if not self.is_added or given.numel() != self.vectors.numel():
            return None
        if self.is_exchanged:
            given = given.reshape(second, first, width).transpose(0, 1)
        given = given.reshape(first, second, width)[:_ROWS, :_ROWS]
        if self.scale is not None:
            scale = self.scale.expand(self.vectors.shape)[:_ROWS, :_ROWS]
            given = torch.where(scale == 0, math.nan, given / scale)
        return given - self.vectors[:_ROWS, :_ROWS]


class _Search:
    def __init__(self, graph: Graph, steps: int, reached: set[Node]) -> None:
        self._graph = graph
        self._steps = steps
        self._reached = reached

    def at(self, node: Node, path: _Path, depth: int) -> bool | None:
        if depth == 0:
            return None
        for taker in self._graph.takers(node)[:_BRANCHES]:
            found = self._through(taker, node, path.then(), depth)
            if found is not None:
                return found
        return None

    def _through(self, taker: Node, node: Node, path: _Path, depth: int) -> bool | None:
        name = taker.name()
        if name in _INPUTS:
            given = saved(taker, _INPUTS[name])
            table = None if given is None else path.table(given)
            return None if table is None else _counts_samples(table, self._steps)
        if name == "AddBackward0":
            other = _other(taker, node)
            if path.is_added or other in self._reached:
                return None
            if other is not None:
                return self._is_cut_to_samples(other, path)
            path.is_added = True
        elif name == "MulBackward0":
            times = factor(taker)
            if times is None or not path.times(times):
                return None
        elif name == "TransposeBackward0":
            dims = {integer(taker, "dim0"), integer(taker, "dim1")}
            if not dims <= {0, 1, -2, -3}:
                return None
            path.is_exchanged = not path.is_exchanged
        elif name not in _IN_PLACE:
            return None
        return self.at(taker, path, depth - 1)

    def _is_cut_to_samples(self, other: Node, path: _Path) -> bool | None:
        """Of a table that is trained: its first rows, one a sample?"""
        sizes = shape(other)
        samples = path.vectors.shape[1 - self._steps]
        rows = None
        for _ in range(len(_CUT)):
            if other.name() not in _CUT:
                break
            cut = other.name() == "SliceBackward0" and integer(other, "dim") == 0
            if cut and integer(other, "start") == 0:
                rows = integer(other, "end")
            giver = other.next_functions[0][0]
            if giver is None:
                return None
            other = giver
        variable = getattr(other, "variable", None)
        if variable is None or sizes is None or rows is None or len(sizes) != 3:
            return None
        is_first = (self._steps == 1) != path.is_exchanged  # are samples, in sums?
        if not is_first or len(variable) <= rows or sizes[1] != 1:
            return None
        return bool(rows == samples == sizes[0] and path.vectors.shape[1] > 1)


def _other(node: Node, one: Node) -> Node | None:
    first, second = (giver for giver, _ in node.next_functions)
    return second if first is one else first


def _counts_samples(table: torch.Tensor, steps: int) -> bool | None:
    """table: [..., ..., width]; None: it is not one of sines and cosines that begin
    with position 0."""
    by_sample = table if steps == 1 else table.transpose(0, 1)
    if min(by_sample.shape[:2]) < _LEAST:
        return None
    if _counts(by_sample):
        return False
    return True if _counts(by_sample.transpose(0, 1)) else None


def _counts(table: torch.Tensor) -> bool:
    """table: [lines, positions, width]: have all lines the same, and is that sin and cos
    of 0, 1, 2, ... in one column each?"""
    if not _are_alike(table):
        return False
    line = table.nan_to_num(-math.inf).amax(0)
    first = line[0]
    if bool((torch.minimum(first.abs(), (first - 1).abs()) > _EXACT).any()):
        return False
    expected = torch.arange(len(line), dtype=line.dtype)
    sines = (line - expected.sin()[:, None]).abs().amax(0) < _EXACT
    cosines = (line - expected.cos()[:, None]).abs().amax(0) < _EXACT
    return bool(sines.any()) and bool(cosines.any())


def _are_alike(table: torch.Tensor) -> bool:
    """Do all lines have the same in each place, as far as it is known, and is it known
    in each place of one?"""
    low = table.nan_to_num(math.inf).amin(0)
    high = table.nan_to_num(-math.inf).amax(0)
    return bool(((high - low).abs() < _EXACT).all())
