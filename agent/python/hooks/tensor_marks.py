"""Tells a tensor from others that come to lie where it lay.

Tensors must not get weak references: torch.utils.swap_tensors refuses tensors that
have some, and `Module.to` may call it. Storages may have them: torch keeps the Python
object of a storage for as long as the storage lives. torch's StorageWeakRef would do,
but for its `__del__` in Python, where what a signal handler raises is lost.
"""

from __future__ import annotations

import weakref

import torch

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class TensorMark:
    """Of a tensor's place in its storage: views of the same place are the same."""

    __slots__ = ("_storage", "_offset")

    def __init__(self, tensor: torch.Tensor) -> None:
        """REQUIRES: has_mark(tensor)."""
        self._storage = weakref.ref(tensor.untyped_storage())
        self._offset = tensor.storage_offset()

    def place(self) -> tuple[torch.UntypedStorage | None, int]:
        """The storage, unless it is gone, and where in it the tensor lies."""
        return self._storage(), self._offset

    def is_of(self, tensor: torch.Tensor) -> bool:
        return (
            has_mark(tensor)
            and tensor.storage_offset() == self._offset
            and self._storage() is tensor.untyped_storage()
        )


def has_mark(tensor: torch.Tensor) -> bool:
    """Not those of other classes (DTensor) and layouts, which have no storage."""
    return type(tensor) in _PLAIN and tensor.layout == torch.strided
