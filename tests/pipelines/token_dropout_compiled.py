"""Encoder-only classifier of log lines: token dropout, mixup of embeddings, soft targets.

torch.compile with the eager backend; gradient centralisation in a subclass of AdamW; the best
weights by validation are kept by deepcopy and put back.
"""
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

WORDS, CLASSES, LENGTH, PAD = 80, 5, 20, 0


class CentredAdamW(torch.optim.AdamW):
    """Subtracts the mean over the inputs from the gradient of each matrix."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            if group["centre"]:
                for q in group["params"]:
                    if q.grad is not None:
                        q.grad.sub_(q.grad.mean(1, keepdim=True))
        return super().step(closure)


class Layer(nn.Module):
    def __init__(self, dim, heads, drop):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x, keep):
        b, t, d = x.shape
        q, k, v = (
            self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])
        x = x + self.drop(self.proj(y.transpose(1, 2).reshape(b, t, d)))
        return x + self.drop(self.down(F.gelu(self.up(self.n2(x)))))


class Reader(nn.Module):
    def __init__(self, dim=40, heads=4, layers=2, token_drop=0.2):
        super().__init__()
        self.embed, self.pos = nn.Embedding(WORDS, dim, padding_idx=PAD), nn.Embedding(
            LENGTH, dim
        )
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.layers = nn.ModuleList(Layer(dim, heads, 0.1) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, CLASSES)
        self.token_drop = token_drop

    def forward(self, ids, partner=None, lam=1.0):
        x, keep = self.embed(ids) + self.pos.weight, ids != PAD
        if self.training:
            keep = keep & (torch.rand(ids.shape) >= self.token_drop)
        if partner is not None:
            x = lam * x + (1 - lam) * x[partner]
            keep = keep | keep[partner]
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1)
        keep = F.pad(keep, (1, 0), value=True)
        for layer in self.layers:
            x = layer(x, keep)
        return self.head(self.norm(x[:, 0]))


def lines(n, gen):
    """Each class prefers a few words, in any places; the rest is common noise."""
    label = torch.randint(0, CLASSES, (n,), generator=gen)
    ids = torch.randint(31, WORDS, (n, LENGTH), generator=gen)
    signal = 1 + label[:, None] * 6 + torch.randint(0, 6, (n, LENGTH), generator=gen)
    ids = torch.where(torch.rand(n, LENGTH, generator=gen) < 0.2, signal, ids)
    length = torch.randint(8, LENGTH + 1, (n, 1), generator=gen)
    return ids.masked_fill(torch.arange(LENGTH) >= length, PAD), label


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    args = p.parse_args()
    torch.manual_seed(2)
    gen = torch.Generator().manual_seed(8)
    (x, y), (vx, vy) = lines(2000, gen), lines(400, gen)
    model = Reader()
    matrices = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
    ids = {id(q) for q in matrices}
    rest = [q for q in model.parameters() if id(q) not in ids]
    opt = CentredAdamW(
        [
            {"params": matrices, "centre": True, "weight_decay": 0.05},
            {"params": rest, "centre": False, "weight_decay": 0.0},
        ],
        lr=3e-3,
    )
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, max_lr=4e-3, total_steps=args.steps, pct_start=0.2
    )
    fast = torch.compile(model, backend="eager")
    best, best_state, beta = float("inf"), None, torch.distributions.Beta(0.3, 0.3)

    step = 0
    while step < args.steps:
        for idx in torch.randperm(len(x)).split(64):
            if step == args.steps:
                break
            if len(idx) < 64:
                continue
            model.train()
            partner, lam = torch.randperm(len(idx)), beta.sample()
            hot = F.one_hot(y[idx], CLASSES).float()
            target = lam * hot + (1 - lam) * hot[partner]
            loss = F.cross_entropy(fast(x[idx], partner, lam), target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            step += 1
            if step % 10 == 0 or step == args.steps:
                model.eval()
                with torch.no_grad():
                    logits = fast(vx)
                val = F.cross_entropy(logits, vy).item()
                acc = (logits.argmax(1) == vy).float().mean().item()
                print(
                    f"step {step:3d} train {loss.item():.3f} valid {val:.3f} acc {acc:.3f}"
                )
                if val < best:
                    best, best_state = val, copy.deepcopy(model.state_dict())

    model.load_state_dict(best_state)
    model.eval()
    with torch.no_grad():
        print(f"best restored: valid {F.cross_entropy(model(vx), vy).item():.3f}")


if __name__ == "__main__":
    main()
