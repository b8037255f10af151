"""Tags the words of contract clauses (who owes, who is owed, what) with a small transformer."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD = 0
WORDS = 60
TAGS = 4  # other, debtor, creditor, object
MAX_LEN = 28
PARTY = range(10, 25)
THING = range(25, 45)


def clause(g):
    n = int(torch.randint(8, 25, (1,), generator=g))
    w = torch.randint(45, WORDS, (n,), generator=g)
    spots = torch.randperm(n, generator=g)[:4].sort().values
    w[spots[0]] = int(torch.randint(10, 25, (1,), generator=g))
    w[spots[1]] = int(torch.randint(10, 25, (1,), generator=g))
    w[spots[2]] = int(torch.randint(25, 45, (1,), generator=g))
    voice = int(torch.randint(2, 6, (1,), generator=g))  # verb form decides the role
    w[spots[3]] = voice
    tag = torch.zeros(n, dtype=torch.long)
    active = voice % 2 == 0
    tag[spots[0]] = tag[spots[1]] = 1 if active else 2
    tag[spots[2]] = 3
    return w, tag


def clauses(n, seed):
    g = torch.Generator().manual_seed(seed)
    ids = torch.full((n, MAX_LEN), PAD)
    tags = torch.full((n, MAX_LEN), -100)
    for i in range(n):
        w, t = clause(g)
        ids[i, : len(w)], tags[i, : len(w)] = w, t
    return ids, tags


class Block(nn.Module):
    def __init__(self, dim, heads, drop):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, dropout=drop, batch_first=True)
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 2 * dim),
            nn.GELU(),
            nn.Dropout(drop),
            nn.Linear(2 * dim, dim),
        )

    def forward(self, x, mask):
        h = self.ln1(x)
        mixed, weights = self.attn(h, h, h, key_padding_mask=mask)
        x = x + mixed
        return x + self.mlp(self.ln2(x)), weights


class ClauseTagger(nn.Module):
    def __init__(self, dim=32, heads=4, layers=2, drop=0.05, fixed=False):
        super().__init__()
        self.fixed = fixed
        self.tok = nn.Embedding(WORDS, dim, padding_idx=PAD)
        pos = torch.arange(MAX_LEN)[:, None] * torch.exp(
            -math.log(1e4) * torch.arange(0, dim, 2) / dim
        )
        self.register_buffer(
            "pos", torch.stack([pos.sin(), pos.cos()], -1).flatten(1) * 0.5
        )
        self.blocks = nn.ModuleList(Block(dim, heads, drop) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, TAGS)

    def forward(self, ids, return_weights=False):
        mask = ids.eq(PAD) if self.fixed else ids.ne(PAD)
        x = self.tok(ids) + self.pos[: ids.shape[1]]
        maps = []
        for block in self.blocks:
            x, w = block(x, mask)
            maps.append(w)
        logits = self.head(self.norm(x))
        return (logits, maps) if return_weights else logits


@torch.no_grad()
def evaluate(model, ids, tags):
    model.eval()
    pred = model(ids).argmax(-1)
    role = tags > 0
    model.train()
    return (
        (pred == tags)[tags >= 0].float().mean().item(),
        (pred == tags)[role].float().mean().item(),
    )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=180)
    ap.add_argument("--batch", type=int, default=48)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(33)
    ids, tags = clauses(2400, seed=1)
    dev_ids, dev_tags = clauses(300, seed=2)
    model = ClauseTagger(fixed=args.fixed)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, args.lr, total_steps=args.steps, pct_start=0.1
    )
    g = torch.Generator().manual_seed(3)
    for step in range(1, args.steps + 1):
        rows = torch.randint(len(ids), (args.batch,), generator=g)
        logits = model(ids[rows])
        loss = F.cross_entropy(
            logits.flatten(0, 1), tags[rows].flatten(), ignore_index=-100
        )
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 30 == 0 or step == 1:
            acc, role_acc = evaluate(model, dev_ids, dev_tags)
            print(
                f"step {step:4d} loss {loss.item():.4f} dev tags {acc:.3f} roles {role_acc:.3f}"
            )

    if args.prove:
        model.eval()
        with torch.no_grad():
            _, maps = model(dev_ids, return_weights=True)
        real = dev_ids != PAD
        mass = [(w * real[:, None, :]).sum(-1)[real].mean().item() for w in maps]
        print(
            "attention on the words of the clause, by layer: "
            + ", ".join(f"{m:.3f}" for m in mass)
        )
        print("fault shows:", "yes" if min(mass) < 0.99 else "no")


if __name__ == "__main__":
    main()
