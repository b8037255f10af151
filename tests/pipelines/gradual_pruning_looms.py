"""Faults of looms by sound; three quarters of the weights go while it is trained.

torch.nn.utils.prune in the loop: every tenth step the smallest weights of all layers are
masked, by a cubic law, on top of the masks there are; the optimizer goes on with
weight_orig, whose masked entries have gradient zero and are still moved by momentum for
a while. A last phase trains with fixed masks; then they are made permanent, and the
result is the same. A pruned copy is tried out on the side before each new mask.
"""
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.prune as prune

KINDS = 5


def sounds(n, gen):
    kind = torch.randint(KINDS, (n,), generator=gen)
    time = torch.arange(96.0) / 96
    beat = 3 + 2 * kind + 0.3 * torch.randn(n, generator=gen)
    phase = 6.28 * torch.rand(n, 1, generator=gen)
    wave = torch.sin(6.28 * beat[:, None] * time + phase)
    wave = wave * (1 + torch.sin(6.28 * 11 * time))
    return wave + 0.7 * torch.randn(n, 96, generator=gen), kind


class LoomNet(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Unflatten(1, (1, 96)),
            nn.Conv1d(1, 24, 9, stride=3, padding=4),
            nn.GroupNorm(4, 24),
            nn.ReLU(),
            nn.Conv1d(24, 32, 5, stride=2, padding=2),
            nn.GroupNorm(4, 32),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(512, 64),
            nn.ReLU(),
            nn.Linear(64, KINDS),
        )


def prunable(model):
    kinds = (nn.Conv1d, nn.Linear)
    return [(m, "weight") for m in model.modules() if isinstance(m, kinds)]


def kept_share(model):
    weights = [m.weight for m, _ in prunable(model)]
    return sum((w != 0).sum().item() for w in weights) / sum(w.numel() for w in weights)


@torch.no_grad()
def accuracy(model, x, kind):
    model.eval()
    right = (model(x).argmax(1) == kind).float().mean().item()
    model.train()
    return right


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--sparsity", type=float, default=0.75)
    args = p.parse_args()
    torch.manual_seed(23)
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(2)
    x, kind = sounds(2000, gen)
    valid = sounds(400, gen)
    model = LoomNet()
    for module, name in prunable(model):
        prune.identity(module, name)  # masks of ones: weight_orig is what is trained
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    first, last = args.steps // 5, args.steps * 7 // 10
    reached = 0.0
    for step in range(args.steps):
        if first <= step < last and step % 10 == 0:
            wanted = args.sparsity * (
                1 - (1 - (step + 10 - first) / (last - first)) ** 3
            )
            wanted = min(args.sparsity, wanted)
            # of what is left, as much as makes the wanted share of all
            amount = (wanted - reached) / (1 - reached)
            was = accuracy(model, *valid)  # leaves masked weights that can be copied
            trial = copy.deepcopy(model)
            for model_or_trial in (trial, model):
                prune.global_unstructured(
                    prunable(model_or_trial), prune.L1Unstructured, amount=amount
                )
                if model_or_trial is trial:
                    tried = accuracy(trial, *valid)
            reached = wanted
            print(
                f"step {step:3d} sparsity {wanted:.3f} valid {was:.3f} -> {tried:.3f}"
            )
        pick = torch.randint(len(x), (48,), generator=gen)
        loss = F.cross_entropy(model(x[pick]), kind[pick])
        model.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 39 or step == args.steps - 1:
            print(
                f"step {step + 1:3d} loss {loss.item():.4f} "
                f"valid {accuracy(model, *valid):.3f} kept {kept_share(model):.3f}"
            )
    before = accuracy(model, *valid)
    for module, name in prunable(model):
        prune.remove(module, name)
    print(f"permanent: {accuracy(model, *valid):.3f}, was {before:.3f}")


if __name__ == "__main__":
    main()
