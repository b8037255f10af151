"""Three questions about a tree from one trunk: its harvest (a mixture density, as trees bear
every other year), the number of mites (Poisson), whether it is ill. Conflicting gradients of
the trunk are projected off one another (PCGrad) and written into .grad by hand. Lower layers
learn more slowly; each loss but the last may be negative; the best weights are put back.
"""
import argparse
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

FEATURES, PARTS = 14, 3


def orchard(n, gen):
    x = torch.randn(n, FEATURES, generator=gen)
    bearing = (
        torch.rand(n, generator=gen) < 0.5
    )  # not in x: hence two answers for one tree
    harvest = (
        torch.where(bearing, 1.5, -1.5)
        + 0.8 * x[:, 0] * x[:, 1]
        + 0.5 * x[:, 2]
        + 0.15 * torch.randn(n, generator=gen)
    )
    mites = torch.poisson(
        (0.8 + 0.5 * x[:, 3] - 0.6 * x[:, 0].abs()).exp(), generator=gen
    )
    ill = (
        x[:, 1] * x[:, 4] + x[:, 0] + 0.4 * torch.randn(n, generator=gen) > 0.3
    ).float()
    return x, harvest, mites, ill


class Orchard(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(FEATURES, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
        )
        self.heads = nn.ModuleDict(
            dict(
                harvest=nn.Linear(width, 3 * PARTS),
                mites=nn.Linear(width, 1),
                ill=nn.Linear(width, 1),
            )
        )
        with torch.no_grad():  # parts that start apart, or they would all learn the same
            self.heads["harvest"].bias[PARTS : 2 * PARTS] = torch.linspace(-2, 2, PARTS)

    def losses(self, x, harvest, mites, ill):
        h = self.trunk(x)
        weight, mean, log_std = self.heads["harvest"](h).chunk(3, -1)
        z = (harvest[:, None] - mean) * torch.exp(-log_std)
        part = (
            F.log_softmax(weight, -1)
            - log_std
            - 0.5 * z.square()
            - 0.5 * math.log(2 * math.pi)
        )
        return [
            -torch.logsumexp(part, -1).mean(),
            F.poisson_nll_loss(self.heads["mites"](h).squeeze(1), mites),
            F.binary_cross_entropy_with_logits(self.heads["ill"](h).squeeze(1), ill),
        ]


def project(grads, gen):
    """grads (tasks, n): each has taken off what runs against the others, in random order."""
    out = grads.clone()
    conflicts = 0
    for i in range(len(grads)):
        for j in torch.randperm(len(grads), generator=gen).tolist():
            dot = out[i] @ grads[j]
            if i != j and dot < 0:
                out[i] -= dot / grads[j].square().sum().clamp(min=1e-12) * grads[j]
                conflicts += 1
    return out.sum(0), conflicts


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    losses = [l.item() for l in model.losses(*data)]
    model.train()
    return losses


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--batch", type=int, default=64)
    args = p.parse_args()
    torch.manual_seed(66)
    torch.set_num_threads(1)
    train = orchard(2000, torch.Generator().manual_seed(1))
    valid = orchard(500, torch.Generator().manual_seed(2))
    test = orchard(500, torch.Generator().manual_seed(3))
    gen = torch.Generator().manual_seed(4)

    model = Orchard()
    shared = list(model.trunk.parameters())
    own = [list(h.parameters()) for h in model.heads.values()]
    linears = [m for m in model.trunk if isinstance(m, nn.Linear)]
    lr = 5e-3
    groups = [
        dict(params=m.parameters(), lr=lr * 0.7 ** (len(linears) - i))
        for i, m in enumerate(linears)
    ]
    groups.append(dict(params=model.heads.parameters(), lr=lr))
    optimizer = torch.optim.NAdam(groups, lr=lr)

    best, best_state, conflicts, order = float("inf"), None, 0, ()
    for step in range(1, args.steps + 1):
        if not len(order):
            order = torch.randperm(len(train[0]), generator=gen).split(args.batch)
        pick, order = order[0], order[1:]
        losses = model.losses(*(t[pick] for t in train))
        rows = []
        for k, loss in enumerate(losses):
            grads = torch.autograd.grad(
                loss, shared + own[k], retain_graph=k < len(losses) - 1
            )
            rows.append(torch.cat([g.flatten() for g in grads[: len(shared)]]))
            for q, g in zip(own[k], grads[len(shared) :]):
                q.grad = g
        flat, met = project(torch.stack(rows), gen)
        conflicts += met
        for q, g in zip(shared, flat.split([q.numel() for q in shared])):
            q.grad = g.view_as(q)  # put in place, not added to
        optimizer.step()
        if step % 10 == 0 or step == args.steps:
            val = evaluate(model, valid)
            if sum(val) < best:
                best, best_state = sum(val), copy.deepcopy(model.state_dict())
            print(
                f"step {step:3d} train " + " ".join(f"{l.item():7.4f}" for l in losses),
                "valid " + " ".join(f"{l:7.4f}" for l in val),
                f"conflicts {conflicts}",
            )
    if best_state is not None:
        model.load_state_dict(best_state)
    print(f"best valid {best:.4f} test {sum(evaluate(model, test)):.4f}")


if __name__ == "__main__":
    main()
