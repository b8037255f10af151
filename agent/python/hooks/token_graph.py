"""What a loss's graph says of sequences of tokens.

The embedding keeps the tokens that a model is given, the loss those that it is to
predict, and attention what each position sees: together they say whether the answer
is among what is given. Values are read at the first backwards and now and then later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck import added_positions
from _traincheck import attention
from _traincheck import mixed_rows
from _traincheck import packed_lengths
from _traincheck import packed_texts
from _traincheck import padded_means
from _traincheck import padded_states
from _traincheck import padded_targets
from _traincheck import positions
from _traincheck import prompt_ends
from _traincheck import raw_inputs
from _traincheck import row_orders
from _traincheck import variational_noise
from _traincheck.attention import SelfAttention
from _traincheck.batch_axis import goes_step_by_step
from _traincheck.batch_axis import is_mixed, is_over_batch, is_pooled_over_batch
from _traincheck.batch_axis import is_summed, keeps_one_of
from _traincheck.batch_axis import labelled_samples, pooled_weights
from _traincheck.batch_axis import softmax_sizes, steps_and_sequences
from _traincheck.causal_recurrences import reads_each_step
from _traincheck.findings import Findings
from _traincheck.graph_nodes import NLL, Graph, dimension, integer, saved
from _traincheck.graph_nodes import saved_shape, shape
from _traincheck.token_pairs import Pairs

if TYPE_CHECKING:
    from torch.autograd.graph import Node

    from _traincheck.attention import Attention
    from _traincheck.row_orders import RowOrders

MAX_NODES = 4096
_MOST_EMBEDDINGS = 16  # whose tokens are looked at
_NO_REDUCTION = 0
_EMBEDDING = "EmbeddingBackward0"
_SUMS = frozenset(("MeanBackward1", "SumBackward1"))
# What may put vectors at the positions of others.
_MOVES = frozenset(("CatBackward0", "ConstantPadNdBackward0", "CopySlices"))
_LABELLED = NLL | {
    "BinaryCrossEntropyBackward0",
    "BinaryCrossEntropyWithLogitsBackward0",
    "MseLossBackward0",
    "SmoothL1LossBackward0",
}

SEES_TARGETS = "loss.sees_targets"
LATER_ONLY = "loss.sees_later_only"
REPEATS_INPUT = "loss.repeats_input"
SHIFTS_TWICE = "loss.shifts_twice"
LEARNS_PADDING = "loss.learns_padding"
MASK_INVERTED = "loss.mask_inverted"
MASK_OF_ONES = "loss.mask_of_ones"
SEES_PADDING = "loss.attends_to_padding"
OVER_BATCH = "loss.weighs_over_samples"
SAMPLES_AS_STEPS = "loss.samples_as_steps"


def findings(roots: list[Node], orders: RowOrders) -> Findings:
    return _Sequences(roots, orders).findings()


class _Sequences:
    def __init__(self, roots: list[Node], orders: RowOrders) -> None:
        self._orders = orders
        self._embeddings: list[Node] = []
        self._projections: list[Node] = []  # products that are given data
        self._losses: list[Node] = []
        self._labelled: list[Node] = []  # losses of other kinds, too
        self._attention: list[SelfAttention] = []
        self._attention_to_others: list[Attention] = []
        # The dimension of tokens that texts run along, as their targets show it.
        self._steps: dict[Node, int] = {}
        self._sums: list[Node] = []  # and means, over positions or others
        # Sizes of softmaxes, and the dimensions that they are taken over.
        self._weights: dict[Node, tuple[tuple[int, ...], int]] = {}
        # Such sizes and dimensions, and the dimension that their sum runs over.
        self._pooled: list[tuple[tuple[int, ...], int, int]] = []
        # Of recurrences: (steps, sequences).
        self._recurrences: dict[Node, tuple[int, int]] = {}
        self._samples: set[int] = set()  # numbers of labels, one a sample
        self._shifts: set[int] = set()  # how far targets lie ahead of the tokens
        # Of losses whose targets are the tokens one step ahead: does the attention of
        # each embedding of them show the targets?
        self._shows: dict[Node, list[bool | None]] = {}
        self._later = False  # do they show nothing else, for one of these losses?
        self._repeated: set[Node] = set()  # losses of the tokens themselves
        self._found = Findings()
        self._graph = Graph(roots, MAX_NODES)
        for node in self._graph.nodes:
            self._found.at = node
            name = node.name()
            if name == _EMBEDDING:
                self._embeddings.append(node)
            elif name in _LABELLED:
                self._see_loss(node)
            else:
                self._see_layer(node)
                self._found.add(
                    mixed_rows.NAME, mixed_rows.mixes(node, self._graph, self._samples)
                )
                for raw, value in raw_inputs.findings(node).items():
                    self._found.add(raw, value)

    def _see_loss(self, node: Node) -> None:
        if node.name() in NLL:
            self._losses.append(node)
        self._labelled.append(node)
        samples = labelled_samples(node)
        if samples is not None:
            self._samples.add(samples)

    def _see_layer(self, node: Node) -> None:
        if added_positions.reads_data(node):
            self._projections.append(node)
        if node.name() in _SUMS:
            self._sums.append(node)
            pooled = pooled_weights(node)
            if pooled is not None:
                self._pooled.append(pooled)
        found = attention.find(node)
        if isinstance(found, SelfAttention):
            found.find_masks(self._graph)
            self._attention.append(found)
        elif found is not None:
            self._attention_to_others.append(found)
        weights = softmax_sizes(node)
        if weights and not is_summed(self._graph, node, weights[1]):
            self._weights[node] = weights
        recurrence = steps_and_sequences(node)
        if recurrence is not None:
            self._recurrences[node] = recurrence

    def findings(self) -> Findings:
        for one in self._attention:
            self._found.at = one.node
            self._found.add(MASK_OF_ONES, one.adds_ones())
        for embedding, tokens in self._tables_of_tokens():
            if tokens.dim() == 2:
                reached = self._graph.reached_from(embedding)
                attended = [one for one in self._attention if one.keys in reached]
                self._see_tokens(embedding, tokens, attended, reached)
                self._see_texts(self._orders.texts_in(tokens), attended)
                self._see_positions(embedding, tokens, attended, reached)
                apart = self._orders.are_apart(tokens, self._labelled, reached)
                self._found.add(row_orders.NAME, apart)
                for rows in padded_states.tables(embedding, tokens):
                    self._see_padding(embedding, rows, attended, reached)
        self._see_projections()
        self._see_shown_targets()
        if self._shifts:
            # Further heads may predict what comes later still.
            self._found.add(SHIFTS_TWICE, 1 not in self._shifts)
        for samples in self._samples:
            self._see_samples(samples)
        self._found.join(variational_noise.findings(self._graph))
        return self._found

    def _tables_of_tokens(self) -> list[tuple[Node, torch.Tensor]]:
        """Embeddings with their tokens, the most tokens first."""
        read = [(node, saved(node, "indices")) for node in self._embeddings]
        tables = [(node, tokens) for node, tokens in read if tokens is not None]
        tables.sort(key=lambda table: -int(table[1].numel()))
        return tables[:_MOST_EMBEDDINGS]

    def _see_shown_targets(self) -> None:
        """An encoder may see all that its decoder, which must not, is to predict."""
        self._found.at = self._attention[0].node if self._attention else None
        for loss, shows in self._shows.items():
            known = [one for one in shows if one is not None]
            if known and (len(known) == len(shows) or not all(known)):
                # A mask that is the wrong way around says more than none.
                is_inverted = all(known) and self._later
                self._found.add(SEES_TARGETS, None if is_inverted else all(known))
                self._found.add(LATER_ONLY, is_inverted)
            if known:
                self._found.add(REPEATS_INPUT, False)
        for loss in self._repeated:
            if loss not in self._shows:
                self._found.at = loss
                self._found.add(REPEATS_INPUT, True)

    def _see_tokens(
        self,
        embedding: Node,
        tokens: torch.Tensor,
        attended: list[SelfAttention],
        reached: set[Node],
    ) -> None:
        padding = integer(embedding, "padding_idx")
        if padding is not None and padding >= 0:
            others = (o for o in self._attention_to_others if o.keys in reached)
            for one in (*attended, *others):
                self._found.at = one.node
                self._found.add(MASK_INVERTED, _is_inverted(one, tokens != padding))
            later = reached
            if not attended:
                later = self._reached_by_recurrences(tokens.shape[1], reached)
            self._see_pooling(tokens != padding, later)
        for loss in self._losses:
            targets = saved(loss, "target")
            if targets is None:
                continue
            if padding is not None and padding >= 0:
                counted = _counts(loss, embedding, targets, padding)
            else:
                counted = _counts_filling(loss, embedding, targets, tokens)
            self._found.at = loss
            self._found.add(LEARNS_PADDING, counted)
            for steps in (1, 0):
                pairs = Pairs(tokens, targets, loss, by_steps=steps == 0)
                if self._compare(pairs, attended, embedding, reached):
                    self._steps[embedding] = steps

    def _see_padding(
        self,
        embedding: Node,
        tokens: torch.Tensor,
        attended: list[SelfAttention],
        reached: set[Node],
    ) -> None:
        """tokens: [samples, positions]."""
        is_token = padded_states.is_token(embedding, tokens)
        self._found.add(padded_states.NOT_PADDING, is_token)
        real = padded_states.real_tokens(embedding, tokens)
        if real is None:
            return
        samples, steps = real.shape
        read = padded_states.is_read(self._graph, reached, samples, steps)
        self._found.add(padded_states.NAME, read)
        later = {one: at for one, at in self._recurrences.items() if one in reached}
        self._found.at = next(iter(later), None)
        swapped = goes_step_by_step(self._graph, later, samples, steps)
        self._found.add(SAMPLES_AS_STEPS, swapped)
        for loss in self._losses:
            if loss in reached:
                self._found.at = loss
                self._found.add(LEARNS_PADDING, padded_targets.counts(loss, real))
        packed = packed_lengths.belong_to_others(embedding, real, reached)
        self._found.add(packed_lengths.NAME, packed)
        for one in attended:
            self._found.at = one.node
            inverted = _is_inverted(one, real)
            self._found.add(MASK_INVERTED, inverted)
            # A mask that is the wrong way around says more than one that is missing.
            sees = None if inverted else one.sees_padding(real)
            self._found.add(SEES_PADDING, sees)

    def _see_texts(
        self, texts: torch.Tensor | None, attended: list[SelfAttention]
    ) -> None:
        """texts: the number of its text for each token, of rows that hold several."""
        if texts is not None:
            for one in attended:
                self._found.at = one.node
                self._found.add(packed_texts.NAME, packed_texts.sees_others(one, texts))

    def _see_positions(
        self,
        embedding: Node,
        tokens: torch.Tensor,
        attended: list[SelfAttention],
        reached: set[Node],
    ) -> None:
        """Beside these tokens, of either order."""
        lengths = [one.length for one in attended]
        steps = positions.dimension_of_steps(tuple(tokens.shape), lengths)
        if steps is None and attended:
            steps = self._steps.get(embedding)
        if steps is None:
            return
        added = added_positions.are_of_samples(
            self._graph, embedding, tokens, steps, reached
        )
        self._found.add(positions.NAME, added)
        for other in self._embeddings:
            indices = saved(other, "indices") if other is not embedding else None
            if indices is not None:
                rows = integer(other, "weight_sym_argsize_0")
                found = positions.are_of_samples(indices, rows, tokens, steps)
                self._found.add(positions.NAME, found)
                if indices.shape == tokens.shape:
                    self._see_texts(packed_texts.texts_of(indices), attended)

    def _see_projections(self) -> None:
        """Of series of numbers, which have no embedding."""
        for product in self._projections[:_MOST_EMBEDDINGS] if self._attention else ():
            reached = self._graph.reached_from(product)
            lengths = [one.length for one in self._attention if one.keys in reached]
            self._found.at = product
            found = added_positions.are_of_projected(self._graph, product, lengths)
            self._found.add(positions.NAME, found)

    def _reached_by_recurrences(self, steps: int, reached: set[Node]) -> set[Node]:
        """What recurrences reach that go through so many steps of what was reached."""
        starts = (
            node
            for node, (through, _) in self._recurrences.items()
            if node in reached and steps == through
        )
        return set().union(*map(self._graph.reached_from, starts))

    def _see_pooling(self, real: torch.Tensor, reached: set[Node]) -> None:
        for node in self._sums:
            if node in reached:
                self._found.at = node
                self._found.add(padded_means.POOLS, padded_means.pools(node, real))

    def _compare(
        self,
        pairs: Pairs,
        attended: list[SelfAttention],
        embedding: Node,
        reached: set[Node],
    ) -> bool:
        """Are the targets the tokens that follow?"""
        beside = [one for one in attended if one.length == pairs.steps]
        counted = pairs.where_equal(ahead=1)
        if counted is not None:
            self._shifts.add(1)
            self._found.add(prompt_ends.NAME, self._skips_first(pairs, counted))
            first = None if pairs.are_weighed else counted[0]
            shows = [one.shows_targets(first) for one in beside]
            later = [one.sees_later_only() for one in beside]
            self._later = self._later or (bool(later) and all(later))
            known = bool(shows) and None not in shows
            self._shows.setdefault(pairs.loss, []).append(all(shows) if known else None)
            return True
        # Padding may stand in the place of the last token, which is not given.
        counted = pairs.where_equal(ahead=1, but_ends=True)
        if counted is not None:
            self._found.add(prompt_ends.NAME, self._skips_first(pairs, counted))
        if pairs.where_equal(ahead=2) is not None:
            self._shifts.add(2)
            return False
        if pairs.are_repeated() and self._reads_each(pairs, beside, embedding, reached):
            self._repeated.add(pairs.loss)
        return False

    def _reads_each(
        self,
        pairs: Pairs,
        beside: list[SelfAttention],
        embedding: Node,
        reached: set[Node],
    ) -> bool:
        """Is each target predicted by the tokens up to its own?"""
        if any(_moves(node, pairs.steps) for node in reached):
            return False
        if beside:
            return all(one.looks_ahead() is False for one in beside)
        return reads_each_step(pairs.loss, embedding, pairs.given.numel())

    def _skips_first(self, pairs: Pairs, counted: torch.Tensor) -> bool | None:
        """counted: of the targets, which are the tokens that follow."""
        if pairs.are_weighed:
            weights = pairs.weights(self._graph)
            if weights is None:
                return None
            counted = counted & (weights[:, : counted.shape[1]] != 0)
        return self._orders.prompt_ends.look(pairs.given, counted)

    def _see_samples(self, samples: int) -> None:
        for self._found.at, (sizes, over) in self._weights.items():
            self._found.add(OVER_BATCH, is_over_batch(sizes, over, samples))
        self._found.at = None
        for sizes, over, summed in self._pooled:
            mixed = is_pooled_over_batch(sizes, over, summed, samples)
            self._found.add(OVER_BATCH, mixed)
        for self._found.at, (steps, sequences) in self._recurrences.items():
            self._see_mixed(steps, sequences, samples)
        for one in self._attention:
            self._found.at = one.node
            if len(one.sizes) == 4:  # [sequences, heads, steps, steps]
                self._see_mixed(one.length, one.sizes[0], samples)

    def _see_mixed(self, steps: int, sequences: int, samples: int) -> None:
        mixed = is_mixed(steps, sequences, samples)
        if mixed:
            of_batch = self._orders.gives_targets(samples)
            # Each step may have a label of its own, for all sequences together.
            mixed = keeps_one_of(self._graph, steps, sequences, of_batch) or None
        self._found.add(SAMPLES_AS_STEPS, mixed)


def _is_inverted(one: Attention, real: torch.Tensor) -> bool | None:
    """real: bool[sequences, keys]. None: no mask tells some of the keys apart."""
    keys = one.keys_seen(len(real))
    if keys is None or keys.shape != real.shape:
        return None
    both = real.any(1) & ~real.all(1) & ~keys.all(1)
    if int(both.sum()) < 2:
        return None
    return bool((keys[both] != real[both]).all())


def _moves(node: Node, steps: int) -> bool:
    """Does it put vectors in front of others, along so many positions?"""
    sizes = shape(node) if node.name() in _MOVES else None
    if sizes is None:
        return False
    over = dimension(node, sizes)
    if over is None:
        return steps in sizes[:-1]
    return over < len(sizes) - 1 and sizes[over] == steps


def _counts(
    loss: Node, embedding: Node, targets: torch.Tensor, padding: int
) -> bool | None:
    """Is padding at the ends of the sequences among what the loss is about? None:
    its classes are other ones than the tokens."""
    classes = _classes(loss)
    if classes is None or classes != integer(embedding, "weight_sym_argsize_0"):
        return None
    weight = saved(loss, "weight")
    if integer(loss, "reduction") == _NO_REDUCTION:
        return None  # the script may weigh its elements
    if weight is not None and float(weight[padding]) == 0:
        return False
    if integer(loss, "ignore_index") == padding:
        return False
    return bool((targets == padding).any())


def _counts_filling(
    loss: Node, embedding: Node, targets: torch.Tensor, tokens: torch.Tensor
) -> bool | None:
    """The same where nothing but its place tells padding: is it to be predicted where
    it is given? None: there is none, or it is not counted."""
    padding = padded_states.padding_of(embedding, tokens)
    if padding is None or len(tokens) == 0 or targets.numel() % len(tokens) != 0:
        return None
    grid = targets.reshape(len(tokens), -1)
    given = tokens[:, : grid.shape[1]]
    if (
        given.shape != grid.shape
        or int(((grid == padding) & (given == padding)).sum()) < 2
    ):
        return None
    return _counts(loss, embedding, targets, padding)


def _classes(loss: Node) -> int | None:
    scores = saved_shape(loss, "self")
    if not scores:
        return None
    return scores[1 if len(scores) > 1 else 0]
