"""Connected-digit recognition on made-up mel spectrograms with CTC.

Utterances are bucketed by length, loaded by two workers, SpecAugment on the
training side. Speakers of the test part never occur in training.
"""
import argparse
import random

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

N_MELS, N_DIGITS, BLANK = 24, 10, 0


def synth_corpus(speakers, utts_per_speaker, seed, formants):
    rng = np.random.default_rng(seed)
    corpus = []
    bins = np.arange(N_MELS)
    for _ in range(speakers):
        shift, rate = rng.normal(0, 0.8), rng.uniform(0.85, 1.2)
        for _ in range(utts_per_speaker):
            digits = rng.integers(0, N_DIGITS, size=rng.integers(3, 7))
            frames = [np.zeros((rng.integers(2, 6), N_MELS))]
            for d in digits:
                n = max(7, int(rate * rng.integers(9, 13)))
                pos = np.linspace(0, 1, n)[:, None]
                seg = np.zeros((n, N_MELS))
                for start, stop in formants[d]:
                    centre = start + (stop - start) * pos + shift
                    seg += np.exp(-0.5 * ((bins[None] - centre) / 1.3) ** 2)
                frames += [3 * seg, np.zeros((rng.integers(1, 4), N_MELS))]
            mel = np.concatenate(frames)
            mel = mel + rng.normal(0, 0.35, mel.shape)
            corpus.append((mel.astype(np.float32), digits + 1))
    return corpus


class Utterances(Dataset):
    def __init__(self, corpus, augment):
        self.corpus, self.augment = corpus, augment

    def __len__(self):
        return len(self.corpus)

    def __getitem__(self, i):
        mel, digits = self.corpus[i]
        x = torch.from_numpy(mel)
        x = (x - x.mean(0)) / (x.std(0) + 1e-5)
        if self.augment:
            x = x.clone()
            f0 = int(torch.randint(0, N_MELS - 3, ()))
            x[:, f0 : f0 + int(torch.randint(0, 4, ()))] = 0
            t0 = int(torch.randint(0, len(x) - 4, ()))
            x[t0 : t0 + int(torch.randint(0, 4, ()))] = 0
        return x, torch.from_numpy(digits)


class BucketBatches(Sampler):
    """Batches of similar length, in a fresh random order every epoch."""

    def __init__(self, lengths, batch_size, seed):
        self.lengths, self.batch_size, self.seed = np.asarray(lengths), batch_size, seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return -(-len(self.lengths) // self.batch_size)

    def __iter__(self):
        rng = np.random.default_rng((self.seed, self.epoch))
        noise = rng.uniform(-6, 6, len(self.lengths))
        order = np.argsort(self.lengths + noise)
        batches = [
            order[i : i + self.batch_size].tolist()
            for i in range(0, len(order), self.batch_size)
        ]
        rng.shuffle(batches)
        return iter(batches)


def collate(items):
    feats, targets = zip(*items)
    return (
        pad_sequence(feats, batch_first=True),
        torch.tensor([len(f) for f in feats]),
        torch.cat(targets),
        torch.tensor([len(t) for t in targets]),
    )


def seed_worker(worker_id):
    worker_seed = torch.initial_seed() % 2**32
    np.random.seed(worker_seed)
    random.seed(worker_seed)


class Recogniser(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.subsample = nn.Conv1d(N_MELS, hidden, kernel_size=3, stride=2, padding=1)
        self.norm = nn.LayerNorm(hidden)
        self.rnn = nn.GRU(hidden, hidden, bidirectional=True, batch_first=True)
        self.out = nn.Sequential(nn.Dropout(0.1), nn.Linear(2 * hidden, N_DIGITS + 1))

    def forward(self, x, lengths):
        h = torch.relu(self.norm(self.subsample(x.transpose(1, 2)).transpose(1, 2)))
        lengths = (lengths - 1) // 2 + 1
        packed = pack_padded_sequence(
            h, lengths, batch_first=True, enforce_sorted=False
        )
        h, _ = pad_packed_sequence(
            self.rnn(packed)[0], batch_first=True, total_length=h.size(1)
        )
        return self.out(h).log_softmax(-1), lengths


def greedy(log_probs, lengths):
    hyps = []
    for path, n in zip(log_probs.argmax(-1), lengths):
        path = torch.unique_consecutive(path[:n])
        hyps.append(path[path != BLANK].tolist())
    return hyps


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (x != y))
    return row[-1]


def error_rate(model, loader):
    model.eval()
    errors = words = 0
    with torch.no_grad():
        for x, x_len, y, y_len in loader:
            log_probs, out_len = model(x, x_len)
            for hyp, ref in zip(greedy(log_probs, out_len), y.split(y_len.tolist())):
                errors += edit_distance(hyp, ref.tolist())
                words += len(ref)
    return errors / words


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--seed", type=int, default=7)
    args = ap.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)

    formants = np.random.default_rng(1).uniform(2, N_MELS - 3, size=(N_DIGITS, 2, 2))
    train_set = Utterances(synth_corpus(40, 12, 100, formants), augment=True)
    test_set = Utterances(synth_corpus(8, 10, 200, formants), augment=False)
    sampler = BucketBatches([len(m) for m, _ in train_set.corpus], 16, args.seed)
    train_loader = DataLoader(
        train_set,
        batch_sampler=sampler,
        collate_fn=collate,
        num_workers=args.workers,
        worker_init_fn=seed_worker,
        generator=torch.Generator().manual_seed(args.seed),
    )
    test_loader = DataLoader(test_set, batch_size=32, collate_fn=collate)

    model = Recogniser()
    ctc = nn.CTCLoss(blank=BLANK, zero_infinity=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.88)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        total = count = 0
        for x, x_len, y, y_len in train_loader:
            log_probs, out_len = model(x, x_len)
            loss = ctc(log_probs.transpose(0, 1), y, out_len, y_len)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item() * len(x)
            count += len(x)
        scheduler.step()
        print(
            f"epoch {epoch + 1}: ctc {total / count:.3f}  digit error rate {100 * error_rate(model, test_loader):.1f}%"
        )


if __name__ == "__main__":
    main()
