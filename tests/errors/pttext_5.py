"""Classifies short reports of faults with an LSTM, in padded batches.

After practical-torchtext, issue 5.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

WORDS, KINDS, PAD = 80, 4, 0


class ReportClassifier(nn.Module):
    def __init__(self, last_word, width=48):
        super().__init__()
        self.last_word = last_word
        self.embedding = nn.Embedding(WORDS + 1, width, padding_idx=PAD)
        self.encoder = nn.LSTM(width, width)
        self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.predictor = nn.Linear(width, KINDS)

    def forward(self, report, lengths):
        hidden, _ = self.encoder(self.embedding(report))
        if self.last_word:
            feature = hidden[lengths - 1, torch.arange(len(lengths))]
        else:
            feature = hidden[-1, :, :]
        return self.predictor(self.layers(feature))


def reports(count, seed):
    """Words that follow one another by rules; the kind hangs on the last of them."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(count):
        length = int(torch.randint(4, 22, (), generator=generator))
        words = torch.randint(1, WORDS + 1, (length,), generator=generator)
        kind = int(words[-3:].sum()) % 160 // 40
        made.append((words, kind))
    return made


def collate(batch):
    words, kinds = zip(*batch)
    lengths = torch.tensor([len(one) for one in words])
    return nn.utils.rnn.pad_sequence(words, padding_value=PAD), lengths, kinds


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = count = 0
    for report, lengths, kinds in loader:
        right += (model(report, lengths).argmax(1) == torch.tensor(kinds)).sum().item()
        count += len(kinds)
    return right / count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train, valid = reports(2048, args.seed), reports(512, args.seed + 1)
    loader = DataLoader(train, 64, shuffle=True, collate_fn=collate)
    valid_loader = DataLoader(valid, 64, collate_fn=collate)
    model = ReportClassifier(last_word=args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    step = 0
    for epoch in range(args.epochs):
        model.train()
        for report, lengths, kinds in loader:
            loss = F.cross_entropy(model(report, lengths), torch.tensor(kinds))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"epoch {epoch} accuracy {accuracy(model, valid_loader):.4f}", flush=True)
    if args.prove:
        model.eval()
        with torch.no_grad():
            together = model(*collate(valid[:64])[:2])
            alone = torch.cat([model(*collate([one])[:2]) for one in valid[:64]])
        gap = (together - alone).abs().max().item()
        print(f"a report alone and in a batch are apart by up to {gap:.6f}")
        print("fault shows:", "yes" if gap > 1e-3 else "no", flush=True)


if __name__ == "__main__":
    main()
