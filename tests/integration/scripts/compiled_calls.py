"""Compiled functions that call much of torch, each with and without breaks.

Prints what comes out, errors of the compiler included, and where graphs broke.
"""

import os
import tempfile

import torch
import torch._dynamo.utils
import torch.distributed as dist
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.rest = nn.Sequential(nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 4))

    def forward(self, x):
        return self.rest(self.first(x))


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def train_mode(x):
    net.train()
    return net(x).sum()


def eval_mode(x):
    net.eval()
    return net(x).sum()


def clear_through_module(x):
    net.zero_grad()
    return net(x).sum()


def clear_through_optimizer(x):
    optimizer.zero_grad()
    return net(x).sum()


def state_dict(x):
    return net(x).sum() + net.state_dict()["first.weight"].sum()


def contexts(x):
    with torch.no_grad():
        y = net(x).sum()
    with torch.enable_grad(), torch.set_grad_enabled(False):
        return y + net(x).sum()


@torch.no_grad()
def decorated(x):
    return net(x).sum()


def clip(x):
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    nn.utils.clip_grad_value_([x], 1.0)
    return x.sum()


def reduce(x):
    y = x.clone()
    dist.all_reduce(y)
    return y.sum()


def backward(x):
    net(x).sum().backward()
    torch.autograd.backward([net(x).sum()])
    return x.sum()


def step(x):
    loss = net(x).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def attempt(function, full):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    compiled = torch.compile(function, fullgraph=full, backend="eager")
    try:
        result = compiled(torch.ones(3, 4)).item().hex()
    except Exception as error:
        result = type(error).__name__
    breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    print(function.__name__, full, result, breaks, flush=True)


def train_replicated(compile_outside):
    """DistributedDataParallel below or above the compiled module."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    if compile_outside:
        model = nn.parallel.DistributedDataParallel(Net())
        model = torch.compile(model, backend="eager")
    else:
        model = torch.compile(Net(), backend="eager")
        model = nn.parallel.DistributedDataParallel(model)
    adam = torch.optim.Adam(model.parameters())
    for _ in range(3):
        adam.zero_grad()
        loss = model(torch.randn(3, 4)).square().sum()
        loss.backward()
        adam.step()
        print("ddp", compile_outside, loss.item().hex(), flush=True)
    breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    print("ddp", compile_outside, "breaks", breaks)


def main():
    torch.set_num_threads(1)
    for function in (
        train_mode,
        eval_mode,
        clear_through_module,
        clear_through_optimizer,
        state_dict,
        contexts,
        decorated,
        clip,
        reduce,
        backward,
        step,
    ):
        for full in (False, True):
            attempt(function, full)
    train_replicated(compile_outside=False)
    train_replicated(compile_outside=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{os.path.join(folder, 'store')}",
            rank=0,
            world_size=1,
        )
        main()
        dist.destroy_process_group()
