"""Character-level transformer on a synthetic language, trained with a Muon/Adam hybrid."""
import argparse
import math

import torch
from torch import nn
import torch.nn.functional as F


class HybridMuon(torch.optim.Optimizer):
    """Orthogonalised momentum for groups with use_muon=True, Adam for the others."""

    def __init__(self, groups):
        defaults = dict(
            lr=1e-3,
            weight_decay=0.0,
            momentum=0.95,
            betas=(0.9, 0.95),
            eps=1e-8,
            use_muon=False,
        )
        super().__init__(groups, defaults)

    @staticmethod
    def newton_schulz(g, iters=5):
        a, b, c = 3.4445, -4.7750, 2.0315
        x = g / (g.norm() + 1e-7)
        flip = x.size(0) > x.size(1)
        if flip:
            x = x.T
        for _ in range(iters):
            m = x @ x.T
            x = a * x + (b * m + c * m @ m) @ x
        return x.T if flip else x

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                st = self.state[p]
                p.mul_(1 - g["lr"] * g["weight_decay"])
                if g["use_muon"]:
                    buf = st.setdefault("buf", torch.zeros_like(p))
                    buf.mul_(g["momentum"]).add_(p.grad)
                    upd = self.newton_schulz(p.grad + g["momentum"] * buf)
                    p.add_(upd, alpha=-g["lr"] * 0.2 * math.sqrt(max(p.shape)))
                else:
                    if not st:
                        st.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                    st["t"] += 1
                    b1, b2 = g["betas"]
                    st["m"].lerp_(p.grad, 1 - b1)
                    st["v"].lerp_(p.grad.square(), 1 - b2)
                    m = st["m"] / (1 - b1 ** st["t"])
                    v = st["v"] / (1 - b2 ** st["t"])
                    p.addcdiv_(m, v.sqrt() + g["eps"], value=-g["lr"])


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 3 * d), nn.Linear(3 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            self.qkv(self.n1(x))
            .view(b, t, 3, self.h, d // self.h)
            .permute(2, 0, 3, 1, 4)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class CharLM(nn.Module):
    def __init__(self, vocab, ctx, d=48, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(ctx, d)
        self.blocks = nn.ModuleList(Block(d, 4) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        for blk in self.blocks:
            x = blk(x)
        return self.head(self.norm(x))


def make_corpus(vocab, length, seed):
    g = torch.Generator().manual_seed(seed)
    table = torch.softmax(
        2.5 * torch.randn(vocab, vocab, generator=torch.Generator().manual_seed(5)), -1
    )
    ids = [0]
    u = torch.rand(length, generator=g)
    cum = table.cumsum(-1)
    for i in range(length - 1):
        ids.append(min(int(torch.searchsorted(cum[ids[-1]], u[i])), vocab - 1))
    return torch.tensor(ids)


def recipe_groups(model):
    """Decay on matrices only; embeddings and one-dimensional tensors get a lower rate and no decay."""
    matrices, rest = [], []
    for name, p in model.named_parameters():
        (
            matrices if p.ndim == 2 and not name.startswith(("tok", "pos")) else rest
        ).append(p)
    return [
        dict(params=matrices, lr=1e-2, weight_decay=0.1),
        dict(params=rest, lr=1e-3, weight_decay=0.0),
    ]


def takes_muon(p, hidden):
    return id(p) in hidden


def build_optimizer(model, model_parameters, cfg, fixed):
    hidden = {id(p) for p in model.blocks.parameters() if p.ndim == 2}
    if fixed:
        groups = []
        for g in model_parameters:
            extra = {k: v for k, v in g.items() if k != "params"}
            for flag in (True, False):
                ps = [p for p in g["params"] if takes_muon(p, hidden) == flag]
                if ps:
                    groups.append({**cfg, **extra, "params": ps, "use_muon": flag})
        return HybridMuon(groups)
    params = []
    for item in model_parameters:
        params.extend(item["params"] if isinstance(item, dict) else [item])
    muon = [p for p in params if takes_muon(p, hidden)]
    adam = [p for p in params if not takes_muon(p, hidden)]
    return HybridMuon(
        [
            dict(params=muon, use_muon=True, **cfg),
            dict(params=adam, use_muon=False, **cfg),
        ]
    )


def check_hyperparameters(model, requested, opt):
    want = {id(p): (g["lr"], g["weight_decay"]) for g in requested for p in g["params"]}
    have = {
        id(p): (g["initial_lr"], g["weight_decay"])
        for g in opt.param_groups
        for p in g["params"]
    }
    bad = [n for n, p in model.named_parameters() if want[id(p)] != have[id(p)]]
    print(
        f"tensors whose (lr, weight_decay) differ from the request: {len(bad)} of {len(want)}; e.g. {bad[:3]}"
    )
    return len(bad)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=80)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--ctx", type=int, default=32)
    ap.add_argument("--lr", type=float, default=4e-3)
    ap.add_argument("--weight-decay", type=float, default=0.01)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(0)
    vocab = 20
    train, val = make_corpus(vocab, 12000, 1), make_corpus(vocab, 2000, 2)
    model = CharLM(vocab, args.ctx)
    requested = recipe_groups(model)
    cfg = dict(lr=args.lr, weight_decay=args.weight_decay)
    opt = build_optimizer(model, requested, cfg, args.fixed)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt,
        lambda s: min(
            (s + 1) / 8, 0.5 * (1 + math.cos(math.pi * s / max(args.steps, 1)))
        ),
    )
    gen = torch.Generator().manual_seed(3)

    for step in range(args.steps):
        at = torch.randint(
            0, len(train) - args.ctx - 1, (args.batch_size,), generator=gen
        )
        chunk = torch.stack([train[i : i + args.ctx + 1] for i in at])
        loss = F.cross_entropy(
            model(chunk[:, :-1]).flatten(0, 1), chunk[:, 1:].flatten()
        )
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 10 == 0 or step == args.steps - 1:
            print(f"step {step:3d}  train loss {loss.item():.4f}")

    model.eval()
    with torch.no_grad():
        v = val[: (len(val) // (args.ctx + 1)) * (args.ctx + 1)].view(-1, args.ctx + 1)
        print(
            f"validation loss {F.cross_entropy(model(v[:, :-1]).flatten(0, 1), v[:, 1:].flatten()).item():.4f}"
        )
    if args.prove:
        print(
            "fault shows:",
            "yes" if check_hyperparameters(model, requested, opt) else "no",
        )


if __name__ == "__main__":
    main()
