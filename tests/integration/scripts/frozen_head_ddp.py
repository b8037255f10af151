"""Transfer learning: a frozen backbone, a new head, two data-parallel ranks.

The optimizer is to get what is trainable. The author has the filter the wrong
way round: it gets the frozen backbone, and `step` updates nothing, without an
error. With --healthy the filter is right.
"""

import argparse
import time

import two_ranks

if __name__ == "__main__":
    two_ranks.start_unless_started()

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def make_backbone(prefix, width):
    modules = {}
    inputs = 12
    for number in range(2):
        modules[f"{prefix}_{number}"] = nn.Linear(inputs, width)
        modules[f"{prefix}_{number}_act"] = nn.ReLU()
        inputs = width
    backbone = nn.Sequential()
    for name, module in modules.items():
        backbone.add_module(name, module)
    return backbone


class Transfer(nn.Module):
    def __init__(self, prefix, width, classes):
        super().__init__()
        self.backbone = make_backbone(prefix, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.backbone(x))


def freeze(module):
    for parameter in module.parameters():
        parameter.requires_grad = False


def build_optimizer(name, parameters):
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=0.1)
    if name == "momentum":
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    if name == "adam":
        return torch.optim.Adam(parameters, lr=1e-2)
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=1e-2)
    return torch.optim.RMSprop(parameters, lr=1e-3)


def data(rank, seed, classes, batch_size):
    generator = torch.Generator().manual_seed(seed * 31 + rank)
    centres = torch.randn(classes, 12, generator=torch.Generator().manual_seed(seed))
    while True:
        labels = torch.randint(classes, (batch_size,), generator=generator)
        noise = torch.randn(batch_size, 12, generator=generator)
        yield centres[labels] + noise, labels


def train(options):
    rank = dist.get_rank()
    torch.manual_seed(options.model_seed)
    net = Transfer(options.name_prefix, options.width, options.classes)
    freeze(net.backbone)
    model = nn.parallel.DistributedDataParallel(net)
    if options.healthy:
        chosen = [p for p in model.parameters() if p.requires_grad]
    else:
        chosen = [p for p in model.parameters() if not p.requires_grad]
    optimizer = build_optimizer(options.optimizer, chosen)
    source = data(rank, options.model_seed, options.classes, options.batch_size)
    for step in range(options.steps):
        x, labels = next(source)
        model.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.5f}", flush=True)
        time.sleep(options.sleep)


def start(options):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        train(options)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--steps", type=int, default=20)
    cli.add_argument("--healthy", action="store_true")
    cli.add_argument("--optimizer", default="adam")
    cli.add_argument("--model-seed", type=int, default=0)
    cli.add_argument("--name-prefix", default="stage")
    cli.add_argument("--width", type=int, default=20)
    cli.add_argument("--classes", type=int, default=6)
    cli.add_argument("--batch-size", type=int, default=16)
    cli.add_argument("--sleep", type=float, default=0.0)
    start(cli.parse_args())
