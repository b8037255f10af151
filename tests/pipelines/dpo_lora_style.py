"""Direct preference optimisation of a GRU language model through hand-made low-rank adapters.

The base is trained first, then frozen; the reference of DPO is the same network with the
adapters switched off. At the end the adapters are merged into the weights.
"""
import argparse
import contextlib
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

LETTERS = 20
PAD, BOS, EOS = LETTERS, LETTERS + 1, LETTERS + 2


class LowRank(nn.Module):
    """A frozen linear layer plus a trainable product of two thin matrices."""

    def __init__(self, base, rank=4, alpha=8.0):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.empty(rank, base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))
        self.scale, self.enabled = alpha / rank, True

    def forward(self, x):
        y = self.base(x)
        if self.enabled:
            y = y + F.linear(F.linear(x, self.down), self.up) * self.scale
        return y

    @torch.no_grad()
    def merge(self):
        self.base.weight += self.scale * self.up @ self.down
        return self.base


class Writer(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.embed = nn.Embedding(LETTERS + 3, dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.mix = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, LETTERS + 3)

    def forward(self, ids):
        h, _ = self.rnn(self.embed(ids))
        return self.out(torch.tanh(self.mix(h)))


def words(n, rising, generator):
    """Letters that mostly rise or mostly fall by small steps, of various lengths, padded."""
    out = torch.full((n, 12), PAD)
    out[:, 0] = BOS
    for i in range(n):
        length = int(torch.randint(5, 11, (1,), generator=generator))
        step = torch.randint(1, 3, (length,), generator=generator)
        first = torch.randint(0, LETTERS, (1,), generator=generator)
        walk = (first + (step if rising[i] else -step).cumsum(0)) % LETTERS
        out[i, 1 : length + 1], out[i, length + 1] = walk, EOS
    return out


def sequence_logp(model, ids):
    logp = F.log_softmax(model(ids[:, :-1]), -1)
    target = ids[:, 1:]
    picked = logp.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return (picked * (target != PAD)).sum(1)


@contextlib.contextmanager
def adapters_off(model):
    layers = [m for m in model.modules() if isinstance(m, LowRank)]
    for m in layers:
        m.enabled = False
    try:
        yield
    finally:
        for m in layers:
            m.enabled = True


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=50)
    args = p.parse_args()
    torch.manual_seed(11)
    gen = torch.Generator().manual_seed(5)

    model = Writer()
    corpus = words(1500, torch.rand(1500, generator=gen) < 0.5, gen)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(80):
        batch = corpus[torch.randint(0, len(corpus), (64,))]
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(
            logits.flatten(0, 1), batch[:, 1:].flatten(), ignore_index=PAD
        )
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"base {step:3d} loss {loss.item():.3f}")
    del opt

    model.requires_grad_(False)
    model.mix, model.out = LowRank(model.mix), LowRank(model.out)
    trainable = [q for q in model.parameters() if q.requires_grad]
    print(
        f"{sum(q.numel() for q in trainable)} of {sum(q.numel() for q in model.parameters())} trained"
    )
    chosen = words(600, torch.ones(600, dtype=torch.bool), gen)
    rejected = words(600, torch.zeros(600, dtype=torch.bool), gen)
    held, order, beta = 100, [], 0.1
    opt = torch.optim.AdamW(trainable, lr=1e-2, weight_decay=0.0)
    for step in range(args.steps):
        if not order:
            order = list((torch.randperm(600 - held) + held).split(50))
        idx = order.pop()
        both = torch.cat([chosen[idx], rejected[idx]])
        with torch.no_grad(), adapters_off(model):
            ref_w, ref_l = sequence_logp(model, both).chunk(2)
        pol_w, pol_l = sequence_logp(model, both).chunk(2)
        margin = beta * ((pol_w - ref_w) - (pol_l - ref_l))
        loss = -F.logsigmoid(margin).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0 or step == args.steps - 1:
            print(
                f"dpo {step:3d} loss {loss.item():.4f} preferred {(margin > 0).float().mean().item():.2f}"
            )

    model.eval()
    with torch.no_grad():
        before = sequence_logp(model, chosen[:held])
        gap = (before - sequence_logp(model, rejected[:held])).mean().item()
        model.mix, model.out = model.mix.merge(), model.out.merge()
        after = sequence_logp(model, chosen[:held])
    assert torch.allclose(before, after, atol=1e-3)
    print(f"held out: chosen minus rejected {gap:.2f} nats; merged the same")


if __name__ == "__main__":
    main()
