"""Which key fits? Outlines classified by a net that is thinned out in rounds (lottery ticket).

After each round the smallest weights of all layers are masked, the survivors are put back to
what they were after the first few steps, and the training is repeated with a new optimizer and
the same order of batches: the loss starts high again on purpose. In the last round the weights
are averaged as well (SWA), and the masks made permanent at the end.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import prune

LOCKS, CUTS, SAMPLES = 8, 6, 36


def keys(n, gen, patterns):
    """The edge of a key: cuts of the pattern, worn and sampled with some shift."""
    lock = torch.randint(0, LOCKS, (n,), generator=gen)
    depth = patterns[lock] + 0.25 * torch.randn(n, CUTS, generator=gen)
    edge = F.interpolate(
        depth.unsqueeze(1), size=SAMPLES + 4, mode="linear", align_corners=True
    ).squeeze(1)
    shift = torch.randint(0, 5, (n, 1), generator=gen)
    edge = edge.gather(1, shift + torch.arange(SAMPLES))
    return edge + 0.3 * torch.randn(n, SAMPLES, generator=gen), lock


def build():
    return nn.Sequential(
        nn.Linear(SAMPLES, 96),
        nn.ReLU(),
        nn.Linear(96, 48),
        nn.ReLU(),
        nn.Linear(48, LOCKS),
    )


def prunable(net):
    return [(m, "weight") for m in net if isinstance(m, nn.Linear)]


def kept(net):
    masks = [m.weight_mask for m, _ in prunable(net)]
    return sum(m.sum().item() for m in masks) / sum(m.numel() for m in masks)


def snapshot(net):
    """Values only: masks are none of its business."""
    return {
        n.replace("_orig", ""): p.detach().clone() for n, p in net.named_parameters()
    }


@torch.no_grad()
def put_back(net, values):
    for n, p in net.named_parameters():
        p.copy_(values[n.replace("_orig", "")])


@torch.no_grad()
def evaluate(net, x, y):
    net.eval()
    logits = net(x)
    net.train()
    return (
        F.cross_entropy(logits, y).item(),
        (logits.argmax(1) == y).float().mean().item(),
    )


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=160, help="of all rounds together")
    p.add_argument("--rounds", type=int, default=4)
    p.add_argument("--rewind-to", type=int, default=4)
    args = p.parse_args()
    torch.manual_seed(55)
    torch.set_num_threads(1)
    patterns = torch.randn(LOCKS, CUTS, generator=torch.Generator().manual_seed(550))
    train_x, train_y = keys(1200, torch.Generator().manual_seed(551), patterns)
    valid = keys(400, torch.Generator().manual_seed(552), patterns)

    net = build()
    # masks of ones, so that names do not change between the rounds
    for module, name in prunable(net):
        prune.identity(module, name)
    rounds = min(args.rounds, args.steps)
    length, done, early = args.steps // rounds, 0, None
    mean, count = {n: torch.zeros_like(v) for n, v in snapshot(net).items()}, 0
    for round_ in range(rounds):
        last = round_ == rounds - 1
        steps = args.steps - done if last else length
        calm = int(0.7 * steps)  # from here on at a fifth of the rate
        if round_ > 0:
            prune.global_unstructured(
                prunable(net), pruning_method=prune.L1Unstructured, amount=0.4
            )
            put_back(net, early)
        gen = torch.Generator().manual_seed(553)  # the same batches in every round
        optimizer = torch.optim.SGD(
            net.parameters(), lr=0.1, momentum=0.9, nesterov=True
        )
        for it in range(steps):
            pick = torch.randint(0, len(train_x), (64,), generator=gen)
            optimizer.param_groups[0]["lr"] = 0.1 * (0.2 if it >= calm else 1.0)
            loss = F.cross_entropy(net(train_x[pick]), train_y[pick])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if round_ == 0 and it + 1 == min(args.rewind_to, steps):
                early = snapshot(net)
            if last and it >= calm:
                count += 1
                for n, v in snapshot(net).items():
                    mean[n].lerp_(v, 1 / count)
            if it % 10 == 0 or it == steps - 1:
                val, acc = evaluate(net, *valid)
                print(
                    f"round {round_ + 1} kept {kept(net):.3f} step {done:3d} loss {loss.item():.4f} valid {val:.4f} accuracy {acc:.3f}"
                )

    put_back(net, mean)
    for module, name in prunable(net):
        prune.remove(module, name)
    zeros = sum((m.weight == 0).sum().item() for m, _ in prunable(net))
    val, acc = evaluate(net, *valid)
    print(f"averaged valid {val:.4f} accuracy {acc:.3f} weights at zero {zeros}")


if __name__ == "__main__":
    main()
