"""Three-state secondary structure (H/E/C) from sequence alone, BiLSTM tagger.

Sequences come in families (an ancestor and mutated relatives), and whole
families are held out, otherwise the numbers are far too good.
"""
import argparse
import math
import random

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

AMINO = "ACDEFGHIKLMNPQRSTVWY"
STATES = "HEC"
PAD, IGNORE = 0, -100


def make_families(n_families, members, rng):
    emission = rng.dirichlet(np.full(len(AMINO), 0.5), size=3)
    mean_len = np.array([9, 5, 6])
    families = []
    for _ in range(n_families):
        labels = []
        state = rng.integers(3)
        target = rng.integers(40, 90)
        while len(labels) < target:
            labels += [state] * int(2 + rng.poisson(mean_len[state]))
            state = (state + rng.integers(1, 3)) % 3
        labels = np.array(labels[:target])
        ancestor = np.array([rng.choice(20, p=emission[s]) for s in labels])
        relatives = []
        for _ in range(members):
            seq = ancestor.copy()
            hit = np.flatnonzero(rng.random(target) < 0.25)
            for i in hit:
                seq[i] = rng.choice(20, p=emission[labels[i]])
            relatives.append((torch.from_numpy(seq + 1), torch.from_numpy(labels)))
        families.append(relatives)
    return families


class ProteinSet(Dataset):
    def __init__(self, families):
        self.items = [member for fam in families for member in fam]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    seqs, labels = zip(*batch)
    lengths = torch.tensor([len(s) for s in seqs])
    return (
        pad_sequence(seqs, batch_first=True, padding_value=PAD),
        pad_sequence(labels, batch_first=True, padding_value=IGNORE),
        lengths,
    )


class Tagger(nn.Module):
    def __init__(self, dim=32, hidden=48, p=0.3):
        super().__init__()
        self.embed = nn.Embedding(len(AMINO) + 1, dim, padding_idx=PAD)
        self.lstm = nn.LSTM(
            dim, hidden, num_layers=2, dropout=p, bidirectional=True, batch_first=True
        )
        self.head = nn.Sequential(
            nn.LayerNorm(2 * hidden), nn.Dropout(p), nn.Linear(2 * hidden, 3)
        )

    def forward(self, x, lengths):
        packed = pack_padded_sequence(
            self.embed(x), lengths, batch_first=True, enforce_sorted=False
        )
        out, _ = pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, total_length=x.size(1)
        )
        return self.head(out)


class Trainer:
    def __init__(self, model, train_loader, valid_loader, epochs, lr):
        self.model = model
        self.train_loader, self.valid_loader = train_loader, valid_loader
        self.epochs = epochs
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-2)
        total = epochs * len(train_loader)
        warmup = max(1, total // 10)

        def factor(step):
            if step < warmup:
                return (step + 1) / warmup
            return 0.5 * (
                1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup))
            )

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, factor)
        self.criterion = nn.CrossEntropyLoss(ignore_index=IGNORE)

    def train_epoch(self):
        self.model.train()
        loss_sum, residues = 0.0, 0
        for x, y, lengths in self.train_loader:
            self.optimizer.zero_grad()
            logits = self.model(x, lengths)
            loss = self.criterion(logits.flatten(0, 1), y.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            n = int(lengths.sum())
            loss_sum += loss.item() * n
            residues += n
        return loss_sum / residues

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        loss_sum, correct, residues = 0.0, 0, 0
        for x, y, lengths in self.valid_loader:
            logits = self.model(x, lengths)
            n = int(lengths.sum())
            loss_sum += self.criterion(logits.flatten(0, 1), y.flatten()).item() * n
            mask = y != IGNORE
            correct += int((logits.argmax(-1)[mask] == y[mask]).sum())
            residues += n
        return loss_sum / residues, correct / residues

    def fit(self):
        for epoch in range(1, self.epochs + 1):
            train_loss = self.train_epoch()
            valid_loss, q3 = self.evaluate()
            print(
                f"epoch {epoch:2d}  train {train_loss:.4f}  valid {valid_loss:.4f}  Q3 {100 * q3:.1f}%"
            )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=13)
    args = parser.parse_args()

    random.seed(args.seed)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)

    families = make_families(50, 10, rng)
    train_set, valid_set = ProteinSet(families[:40]), ProteinSet(families[40:])
    train_loader = DataLoader(
        train_set, args.batch_size, shuffle=True, collate_fn=collate
    )
    valid_loader = DataLoader(valid_set, 64, collate_fn=collate)

    model = Tagger()
    print(
        f"{len(train_set)} training chains, {len(valid_set)} held-out chains, "
        f"{sum(p.numel() for p in model.parameters())} parameters"
    )
    Trainer(model, train_loader, valid_loader, args.epochs, args.lr).fit()


if __name__ == "__main__":
    main()
