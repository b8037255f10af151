"""Knocking code to letters by a transducer (RNN-T): encoder, predictor, joint, and the sum over
all alignments along the rows of a lattice.

Batches have as many rows as fit in a budget of frames, come from short to long in the first
epoch and in random order afterwards, and are collected in twos of unequal size, divided by the
symbols of both. The encoder reads forwards only, so that padding behind the end is harmless.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

BLANK, LETTERS, BANDS = 0, 5, 6  # letters are 1..5; the padding of labels is 0 as well


def recordings(n, seed):
    """A letter is so many knocks of a kind: bursts with rests between them."""
    gen = torch.Generator().manual_seed(seed)
    timbre = 1.5 * torch.randn(
        LETTERS, BANDS, generator=torch.Generator().manual_seed(700)
    )
    out = []
    for _ in range(n):
        word = torch.randint(
            0, LETTERS, (int(torch.randint(1, 6, (1,), generator=gen)),), generator=gen
        )
        frames = []
        for letter in word:
            knock, rest = torch.randint(2, 5, (2,), generator=gen).tolist()
            frames += [timbre[letter]] * knock + [torch.zeros(BANDS)] * rest
        x = torch.stack(frames)
        out.append((x + 0.2 * torch.randn(x.shape, generator=gen), word + 1))
    return out


def collate(rows):
    xs, ys = zip(*rows)
    pad = nn.utils.rnn.pad_sequence
    return (
        pad(xs, batch_first=True),
        torch.tensor([len(x) for x in xs]),
        pad(ys, batch_first=True),
        torch.tensor([len(y) for y in ys]),
    )


def by_budget(data, frames):
    """Rows of similar length, as many as fit into so many frames with the padding."""
    batches, batch = [], []
    for row in sorted(data, key=lambda r: len(r[0])):
        if batch and (len(batch) + 1) * len(row[0]) > frames:
            batches.append(collate(batch))
            batch = []
        batch.append(row)
    return batches + [collate(batch)]


class Transducer(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.encoder = nn.GRU(BANDS, width, batch_first=True)
        self.embed = nn.Embedding(1 + LETTERS, width)  # blank is the start
        self.predictor = nn.GRU(width, width, batch_first=True)
        self.joint = nn.Sequential(nn.Tanh(), nn.Linear(width, 1 + LETTERS))

    def forward(self, x, y):
        enc, _ = self.encoder(x)
        pred, _ = self.predictor(self.embed(F.pad(y, (1, 0), value=BLANK)))
        return self.joint(enc.unsqueeze(2) + pred.unsqueeze(1)).log_softmax(
            -1
        )  # B, T, U + 1, V

    @torch.no_grad()
    def greedy(self, x, n):
        """One row; at most two letters a frame."""
        enc, _ = self.encoder(x[None, :n])
        pred, state = self.predictor(self.embed(torch.tensor([[BLANK]])))
        said = []
        for frame in enc[0]:
            for _ in range(2):
                v = int(self.joint(frame + pred[0, 0]).argmax())
                if v == BLANK:
                    break
                said.append(v)
                pred, state = self.predictor(self.embed(torch.tensor([[v]])), state)
        return said


def transducer_loss(logp, n_x, y, n_y):
    """-> minus log probability of each row. Within a row of the lattice the recursion
    a[u] = logaddexp(b[u], a[u - 1] + e[u - 1]) is a cumulative logsumexp of b - E, plus E.
    """
    blank = logp[..., BLANK]
    emit = (
        logp[:, :, :-1]
        .gather(3, y[:, None, :, None].expand(-1, logp.size(1), -1, 1))
        .squeeze(3)
    )
    run = F.pad(emit.cumsum(2), (1, 0))
    rows = [run[:, 0]]
    for t in range(1, logp.size(1)):
        rows.append(
            torch.logcumsumexp(rows[-1] + blank[:, t - 1] - run[:, t], dim=1)
            + run[:, t]
        )
    alpha = torch.stack(rows, 1)
    i = torch.arange(len(y))
    # what lies behind the ends is computed but never read
    return -(alpha[i, n_x - 1, n_y] + blank[i, n_x - 1, n_y])


@torch.no_grad()
def evaluate(model, batches, tries=40):
    model.eval()
    loss = symbols = 0
    for x, n_x, y, n_y in batches:
        loss += transducer_loss(model(x, y), n_x, y, n_y).sum().item()
        symbols += n_y.sum().item()
    rows = [
        (x[i], n_x[i], y[i, : n_y[i]].tolist())
        for x, n_x, y, n_y in batches
        for i in range(len(x))
    ]
    rows = rows[:: max(1, len(rows) // tries)]
    right = sum(model.greedy(x, n) == word for x, n, word in rows)
    model.train()
    return loss / symbols, right / len(rows)


def in_order(batches):
    yield from batches
    while True:
        for i in torch.randperm(len(batches)).tolist():
            yield batches[i]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=70)
    p.add_argument("--frames", type=int, default=500)
    args = p.parse_args()
    torch.manual_seed(70)
    torch.set_num_threads(1)
    stream = in_order(by_budget(recordings(500, 701), args.frames))
    valid = by_budget(recordings(120, 702), args.frames)
    model = Transducer()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=2e-2, total_steps=args.steps
    )
    for step in range(1, args.steps + 1):
        pair = [next(stream), next(stream)]
        symbols = sum(n_y.sum() for *_, n_y in pair)
        optimizer.zero_grad()
        loss = 0.0
        for x, n_x, y, n_y in pair:
            part = transducer_loss(model(x, y), n_x, y, n_y).sum() / symbols
            part.backward()
            loss += part.item()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        schedule.step()
        if step % 10 == 0 or step == args.steps:
            val, right = evaluate(model, valid)
            print(
                f"step {step:3d} rows {'+'.join(str(len(b[0])) for b in pair)} loss {loss:.4f} valid {val:.4f} words right {right:.3f}"
            )


if __name__ == "__main__":
    main()
