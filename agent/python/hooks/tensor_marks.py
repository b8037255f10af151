"""Tells a tensor from others that come to lie where it lay.

Tensors must not get weak references: torch.utils.swap_tensors refuses tensors that
have some, and `Module.to` may call it. Of a storage torch has weak references of its
own, which nobody is refused for.
"""

from __future__ import annotations

import torch
from torch.multiprocessing.reductions import StorageWeakRef

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class TensorMark:
    """Of a tensor's place in its storage: views of the same place are the same."""

    def __init__(self, tensor: torch.Tensor) -> None:
        """REQUIRES: has_mark(tensor)."""
        self._storage = StorageWeakRef(tensor.untyped_storage())
        self._offset = tensor.storage_offset()

    def is_of(self, tensor: torch.Tensor) -> bool:
        return (
            has_mark(tensor)
            and tensor.storage_offset() == self._offset
            and tensor.untyped_storage()._cdata == self._storage.cdata
            and not self._storage.expired()
        )


def has_mark(tensor: torch.Tensor) -> bool:
    """Not those of other classes (DTensor) and layouts, which have no storage."""
    return type(tensor) in _PLAIN and tensor.layout == torch.strided
