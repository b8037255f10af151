"""Route support tickets to a queue with a small attention encoder."""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, VOCAB, QUEUES, MAXLEN = 0, 160, 6, 28


def write_ticket(rng):
    length = rng.randint(6, 22)
    words = [rng.randint(30, VOCAB - 1) for _ in range(length)]
    topic = rng.randrange(QUEUES)
    words[rng.randrange(length)] = 1 + topic
    queue = topic
    if rng.random() < 0.5:
        spot = rng.randrange(length)
        if words[spot] >= 30:
            words[spot] = 20
            queue = (topic + 1) % QUEUES
    return words + [PAD] * (MAXLEN - length), queue


def corpus(n, seed):
    rng = random.Random(seed)
    pairs = [write_ticket(rng) for _ in range(n)]
    return torch.tensor([p[0] for p in pairs]), torch.tensor([p[1] for p in pairs])


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(d, heads, batch_first=True)
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        self.weights = None

    def forward(self, x, mask):
        h = self.ln1(x)
        a, w = self.attn(h, h, h, key_padding_mask=mask, need_weights=True)
        self.weights = w.detach()
        x = x + a
        return x + self.ff(self.ln2(x))


class Router(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        d = cfg.dim
        self.fixed = cfg.fixed
        self.emb = nn.Embedding(VOCAB, d)
        self.pos = nn.Parameter(torch.randn(MAXLEN, d) * 0.02)
        self.blocks = nn.ModuleList([Block(d, cfg.heads) for _ in range(cfg.layers)])
        self.head = nn.Linear(d, QUEUES)

    def forward(self, ids):
        real = ids != PAD
        mask = ~real if self.fixed else real
        x = self.emb(ids) + self.pos[: ids.size(1)]
        for blk in self.blocks:
            x = blk(x, mask)
        keep = real.unsqueeze(-1).float()
        pooled = (x * keep).sum(1) / keep.sum(1)
        return self.head(pooled)


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        acc = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return acc


def share_on_words(model, x):
    model.eval()
    with torch.no_grad():
        model(x)
    real = (x != PAD).float()
    out = []
    for blk in model.blocks:
        rows = (blk.weights * real[:, None, :]).sum(-1)
        out.append(((rows * real).sum() / real.sum()).item())
    model.train()
    return out


def parse():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--dim", type=int, default=48)
    ap.add_argument("--heads", type=int, default=4)
    ap.add_argument("--layers", type=int, default=1)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    return ap.parse_args()


def main():
    cfg = parse()
    torch.manual_seed(7)
    x, y = corpus(4000, 1)
    xt, yt = corpus(800, 2)
    model = Router(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)
    pick = torch.Generator().manual_seed(3)

    for step in range(cfg.steps):
        idx = torch.randint(0, len(x), (64,), generator=pick)
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0 or step == cfg.steps - 1:
            print(
                f"step {step:4d}  loss {loss.item():.4f}  test acc {accuracy(model, xt, yt):.3f}"
            )

    if cfg.prove:
        shares = share_on_words(model, xt[:64])
        print(
            "attention weight on ticket words per layer:", [round(s, 4) for s in shares]
        )
        print("fault shows:", "yes" if min(shares) < 0.99 else "no")


if __name__ == "__main__":
    main()
