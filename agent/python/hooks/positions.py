"""Positions of tokens that are counted over the samples of a batch.

Embeddings of positions are added to those of tokens. Counted along the wrong dimension,
all tokens of a text have one position, and each text of the batch another one. What
attention mixes is the dimension of the positions; where both dimensions have one size,
targets that are the following tokens tell them apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from typing import Any

# Name of the scalar.
NAME = "loss.positions_of_samples"


def dimension_of_steps(sizes: tuple[int, ...], lengths: list[int]) -> int | None:
    """The one of tokens of these sizes that attention over so many positions mixes;
    None: it cannot be told."""
    found = {sizes.index(length) for length in lengths if sizes.count(length) == 1}
    return found.pop() if len(found) == 1 else None


def are_of_samples(
    indices: torch.Tensor, rows: int | None, tokens: torch.Tensor, steps: int
) -> bool | None:
    """indices: of another embedding, of so many rows; steps: the dimension of the tokens
    [..., ...] that texts run along. None: these are no positions, or each sample may have
    a row of its own."""
    sizes: Any = tuple(tokens.shape)
    counted = _dimension(indices, sizes)
    if counted is None or counted == steps:
        return None if counted is None else False
    return None if rows == sizes[counted] else True


def _dimension(indices: torch.Tensor, sizes: tuple[int, int]) -> int | None:
    """Along which they count from 0 on; None: along none."""
    if indices.dim() not in (1, 2) or indices.numel() < 2:
        return None
    table = indices if indices.dim() == 2 else indices[None]
    if table.shape[0] not in (1, sizes[0]) or table.shape[1] not in (1, sizes[1]):
        return None
    for over, line in ((0, table[:, :1]), (1, table[:1])):
        count = sizes[over]
        if line.numel() != count or count < 2:
            continue
        if not torch.equal(line.flatten(), torch.arange(count, dtype=line.dtype)):
            continue
        if bool((table == line).all()):
            return over
    return None
