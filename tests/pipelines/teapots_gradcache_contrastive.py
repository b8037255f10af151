"""Side view <-> top view retrieval for teapots: InfoNCE over 256 pairs on a 64-pair memory.

Gradient cache: (1) embed all chunks without a graph, remembering the RNG state of each chunk,
(2) full-batch loss on the embeddings as leaves, keep d loss / d embedding, (3) run each chunk
again under its old RNG state (same dropout masks) and backpropagate the kept gradient.
Step (3) gives exactly the gradient of the big batch; a check at the start shows it.
Encoders have LayerNorm only - batch statistics would depend on the chunking.
"""
import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    def __init__(self, d_in, d_out=32, p=0.1):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(d_in, 128),
            nn.LayerNorm(128),
            nn.GELU(),
            nn.Dropout(p),
            nn.Linear(128, 128),
            nn.LayerNorm(128),
            nn.GELU(),
            nn.Dropout(p),
            nn.Linear(128, d_out),
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


class TwoViews(nn.Module):
    def __init__(self):
        super().__init__()
        self.side, self.top = Encoder(48), Encoder(40)
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / 0.1)))

    def embed(self, s, t):
        return self.side(s), self.top(t)

    def info_nce(self, a, b):
        logits = self.log_scale.exp() * a @ b.T
        target = torch.arange(len(a))
        return 0.5 * (
            F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)
        )


class Teapots:
    """Latent shape (10 numbers) -> two nonlinear profiles, fresh measuring noise each draw."""

    def __init__(self, n, seed):
        shared = torch.Generator().manual_seed(1234)  # the two cameras, same for all
        self.w = [
            torch.randn(10, 48, generator=shared),
            torch.randn(10, 40, generator=shared),
        ]
        self.v = [
            torch.randn(10, 48, generator=shared),
            torch.randn(10, 40, generator=shared),
        ]
        self.g = torch.Generator().manual_seed(seed)
        self.shape = torch.randn(n, 10, generator=self.g)

    def __len__(self):
        return len(self.shape)

    def views(self, idx):
        z = self.shape[idx]
        out = []
        for w, v in zip(self.w, self.v):
            clean = torch.sin(z @ w / 3) + 0.5 * torch.tanh(z @ v)
            out.append(clean + 0.3 * torch.randn(clean.shape, generator=self.g))
        return out


def cached_backward(model, s, t, chunk):
    """Adds the full batch's gradient to .grad, never holding more than a chunk's graph."""
    states, ea, eb = [], [], []
    parts = list(zip(s.split(chunk), t.split(chunk)))
    with torch.no_grad():
        for cs, ct in parts:
            states.append(torch.get_rng_state())
            a, b = model.embed(cs, ct)
            ea.append(a)
            eb.append(b)
    a = torch.cat(ea).requires_grad_()
    b = torch.cat(eb).requires_grad_()
    loss = model.info_nce(a, b)
    loss.backward()  # reaches a, b and the temperature
    for (cs, ct), state, ga, gb in zip(
        parts, states, a.grad.split(chunk), b.grad.split(chunk)
    ):
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            pa, pb = model.embed(cs, ct)
        torch.autograd.backward([pa, pb], [ga, gb])
    return loss.detach()


def check_equal_to_big_batch(model, pots):
    s, t = pots.views(torch.arange(96))
    state = torch.get_rng_state()
    model.zero_grad()
    pairs = [model.embed(cs, ct) for cs, ct in zip(s.split(32), t.split(32))]
    model.info_nce(
        torch.cat([p[0] for p in pairs]), torch.cat([p[1] for p in pairs])
    ).backward()
    want = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    torch.set_rng_state(state)
    cached_backward(model, s, t, 32)
    for (name, p), w in zip(model.named_parameters(), want):
        assert torch.allclose(p.grad, w, atol=1e-5), name
    model.zero_grad()
    print("cached gradient equals the big-batch gradient")


@torch.no_grad()
def retrieval(model, views):
    model.eval()
    a, b = model.embed(*views)
    hit = ((a @ b.T).argmax(1) == torch.arange(len(a))).float().mean().item()
    model.train()
    return hit


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=90)
    ap.add_argument("--batch", type=int, default=256)
    ap.add_argument("--chunk", type=int, default=64)
    args = ap.parse_args()
    torch.manual_seed(8)
    train = Teapots(1536, seed=1)
    held_out = Teapots(300, seed=2).views(
        torch.arange(300)
    )  # measured once, then fixed
    model = TwoViews()
    check_equal_to_big_batch(model, train)

    decay = [p for p in model.parameters() if p.ndim >= 2]
    rest = [p for p in model.parameters() if p.ndim < 2]
    assert len(decay) + len(rest) == len(list(model.parameters()))
    opt = torch.optim.AdamW(
        [
            {"params": decay, "weight_decay": 0.02},
            {"params": rest, "weight_decay": 0.0},
        ],
        lr=2e-3,
    )
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt,
        lambda k: min((k + 1) / 10, 1.0)
        * 0.5
        * (1 + math.cos(math.pi * k / args.steps)),
    )
    before = retrieval(model, held_out)
    losses, queue = [], []
    for step in range(args.steps):
        if not queue:  # whole batches only; no teapot twice in a batch
            queue = [
                q
                for q in torch.randperm(len(train)).split(args.batch)
                if len(q) == args.batch
            ]
        s, t = train.views(queue.pop())
        opt.zero_grad(set_to_none=True)
        losses.append(cached_backward(model, s, t, args.chunk).item())
        opt.step()
        sched.step()
        with torch.no_grad():
            model.log_scale.clamp_(max=math.log(100))
        if step % 15 == 0 or step == args.steps - 1:
            print(
                f"step {step:3d} loss {losses[-1]:.3f} of {math.log(args.batch):.3f}  scale "
                f"{model.log_scale.exp().item():.1f}  top-1 {retrieval(model, held_out):.3f}"
            )
    after = retrieval(model, held_out)
    print(f"held-out top-1 {before:.3f} -> {after:.3f}")
    if args.steps >= 60:
        assert losses[-1] < 0.5 * losses[0] and after > 0.4


if __name__ == "__main__":
    main()
