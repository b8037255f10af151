"""Caravans: put a list of oases into travelling order (sequence to sequence).

Stage 1: maximum likelihood.  Stage 2: minimum risk training (Shen et al. 2016) - for every source
some candidates are sampled from the model itself, their probabilities are renormalised among the
candidates, and the EXPECTED edit distance is minimised.  A fresh optimizer with a smaller rate
starts stage 2 on purpose: the second loss has another scale than the first.
"""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence

PAD, BOS, EOS, BASE = 0, 1, 2, 3
OASES, SHORT, LONG = 12, 3, 6
VOCAB = BASE + OASES
MLE_STEPS, MRT_STEPS, SAMPLES, SHARP = 75, 60, 6, 0.5


def make_sources(count, seed):
    rng = random.Random(seed)
    out = {}
    while len(out) < count:
        out[tuple(rng.choices(range(OASES), k=rng.randint(SHORT, LONG)))] = None
    return list(out)


def pad(rows):
    width = max(len(r) for r in rows)
    return torch.tensor([list(r) + [PAD] * (width - len(r)) for r in rows])


def tensors(sources):
    src = pad([[BASE + o for o in s] for s in sources])
    tgt = pad([[BASE + o for o in sorted(s)] + [EOS] for s in sources])
    return src, torch.tensor([len(s) for s in sources]), tgt


class Guide(nn.Module):
    def __init__(self, d=48, h=96):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d, padding_idx=PAD)
        self.enc, self.dec = nn.GRU(d, h, batch_first=True), nn.GRU(
            d, h, batch_first=True
        )
        self.out = nn.Linear(h, VOCAB)

    def encode(self, src, lengths):
        packed = pack_padded_sequence(
            self.emb(src), lengths, batch_first=True, enforce_sorted=False
        )
        return self.enc(packed)[1]  # the state at each row's own last word

    def logp(self, state, tgt):
        """Summed log probability of each target, <eos> included, pads left out."""
        logits = self.out(self.dec(self.emb(shift(tgt)), state)[0])
        nll = F.cross_entropy(
            logits.transpose(1, 2), tgt, ignore_index=PAD, reduction="none"
        )
        return -nll.sum(1)

    @torch.no_grad()
    def decode(self, state, g=None):
        """Greedy without, sampled with a random generator."""
        n = state.shape[1]
        word, done, words = (
            torch.full((n, 1), BOS),
            torch.zeros(n, dtype=torch.bool),
            [],
        )
        for _ in range(LONG + 2):
            y, state = self.dec(self.emb(word), state)
            logits = self.out(y[:, 0])
            logits[:, [PAD, BOS]] = -torch.inf
            pick = (
                torch.multinomial(logits.softmax(-1), 1, generator=g)[:, 0]
                if g is not None
                else logits.argmax(-1)
            )
            pick = pick.masked_fill(done, PAD)
            words.append(pick)
            done = done | (pick == EOS)
            word = pick[:, None]
        return torch.stack(words, 1)


def shift(tgt):
    return torch.cat([torch.full((len(tgt), 1), BOS), tgt[:, :-1]], 1)


def plain(row):
    words = []
    for w in row:
        if w in (EOS, PAD):
            break
        words.append(w)
    return tuple(words)


def edit_distance(a, b):
    prev = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        cur = [i]
        for j, y in enumerate(b, 1):
            cur.append(min(prev[j] + 1, cur[-1] + 1, prev[j - 1] + (x != y)))
        prev = cur
    return prev[-1]


def risks(candidates, references):
    return torch.tensor(
        [
            edit_distance(plain(c), plain(r)) / len(plain(r))
            for c, r in zip(candidates.tolist(), references.tolist())
        ]
    )


def expected_risk(model, sources, g):
    src, lengths, tgt = tensors(sources)
    n = len(sources)
    state = model.encode(src, lengths)
    wide = state.repeat_interleave(SAMPLES, dim=1)
    sampled = model.decode(wide.detach(), g)
    # the reference is one of the candidates; repeated candidates count once
    reference = F.pad(tgt, (0, sampled.shape[1] - tgt.shape[1]), value=PAD)
    rows = torch.cat([sampled.view(n, SAMPLES, -1), reference[:, None]], 1)
    keep = torch.ones(n, SAMPLES + 1, dtype=torch.bool)
    for i, group in enumerate(rows.tolist()):
        seen = set()
        for j in reversed(range(len(group))):  # from the end: the reference stays
            keep[i, j] = tuple(group[j]) not in seen
            seen.add(tuple(group[j]))
    assert keep[:, -1].all()
    flat = rows.flatten(0, 1)
    logp = model.logp(state.repeat_interleave(SAMPLES + 1, dim=1), flat).view(n, -1)
    q = (SHARP * logp).masked_fill(~keep, -torch.inf).softmax(1)
    risk = risks(flat, reference.repeat_interleave(SAMPLES + 1, dim=0)).view(n, -1)
    return (q * risk).sum(1).mean()


@torch.no_grad()
def evaluate(model, sources):
    model.eval()
    src, lengths, tgt = tensors(sources)
    greedy = risks(model.decode(model.encode(src, lengths)), tgt).mean().item()
    risk = expected_risk(model, sources, torch.Generator().manual_seed(4)).item()
    model.train()
    return greedy, risk


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=MLE_STEPS + MRT_STEPS)
    steps = ap.parse_args().steps
    first = round(steps * MLE_STEPS / (MLE_STEPS + MRT_STEPS))
    torch.manual_seed(2)
    rng, g = random.Random(2), torch.Generator().manual_seed(3)
    sources = make_sources(4120, seed=1)
    held, train = sources[:120], sources[120:]
    model = Guide()

    opt = torch.optim.Adam(model.parameters(), lr=8e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, first, eta_min=1e-3)
    at_first = evaluate(model, held)
    for step in range(first):
        src, lengths, tgt = tensors(rng.sample(train, 128))
        loss = -model.logp(model.encode(src, lengths), tgt).sum() / (tgt != PAD).sum()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(
                f"likelihood {step:3d} loss {loss.item():.3f} held (greedy, expected) risk "
                f"{evaluate(model, held)}"
            )

    after_mle = evaluate(model, held)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps - first):
        loss = expected_risk(model, rng.sample(train, 24), g)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 20 == 0:
            print(f"risk {step:3d} loss {loss.item():.3f} held {evaluate(model, held)}")
    end = evaluate(model, held)
    print(
        f"held-out (greedy, expected): untrained {at_first}, likelihood {after_mle}, risk {end}"
    )
    if steps >= MLE_STEPS + MRT_STEPS:
        assert after_mle[0] < 0.5 * at_first[0]
        assert end[1] < 0.9 * after_mle[1] and end[0] < after_mle[0] + 0.01


if __name__ == "__main__":
    main()
