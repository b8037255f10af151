"""AWD-LSTM (Merity et al.) on made-up psalms: dropped recurrent weights, locked dropout,
whole-word embedding dropout, tied output, activation penalties, windows of random length with
carried state, and SGD that turns into averaged SGD when validation stalls. From then on the
model is validated with the averaged weights and trained with its own.
"""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB = 48


def psalter(n_words, seed):
    """A stream of words: each refrain (one of 4) walks its own ring of words, with slips."""
    gen = torch.Generator().manual_seed(seed)
    rings = torch.stack(
        [
            torch.randperm(VOCAB, generator=torch.Generator().manual_seed(90 + i))
            for i in range(4)
        ]
    )
    follow = torch.empty_like(rings)
    for i in range(4):
        follow[i, rings[i]] = rings[i].roll(-1)
    u = torch.rand(n_words, 2, generator=gen).tolist()
    alt = torch.randint(VOCAB, (n_words,), generator=gen).tolist()
    table, word, refrain, out = follow.tolist(), 0, 0, []
    for (slip, change), other in zip(u, alt):
        if change < 0.03:
            refrain = other % 4
        word = other if slip < 0.12 else table[refrain][word]
        out.append(word)
    return torch.tensor(out)


def columns(stream, n):
    rows = len(stream) // n
    return stream[: rows * n].view(n, rows).t().contiguous()  # time x batch


def locked(x, p, training):
    if not training or p == 0:
        return x
    return (
        x * (torch.rand(1, *x.shape[1:]) > p).float() / (1 - p)
    )  # one mask for the whole window


class AWD(nn.Module):
    def __init__(self, width=64, wdrop=0.2, idrop=0.1, odrop=0.1, edrop=0.05):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, width)
        self.w_ih = nn.Linear(width, 4 * width)
        self.w_hh = nn.Parameter(
            torch.empty(4 * width, width).uniform_(-(width**-0.5), width**-0.5)
        )
        self.out = nn.Linear(width, VOCAB)
        self.out.weight = self.emb.weight  # tied
        nn.init.uniform_(self.emb.weight, -0.1, 0.1)
        nn.init.zeros_(self.out.bias)
        self.width, self.p = width, (wdrop, idrop, odrop, edrop)

    def start(self, batch):
        return torch.zeros(batch, self.width), torch.zeros(batch, self.width)

    def forward(self, words, state):
        wdrop, idrop, odrop, edrop = self.p
        table = self.emb.weight
        if self.training:
            keep = (torch.rand(VOCAB, 1) > edrop).float() / (1 - edrop)
            table = table * keep  # a word vanishes everywhere or nowhere
        x = self.w_ih(locked(F.embedding(words, table), idrop, self.training))
        w = F.dropout(
            self.w_hh, wdrop, self.training
        )  # once per window, not per time step
        h, c = state
        raw = []
        for x_t in x:
            i, f, g, o = (x_t + h @ w.t()).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            raw.append(h)
        raw = torch.stack(raw)
        dropped = locked(raw, odrop, self.training)
        return self.out(dropped), (h, c), raw, dropped


@torch.no_grad()
def perplexity(model, text, window=32):
    model.eval()
    state, total, count = model.start(text.shape[1]), 0.0, 0
    for i in range(0, len(text) - 1, window):
        n = min(window, len(text) - 1 - i)
        logits, state, _, _ = model(text[i : i + n], state)
        total += F.cross_entropy(
            logits.flatten(0, 1), text[i + 1 : i + 1 + n].flatten(), reduction="sum"
        ).item()
        count += text[i + 1 : i + 1 + n].numel()
    model.train()
    return math.exp(total / count)


class averaged:
    """Puts ASGD's averages in the place of the weights for the length of a with-block."""

    def __init__(self, opt):
        self.opt, self.params = opt, [p for g in opt.param_groups for p in g["params"]]

    def __enter__(self):
        self.own = [p.detach().clone() for p in self.params]
        for p in self.params:
            p.data.copy_(self.opt.state[p]["ax"])

    def __exit__(self, *exc):
        for p, own in zip(self.params, self.own):
            p.data.copy_(own)


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=420)
    ap.add_argument("--bptt", type=int, default=16)
    ap.add_argument("--nonmono", type=int, default=3)
    args = ap.parse_args()
    torch.manual_seed(8)
    train, valid = columns(psalter(24000, 1), 32), columns(psalter(3000, 2), 10)
    test = columns(psalter(3000, 3), 10)
    model = AWD()
    assert model.out.weight is model.emb.weight
    lr, clip = 20.0, 0.25
    opt = torch.optim.SGD(model.parameters(), lr=lr, weight_decay=1.2e-6)
    start = perplexity(model, valid)
    print(f"before: {start:.1f}")
    seen, switched, at, state = [], None, 0, model.start(32)
    for step in range(args.steps):
        if at >= len(train) - 2:
            at, state = 0, model.start(32)  # next pass over the psalter
        base = args.bptt if torch.rand(1).item() < 0.95 else args.bptt / 2
        n = max(5, int(base + 2 * torch.randn(1).item()))
        n = min(n, len(train) - 1 - at)
        state = tuple(s.detach() for s in state)
        logits, state, raw, dropped = model(train[at : at + n], state)
        loss = F.cross_entropy(
            logits.flatten(0, 1), train[at + 1 : at + 1 + n].flatten()
        )
        full = loss + 1.0 * dropped.pow(2).mean()  # AR
        if n > 1:
            full = full + 0.5 * (raw[1:] - raw[:-1]).pow(2).mean()  # TAR
        opt.zero_grad()
        (full * n / args.bptt).backward()  # a long window counts for its words
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        opt.step()
        at += n

        if step % 20 == 19:
            if switched is not None:
                with averaged(opt):
                    ppl = perplexity(model, valid)
            else:
                ppl = perplexity(model, valid)
                if len(seen) > args.nonmono and ppl > min(seen[: -args.nonmono]):
                    switched = step
                    opt = torch.optim.ASGD(
                        model.parameters(), lr=lr, t0=0, lambd=0.0, weight_decay=1.2e-6
                    )
                    print(f"step {step + 1}: validation has stalled, averaging begins")
            seen.append(ppl)
            print(
                f"step {step + 1:4d} loss {loss.item():.3f} validation perplexity {ppl:.2f}"
            )

    own = perplexity(model, test)
    final = own
    if switched is not None and switched < args.steps - 1:
        with averaged(opt):
            final = perplexity(model, test)
        assert perplexity(model, test) == own  # the swap was undone
    print(
        f"test perplexity {final:.2f} (own weights {own:.2f}); averaging since {switched}"
    )
    if args.steps >= 420:
        assert switched is not None and final < 0.4 * start, (start, final)


if __name__ == "__main__":
    main()
