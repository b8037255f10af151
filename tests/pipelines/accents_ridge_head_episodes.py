"""Few-shot recognition of unseen accents with a closed-form head (R2-D2).

Each optimizer step is an episode: the embedded support set goes through a ridge regression that is solved
exactly (Woodbury form, Cholesky) and the query loss is differentiated THROUGH that solve into the embedding.
The classifier weights exist for one episode only and are never parameters; the ridge strength, the scale and
the offset of the logits are learned as three scalars.  Test classes never occur in training.
"""
import argparse

import torch
from torch import nn
from torch.nn import functional as F

TIME, FORMANTS = 20, 3
BASE, VALID, NOVEL = 40, 12, 16


class Accents:
    """Each accent bends the formant tracks of a word in its own way; speakers add offset and tempo."""

    def __init__(self, seed):
        g = torch.Generator().manual_seed(seed)
        total = BASE + VALID + NOVEL
        self.amp = 0.55 * torch.randn(total, FORMANTS, 3, generator=g)
        self.phase = 2 * torch.pi * torch.rand(total, FORMANTS, 3, generator=g)
        self.splits = {
            "base": range(0, BASE),
            "valid": range(BASE, BASE + VALID),
            "novel": range(BASE + VALID, total),
        }

    def speak(self, classes, n, gen):
        c = torch.as_tensor(classes).repeat_interleave(n)
        tempo = 1 + 0.08 * torch.randn(len(c), 1, generator=gen)
        t = torch.linspace(0, 1, TIME) * tempo
        waves = torch.stack(
            [
                torch.sin(
                    2 * torch.pi * k * t.unsqueeze(1)
                    + self.phase[c, :, k - 1].unsqueeze(2)
                )
                * self.amp[c, :, k - 1].unsqueeze(2)
                for k in (1, 2, 3)
            ]
        ).sum(0)
        speaker = 0.5 * torch.randn(len(c), FORMANTS, 1, generator=gen)
        return (
            waves + speaker + 0.45 * torch.randn(len(c), FORMANTS, TIME, generator=gen)
        )

    def episode(self, split, way, shot, query, gen):
        pool = torch.tensor(list(self.splits[split]))
        chosen = pool[torch.randperm(len(pool), generator=gen)[:way]]
        x = self.speak(chosen, shot + query, gen).view(
            way, shot + query, FORMANTS, TIME
        )
        label = torch.arange(way)
        support, ask = x[:, :shot].flatten(0, 1), x[:, shot:].flatten(0, 1)
        return (
            support,
            label.repeat_interleave(shot),
            ask,
            label.repeat_interleave(query),
        )


class Embed(nn.Module):
    """GroupNorm only: no statistic may leak from one query to another inside an episode."""

    def __init__(self, width=32, out=64):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(FORMANTS, width, 5, padding=2),
            nn.GroupNorm(4, width),
            nn.GELU(),
            nn.AvgPool1d(2),
            nn.Conv1d(width, width, 3, padding=1),
            nn.GroupNorm(4, width),
            nn.GELU(),
            nn.AvgPool1d(2),
        )
        self.flat = nn.Linear(width * (TIME // 4), out)

    def forward(self, x):
        return F.layer_norm(
            self.flat(self.conv(x).flatten(1)), (self.flat.out_features,)
        )


class RidgeHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_ridge = nn.Parameter(torch.tensor(2.0))
        self.scale = nn.Parameter(torch.tensor(4.0))
        self.offset = nn.Parameter(torch.tensor(0.0))

    def solve(self, z, y, way):
        target = F.one_hot(y, way).float()
        gram = z @ z.T + self.log_ridge.exp() * torch.eye(len(z))
        return z.T @ torch.cholesky_solve(target, torch.linalg.cholesky(gram))

    def forward(self, z, y, ask, way):
        # offset shifts all logits alike (softmax does not see it); it matters for the binary score below.
        return self.scale * (ask @ self.solve(z, y, way)) + self.offset


def query_loss(logits, y):
    """Cross-entropy plus a small one-against-rest term, the only one that informs the offset."""
    one = F.one_hot(y, logits.shape[1]).float()
    return F.cross_entropy(logits, y) + 0.1 * F.binary_cross_entropy_with_logits(
        logits, one
    )


@torch.no_grad()
def accuracy(embed, head, world, split, episodes, seed, shot=3):
    gen = torch.Generator().manual_seed(seed)  # the same episodes at each call
    hits = []
    for _ in range(episodes):
        s, sy, q, qy = world.episode(split, 5, shot, 8, gen)
        hits.append((head(embed(s), sy, embed(q), 5).argmax(1) == qy).float().mean())
    hits = torch.stack(hits)
    return hits.mean().item(), (1.96 * hits.std() / len(hits) ** 0.5).item()


@torch.no_grad()
def check_solver(head):
    """The Woodbury form equals the usual normal equations, solved in double precision."""
    z, y = torch.randn(10, 6, dtype=torch.float64), torch.arange(10) % 5
    ridge = head.log_ridge.exp().double() * torch.eye(6, dtype=torch.float64)
    usual = torch.linalg.solve(z.T @ z + ridge, z.T @ F.one_hot(y, 5).double())
    assert torch.allclose(head.solve(z.float(), y, 5), usual.float(), atol=1e-4)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=350)
    ap.add_argument("--seed", type=int, default=12)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    world, embed, head = Accents(5), Embed(), RidgeHead()
    check_solver(head)
    groups = {k: set(v) for k, v in world.splits.items()}
    assert not (groups["base"] & groups["novel"] or groups["base"] & groups["valid"])

    opt = torch.optim.AdamW(
        [
            {"params": embed.parameters(), "lr": 2e-3, "weight_decay": 1e-2},
            {"params": head.parameters(), "lr": 1e-2, "weight_decay": 0.0},
        ]
    )  # scalars: faster and undecayed
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps, eta_min=1e-4)
    start, _ = accuracy(embed, head, world, "novel", 60, 70)

    losses = []
    for step in range(1, args.steps + 1):
        # Harder episodes than at test (more ways), with a varying number of shots.
        way, shot = int(torch.randint(5, 11, (1,), generator=gen)), int(
            torch.randint(1, 6, (1,), generator=gen)
        )
        s, sy, q, qy = world.episode("base", way, shot, 6, gen)
        z = embed(torch.cat([s, q]))
        loss = query_loss(head(z[: len(s)], sy, z[len(s) :], way), qy)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        losses.append(loss.item())
        if step % 70 == 0:
            acc, ci = accuracy(embed, head, world, "valid", 40, 71)
            print(
                f"step {step:4d} loss {sum(losses[-40:]) / len(losses[-40:]):.3f} valid {acc:.3f}+-{ci:.3f} "
                f"ridge {head.log_ridge.exp().item():.2f} scale {head.scale.item():.2f} offset {head.offset.item():+.2f}"
            )

    acc, ci = accuracy(embed, head, world, "novel", 150, 72)
    print(f"novel accents, 5-way 3-shot: {start:.3f} -> {acc:.3f} +- {ci:.3f}")
    if args.steps >= 250:
        assert (
            sum(losses[-50:]) < 0.8 * sum(losses[:50])
            and acc > start + 0.05
            and acc - ci > 0.5
        )


if __name__ == "__main__":
    main()
