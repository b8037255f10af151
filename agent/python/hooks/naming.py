"""Names: classes, roles, and qualified names without wrapper prefixes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.jit import ScriptModule
from torch.nn.parallel import DataParallel, DistributedDataParallel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import torch

# Children under these names are the wrapped module itself.
_TRANSPARENT = ("_orig_mod", "_fsdp_wrapped_module")


def class_name(cls: type[Any]) -> str:
    module = cls.__module__
    # A spawned child runs the script under another name.
    if module == "__mp_main__":
        module = "__main__"
    return f"{module}.{cls.__qualname__}"


def roles(cls: type[Any], method: str) -> list[str]:
    """The method's qualified names in the base classes of cls, narrow to general."""
    return [
        f"{class_name(base)}.{method}"
        for base in cls.__mro__[1:]
        if method in base.__dict__ and base is not object
    ]


def is_replicating(module: torch.nn.Module) -> bool:
    """Does it hold one model's replicas in step: DistributedDataParallel?"""
    return isinstance(module, DistributedDataParallel)


def own_class(cls: type[Any]) -> type[Any]:
    """The class as the user knows it: fully_shard and the like give a module one of
    their own making. As agent/capture/own_type.cc."""
    while _is_of_distributed(cls):
        bases = cls.__bases__
        if len(bases) != 2 or not _is_of_distributed(bases[0]):
            break
        cls = bases[1]
    return cls


def _is_of_distributed(cls: type[Any]) -> bool:
    return cls.__module__.startswith("torch.distributed.")


def subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    """All that there are now, some of them more than once."""
    for subclass in cls.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


def is_sharded(tensor: torch.Tensor) -> bool:
    """Is it a DTensor: does this process hold a part of it only?"""
    return hasattr(tensor, "_local_tensor")


def is_script(module: Any) -> bool:
    return isinstance(module, ScriptModule)


def wrapped_child(module: torch.nn.Module) -> torch.nn.Module | None:
    """The module that this one only wraps, or None."""
    if isinstance(module, (DistributedDataParallel, DataParallel)):
        return module.module
    children = module._modules
    for name in _TRANSPARENT:
        if name in children:
            return children[name]
    return None


def unwrap(module: torch.nn.Module) -> tuple[torch.nn.Module, bool]:
    """The model below all wrappers, and whether one of them is DDP."""
    replicated = False
    while not is_script(module):
        child = wrapped_child(module)
        if child is None:
            break
        replicated = replicated or is_replicating(module)
        module = child
    return module, replicated


def join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def strip_prefixes(name: str) -> str:
    """A name that torch gave inside a wrapper, as it is inside the model."""
    return ".".join(part for part in name.split(".") if part not in _TRANSPARENT)


def walk(root: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yields (path, module) below root, root first, each module once.

    Wrappers add nothing to the path. A DDP wrapper is yielded and not entered:
    what it wraps is a model of its own.
    """
    seen = set()
    todo = [("", root)]
    while todo:
        path, module = todo.pop()
        if module is None or id(module) in seen or is_script(module):
            continue
        seen.add(id(module))
        yield path, module
        if is_replicating(module):
            continue
        child = wrapped_child(module)
        if child is not None:
            todo.append((path, child))
            continue
        for name, child in reversed(list(module._modules.items())):
            todo.append((join(path, name), child))
