"""Samplers that draw by weights, one a sample, and have too few of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.utils.data import WeightedRandomSampler

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

NAME = "loader.weights_too_few"


def too_few(loader: DataLoader) -> bool | None:
    """Some samples can never be drawn. None: nothing is drawn by weights."""
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    if type(sampler) is not WeightedRandomSampler:
        return None
    try:
        return len(sampler.weights) < len(loader.dataset)
    except (TypeError, NotImplementedError):  # a data set without a length
        return None
