"""Parts of a sorting machine learnt two kinds at a time. A session brings only its
own kinds; forty remembered samples of each earlier kind are rehearsed with them and
the net before the session holds the new one back (distillation). The output layer
grows, rows of known kinds are copied over.

    python rehearsal_sorter.py --steps 30
"""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn

SESSIONS = [(0, 1), (2, 3), (4, 5)]
SENSORS = 24
TEMPERATURE = 2.0


def samples(kinds, per_kind, seed):
    shapes = torch.randn(6, 2, SENSORS, generator=torch.Generator().manual_seed(77))
    g = torch.Generator().manual_seed(seed)
    xs, ys = [], []
    for kind in kinds:
        side = torch.randint(2, (per_kind,), generator=g)  # lies face up or face down
        xs.append(
            shapes[kind][side] + 0.6 * torch.randn(per_kind, SENSORS, generator=g)
        )
        ys.append(torch.full((per_kind,), kind))
    return torch.cat(xs), torch.cat(ys)


class Sorter(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.features = nn.Sequential(
            nn.Linear(SENSORS, width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.head = None

    def grow(self, new):
        old = self.head
        width = self.features[-2].out_features
        self.head = nn.Linear(width, new + (old.out_features if old else 0))
        if old is not None:
            with torch.no_grad():
                self.head.weight[: old.out_features] = old.weight
                self.head.bias[: old.out_features] = old.bias

    def forward(self, x):
        return self.head(self.features(x))


class Memory:
    """The samples of a kind whose mean is nearest to the kind's (herding)."""

    def __init__(self, per_kind):
        self.per_kind = per_kind
        self.x, self.y = torch.empty(0, SENSORS), torch.empty(0, dtype=torch.long)

    @torch.no_grad()
    def remember(self, model, x, y):
        for kind in y.unique():
            mine = x[y == kind]
            f = F.normalize(model.features(mine), dim=1)
            mean, total, chosen = f.mean(0), torch.zeros(f.size(1)), []
            for k in range(1, self.per_kind + 1):
                gap = (mean - (total + f) / k).norm(dim=1)
                gap[chosen] = float("inf")
                chosen.append(gap.argmin().item())
                total = total + f[chosen[-1]]
            self.x = torch.cat([self.x, mine[chosen]])
            self.y = torch.cat([self.y, kind.repeat(self.per_kind)])

    def draw(self, n):
        pick = torch.randint(len(self.y), (n,))
        return self.x[pick], self.y[pick]


def learn(model, teacher, x, y, memory, steps, batch=32):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        pick = torch.randint(len(y), (batch,))
        bx, by = x[pick], y[pick]
        if teacher is not None:
            old_x, old_y = memory.draw(batch)
            bx, by = torch.cat([bx, old_x]), torch.cat([by, old_y])
        logits = model(bx)
        loss = F.cross_entropy(logits, by)
        if teacher is not None:
            with torch.no_grad():
                wanted = (teacher(bx) / TEMPERATURE).softmax(1)
            known = wanted.size(1)
            got = (logits[:, :known] / TEMPERATURE).log_softmax(1)
            held = F.kl_div(got, wanted, reduction="batchmean") * TEMPERATURE**2
            loss = loss + 0.5 * held
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"  step {step} loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30, help="of all sessions")
    parser.add_argument("--memory", type=int, default=40)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(13)
    model, teacher, memory = Sorter(), None, Memory(args.memory)
    seen = []
    for number, kinds in enumerate(SESSIONS):
        share = args.steps // 3 + (number < args.steps % 3)
        x, y = samples(kinds, 200, seed=number)
        model.grow(len(kinds))
        print(f"session {number}: kinds {kinds}")
        learn(model, teacher, x, y, memory, share)
        memory.remember(model, x, y)
        teacher = copy.deepcopy(model).eval().requires_grad_(False)
        seen.append(kinds)
        model.eval()
        with torch.no_grad():
            for group in seen:
                tx, ty = samples(group, 50, seed=100)
                right = (model(tx).argmax(1) == ty).float().mean()
                print(f"  kinds {group}: {right:.3f}")
        model.train()


if __name__ == "__main__":
    main()
