# Fine-tunes a small base LM on a new domain (weights and compute in bfloat16).
import argparse
import copy
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

V, T = 48, 24


def domain(seed, mix=None):
    """Second-order token table; `mix` blends it with another table."""
    g = torch.Generator().manual_seed(seed)
    logits = 2.5 * torch.randn(V, V, generator=g)
    if mix is not None:
        other, w = mix
        logits = (1 - w) * other + w * logits
    return logits


def sample(table, n, g):
    probs = table.softmax(-1)
    seq = torch.empty(n, T + 1, dtype=torch.long)
    seq[:, 0] = torch.randint(V, (n,), generator=g)
    for t in range(T):
        seq[:, t + 1] = torch.multinomial(probs[seq[:, t]], 1, generator=g).squeeze(1)
    return seq


class Attention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))

    def forward(self, x):
        b, t, d = x.shape
        heads = lambda y: y.view(b, t, self.h, d // self.h).transpose(1, 2)
        y = F.scaled_dot_product_attention(
            heads(self.q(x)), heads(self.k(x)), heads(self.v(x)), is_causal=True
        )
        return self.o(y.transpose(1, 2).reshape(b, t, d))


class DecoderLayer(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = Attention(d, h)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class TinyLM(nn.Module):
    def __init__(self, d=48, layers=1, h=4):
        super().__init__()
        self.embed = nn.Embedding(V, d)
        self.pos = nn.Parameter(torch.zeros(T, d))
        self.layers = nn.ModuleList([DecoderLayer(d, h) for _ in range(layers)])
        self.norm = nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, V, bias=False)

    def forward(self, ids):
        x = self.embed(ids) + self.pos[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def lm_loss(model, seq):
    logits = model(seq[:, :-1]).float()
    return F.cross_entropy(logits.reshape(-1, V), seq[:, 1:].reshape(-1))


class PlainOptim:
    def __init__(self, model, lr):
        self.model = model
        self.held = [p for p in model.parameters() if p.requires_grad]
        self.opt = torch.optim.AdamW(
            self.held, lr=lr, betas=(0.9, 0.95), weight_decay=0.0
        )

    def step(self):
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)


class CopyOptim(PlainOptim):
    def __init__(self, model, lr):
        self.model = model
        self.params = [p for p in model.parameters() if p.requires_grad]
        self.held = [p.detach().float().clone().requires_grad_() for p in self.params]
        self.opt = torch.optim.AdamW(
            self.held, lr=lr, betas=(0.9, 0.95), weight_decay=0.0
        )

    def step(self):
        for h, p in zip(self.held, self.params):
            h.grad = p.grad.float()
            p.grad = None
        super().step()
        with torch.no_grad():
            for h, p in zip(self.held, self.params):
                p.copy_(h)


@torch.no_grad()
def evaluate(model, seqs):
    model.eval()
    loss = sum(lm_loss(model, s).item() for s in seqs) / len(seqs)
    model.train()
    return loss


def pretrain(model, table, steps, g):
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        loss = lm_loss(model, sample(table, 32, g))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 30 == 0:
            print(f"  base step {step:3d} loss {loss.item():.3f}")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=240, help="fine-tuning steps")
    ap.add_argument("--base-steps", type=int, default=90)
    ap.add_argument("--lr", type=float, default=4e-5)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--clip", type=float, default=1.0)
    ap.add_argument("--seed", type=int, default=5)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    g = torch.Generator().manual_seed(args.seed)
    source = domain(1)
    target = domain(2, mix=(source, 0.5))
    base = TinyLM()
    print("base model:")
    pretrain(base, source, args.base_steps, g)

    model = copy.deepcopy(base).to(torch.bfloat16)
    val = [sample(target, 64, g) for _ in range(4)]
    start = evaluate(model, val)
    print(f"before fine-tuning: target val loss {start:.4f}")

    optim = CopyOptim(model, args.lr) if args.fixed else PlainOptim(model, args.lr)
    still = seen = 0
    t0 = time.time()
    for step in range(args.steps):
        seq = sample(target, args.batch_size, g)
        loss = lm_loss(model, seq)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        if args.prove:
            before = [h.detach().clone() for h in optim.held]
            active = [p.grad != 0 for p in model.parameters()]
        optim.step()
        if args.prove:
            for b, h, a in zip(before, optim.held, active):
                still += int(((b == h.detach()) & a).sum())
                seen += int(a.sum())
        if step % 40 == 0:
            print(f"step {step:3d} loss {loss.item():.4f} ({time.time() - t0:.1f}s)")
    end = evaluate(model, val)
    print(f"after fine-tuning: target val loss {end:.4f} (change {end - start:+.4f})")
    if args.prove:
        share = still / max(seen, 1)
        print(
            f"weights with a gradient that kept their value in a step: {100 * share:.1f}%"
        )
        print(f"fault shows: {'yes' if share > 0.5 else 'no'}")


if __name__ == "__main__":
    main()
