"""Parts of a data set, as torch's Subset and random_split make them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.utils.data import Subset

if TYPE_CHECKING:
    from typing import Any


def whole_of(data: Any) -> Any:
    """What it is a part of, or itself."""
    while isinstance(data, Subset):
        data = data.dataset
    return data
