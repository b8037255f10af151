"""Assign protein sequences to families with a GRU."""
import argparse
import random

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

AMINO = "ACDEFGHIKLMNPQRSTVWY"
TOK = {a: i + 1 for i, a in enumerate(AMINO)}
FAMILIES = 5


def motifs():
    rng = random.Random(808)
    return ["".join(rng.choice(AMINO) for _ in range(4)) for _ in range(FAMILIES)]


def sequences(n, seed):
    rng = random.Random(seed)
    bank = motifs()
    out = []
    for _ in range(n):
        fam = rng.randrange(FAMILIES)
        length = rng.randint(12, 48)
        s = [rng.choice(AMINO) for _ in range(length)]
        for _ in range(2):
            at = rng.randrange(0, length - 4)
            s[at : at + 4] = bank[fam]
        out.append((torch.tensor([TOK[a] for a in s]), fam))
    return out


def collate(items):
    seqs, fams = zip(*items)
    lengths = torch.tensor([len(s) for s in seqs])
    return (
        pad_sequence(seqs, batch_first=True, padding_value=0),
        lengths,
        torch.tensor(fams),
    )


class FamilyGRU(nn.Module):
    def __init__(self, dim=24, hidden=64, by_length=False):
        super().__init__()
        self.emb = nn.Embedding(len(AMINO) + 1, dim, padding_idx=0)
        self.conv = nn.Conv1d(dim, 48, 4)
        self.gru = nn.GRU(48, hidden, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.fc = nn.Linear(hidden, FAMILIES)
        self.by_length = by_length

    def forward(self, ids, lengths):
        e = nn.functional.pad(self.emb(ids).transpose(1, 2), (3, 0))
        out, _ = self.gru(torch.relu(self.conv(e)).transpose(1, 2))
        if self.by_length:
            last = out[torch.arange(len(ids)), lengths - 1]
        else:
            last = out[:, -1]
        return self.fc(self.drop(last))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hit = tot = 0
    for ids, lengths, fam in loader:
        hit += (model(ids, lengths).argmax(1) == fam).sum().item()
        tot += len(fam)
    model.train()
    return hit / tot


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(1234)

    train = DataLoader(
        sequences(1280, 1), batch_size=args.batch, shuffle=True, collate_fn=collate
    )
    test = DataLoader(sequences(320, 2), batch_size=64, collate_fn=collate)
    model = FamilyGRU(by_length=args.fixed)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    ce = nn.CrossEntropyLoss()

    step = 0
    for epoch in range(args.epochs):
        for ids, lengths, fam in train:
            loss = ce(model(ids, lengths), fam)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            opt.step()
            if step % 20 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} test accuracy {evaluate(model, test):.3f}")

    if args.prove:
        model.eval()
        ids, lengths, _ = next(iter(test))
        with torch.no_grad():
            together = model(ids, lengths)
            alone = torch.cat(
                [
                    model(ids[i : i + 1, :n], lengths[i : i + 1])
                    for i, n in enumerate(lengths.tolist())
                ]
            )
        gap = (together - alone).abs().max().item()
        flips = (together.argmax(1) != alone.argmax(1)).sum().item()
        print(
            f"same sequence in a batch and alone: largest score distance {gap:.5f}, {flips} of "
            f"{len(ids)} decisions differ"
        )
        print("fault shows:", "yes" if gap > 1e-3 else "no")


if __name__ == "__main__":
    main()
