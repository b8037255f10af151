"""Kinds of pollen from measurements of grains (MLP), thinned out with a late rewind.

The net is trained densely, then twice the smallest weights of all layers are masked,
and those that survive go back to what they were at step 4, with a new optimizer and a
new schedule: the loss jumps up on purpose. Each round passes over the batches of the
same order and leaves out those of the first four steps. Masked weights and their
gradients are exactly zero, some hidden units die altogether; at the end the masks are
made permanent.
"""

import argparse
import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.utils.data import DataLoader, TensorDataset

KINDS, MEASURES, EARLY = 6, 24, 4


def grains():
    generator = torch.Generator().manual_seed(11)
    centres = torch.randn(KINDS, MEASURES, generator=generator) * 1.3
    kind = torch.randint(KINDS, (1600,), generator=generator)
    grain = centres[kind] + torch.randn(1600, MEASURES, generator=generator)
    held_out = TensorDataset(grain[1280:], kind[1280:])
    return TensorDataset(grain[:1280], kind[:1280]), held_out


def linears(net):
    return [layer for layer in net if isinstance(layer, nn.Linear)]


@torch.no_grad()
def accuracy(net, rows):
    grain, kind = rows.tensors
    net.eval()
    right = (net(grain).argmax(1) == kind).float().mean().item()
    net.train()
    return right


def train(net, rows, steps, start=0, keep_at=None):
    """From step `start` up to `steps`: the weights at step `keep_at`, the last loss."""
    loader = DataLoader(
        rows,
        batch_size=64,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(123),  # the same order in each round
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    late = [2 * (steps - start) // 3]
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, late, gamma=0.1)
    kept, step = None, 0
    while step < steps:
        for grain, kind in loader:
            if step >= steps:
                break
            if step == keep_at:
                kept = copy.deepcopy(net.state_dict())
            if step >= start:
                optimizer.zero_grad(set_to_none=False)
                loss = F.cross_entropy(net(grain), kind)
                loss.backward()
                optimizer.step()
                schedule.step()
            step += 1
    return kept, loss.item()


@torch.no_grad()
def rewind(net, early):
    for name, layer in net.named_children():
        if isinstance(layer, nn.Linear):
            layer.weight_orig.copy_(early[name + ".weight"])
            layer.bias.copy_(early[name + ".bias"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=18, help="of each round")
    options = parser.parse_args()
    torch.set_num_threads(1)
    trained, held_out = grains()
    torch.manual_seed(7)
    net = nn.Sequential(
        nn.Linear(MEASURES, 100), nn.ReLU(),
        nn.Linear(100, 60), nn.ReLU(),
        nn.Linear(60, KINDS),
    )  # fmt: skip
    keep_at = min(EARLY, options.steps - 1)
    early, loss = train(net, trained, options.steps, keep_at=keep_at)
    print(f"dense loss {loss:.3f} accuracy {accuracy(net, held_out):.3f}")
    weights = [(layer, "weight") for layer in linears(net)]
    for layer, name in weights:
        prune.identity(layer, name)
    for number in range(2):
        prune.global_unstructured(
            weights, pruning_method=prune.L1Unstructured, amount=0.6
        )
        rewind(net, early)
        _, loss = train(net, trained, EARLY + options.steps, start=EARLY)
        zeros = sum((layer.weight == 0).sum().item() for layer in linears(net))
        zeros /= sum(layer.weight.numel() for layer in linears(net))
        print(
            f"round {number} zeros {zeros:.2f} loss {loss:.3f} "
            f"accuracy {accuracy(net, held_out):.3f}"
        )
    with_masks = accuracy(net, held_out)
    for layer, name in weights:
        prune.remove(layer, name)
    assert accuracy(net, held_out) == with_masks


if __name__ == "__main__":
    main()
