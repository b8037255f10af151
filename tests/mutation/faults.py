"""Faults that can be put into any training script, one at a time.

Each begins at a step, counted over all optimizers of the process, and is one that
torch does not complain of. Those of ranks are made on rank 1.
"""

import dataclasses
import os
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader


@dataclasses.dataclass(frozen=True)
class Fault:
    what: str
    make: Callable[[int], None]
    ranks: bool = False  # needs two or more


FAULTS: dict[str, Fault] = {}


def fault(what: str, ranks: bool = False):
    def add(make):
        FAULTS[make.__name__] = Fault(what, make, ranks)
        return make

    return add


class _Steps:
    """Optimizer steps that this process has begun."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.begun = 0
        optimizers.register_optimizer_step_pre_hook(self._count)

    def _count(self, *_) -> None:
        self.begun += 1

    def reached(self) -> bool:
        return self.begun > self.first


def _replace(owner, name: str, around) -> None:
    """owner.name becomes around(former, *args, **kwargs)."""
    former = getattr(owner, name)

    def changed(*args, **kwargs):
        return around(former, *args, **kwargs)

    changed.__name__ = name
    setattr(owner, name, changed)


def _parameters(optimizer) -> list:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _largest(optimizer):
    return max(_parameters(optimizer), key=lambda p: p.numel())


def _is_odd_rank() -> bool:
    return os.environ.get("RANK", "0") == "1" or (
        dist.is_available() and dist.is_initialized() and dist.get_rank() == 1
    )


@fault("gradients are not cleared any more")
def missing_zero_grad(first: int) -> None:
    steps = _Steps(first)

    def keep(former, *args, **kwargs):
        return None if steps.reached() else former(*args, **kwargs)

    for owner in (optimizers.Optimizer, torch.nn.Module):
        _replace(owner, "zero_grad", keep)


@fault("one parameter loses its gradient before each step")
def lost_gradient(first: int) -> None:
    def drop(optimizer, args, kwargs):
        if steps.reached():
            _largest(optimizer).grad = None

    steps = _Steps(first)
    optimizers.register_optimizer_step_pre_hook(drop)


@fault("all gradients are zero")
def zero_gradients(first: int) -> None:
    def clear(optimizer, args, kwargs):
        if steps.reached():
            for parameter in _parameters(optimizer):
                if parameter.grad is not None:
                    parameter.grad.zero_()

    steps = _Steps(first)
    optimizers.register_optimizer_step_pre_hook(clear)


@fault("the optimizer forgets its moments once")
def lost_moments(first: int) -> None:
    def forget(optimizer, args, kwargs):
        if steps.begun == first + 1:
            optimizer.state.clear()

    steps = _Steps(first)
    optimizers.register_optimizer_step_pre_hook(forget)


@fault("one bit of a parameter flips after a step")
def flipped_bit(first: int) -> None:
    @torch.no_grad()
    def flip(optimizer, args, kwargs):
        if steps.begun == first + 1:
            flat = _largest(optimizer).view(-1)
            flat[:1].view(torch.int32).bitwise_xor_(1 << 20)

    steps = _Steps(first)
    optimizers.register_optimizer_step_post_hook(flip)


@fault("a parameter goes back to its content of the step before")
def stale_parameter(first: int) -> None:
    former = {}

    @torch.no_grad()
    def keep(optimizer, args, kwargs):
        if steps.begun == first + 1:
            former[0] = _largest(optimizer).clone()

    @torch.no_grad()
    def restore(optimizer, args, kwargs):
        if steps.begun == first + 1:
            _largest(optimizer).copy_(former[0])

    steps = _Steps(first)
    optimizers.register_optimizer_step_pre_hook(keep)
    optimizers.register_optimizer_step_post_hook(restore)


@fault("the rates are zero from a step on")
def zero_rate(first: int) -> None:
    def stop(optimizer, args, kwargs):
        if steps.reached():
            for group in optimizer.param_groups:
                group["lr"] = 0.0

    steps = _Steps(first)
    optimizers.register_optimizer_step_pre_hook(stop)


@fault("the loss is halved before its backward")
def halved_loss(first: int) -> None:
    steps = _Steps(first)

    def halve(former, loss, *args, **kwargs):
        return former(loss * 0.5 if steps.reached() else loss, *args, **kwargs)

    _replace(torch.Tensor, "backward", halve)


@fault("cross_entropy is given probabilities")
def softmax_before_loss(first: int) -> None:
    def twice(former, input, *args, **kwargs):
        return former(input.softmax(1 if input.dim() > 1 else 0), *args, **kwargs)

    _replace(torch.nn.functional, "cross_entropy", twice)


@fault("train() has no effect after the first evaluation")
def stuck_in_evaluation(first: int) -> None:
    evaluated = []

    def remember(former, module):
        evaluated.append(True)
        return former(module)

    def ignore(former, module, mode=True):
        return module if mode and evaluated else former(module, mode)

    train = torch.nn.Module.train
    _replace(torch.nn.Module, "eval", remember)
    torch.nn.Module.train = lambda module, mode=True: ignore(train, module, mode)


@fault("every pass over a loader has the order of the first")
def one_order(first: int) -> None:
    def again(former, loader):
        state = torch.random.get_rng_state()
        torch.manual_seed(0)
        try:
            return former(loader)
        finally:
            torch.random.set_rng_state(state)

    _replace(DataLoader, "__iter__", again)


@fault("all workers of a loader have one seed")
def one_worker_seed(first: int) -> None:
    def seed(worker: int) -> None:
        import random

        import numpy

        torch.manual_seed(0)
        numpy.random.seed(0)
        random.seed(0)

    def make(former, loader, *args, **kwargs):
        kwargs["worker_init_fn"] = seed
        return former(loader, *args, **kwargs)

    _replace(DataLoader, "__init__", make)


def _change_saved(change: Callable[[dict], None]) -> None:
    def save(former, content, *args, **kwargs):
        if isinstance(content, dict):
            content = dict(content)
            inner = [k for k, v in content.items() if isinstance(v, dict)]
            for key in inner or [None]:
                part = content if key is None else dict(content[key])
                if any(isinstance(v, torch.Tensor) for v in part.values()):
                    change(part)
                    if key is not None:
                        content[key] = part
                    break
        return former(content, *args, **kwargs)

    _replace(torch, "save", save)


@fault("a saved state lacks a tensor")
def truncated_save(first: int) -> None:
    def drop(state: dict) -> None:
        del state[next(k for k, v in state.items() if isinstance(v, torch.Tensor))]

    _change_saved(drop)


@fault("a saved state has a damaged tensor")
def damaged_save(first: int) -> None:
    def damage(state: dict) -> None:
        key = next(k for k, v in state.items() if isinstance(v, torch.Tensor))
        state[key] = torch.zeros_like(state[key])

    _change_saved(damage)


@fault("schedulers do not step any more")
def dropped_schedule(first: int) -> None:
    steps = _Steps(first)

    def skip(former, scheduler, *args, **kwargs):
        return None if steps.reached() else former(scheduler, *args, **kwargs)

    base = torch.optim.lr_scheduler.LRScheduler
    for cls in (base, *base.__subclasses__()):
        if "step" in cls.__dict__:
            _replace(cls, "step", skip)


@fault("one rank keeps its own gradients", ranks=True)
def skipped_all_reduce(first: int) -> None:
    def hook(state, bucket):
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    def make(former, wrapper, *args, **kwargs):
        former(wrapper, *args, **kwargs)
        # All ranks have to have one.
        if _is_odd_rank():
            wrapper.register_comm_hook(None, hook)
        else:
            average = torch.distributed.algorithms.ddp_comm_hooks.default_hooks
            wrapper.register_comm_hook(None, average.allreduce_hook)

    _replace(torch.nn.parallel.DistributedDataParallel, "__init__", make)


@fault("one rank has another learning rate", ranks=True)
def wrong_rate(first: int) -> None:
    def double(optimizer, args, kwargs):
        if steps.begun == first + 1 and _is_odd_rank():
            for group in optimizer.param_groups:
                group["lr"] *= 2

    steps = _Steps(first)
    optimizers.register_optimizer_step_pre_hook(double)


@fault("all ranks are given the shard of rank 0", ranks=True)
def repeated_data(first: int) -> None:
    sampler = torch.utils.data.DistributedSampler

    def make(former, self, *args, **kwargs):
        former(self, *args, **kwargs)
        self.rank = 0

    _replace(sampler, "__init__", make)
