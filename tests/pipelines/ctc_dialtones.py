"""Reads telephone numbers off dial tones: a spectrum a frame, no alignment, CTC.
In the first epoch the calls come sorted, short numbers first (they align more
easily); afterwards they are shuffled. The evaluation decodes greedily.

    python ctc_dialtones.py --steps 30
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F

KEYS = "123456789*0#"
ROWS, COLS = 4, 3
BINS = 16
BLANK = 0


def call(g, digits):
    """Frames of a call: two bins are loud while a key is held, pauses between."""
    frames = []
    keys = torch.randint(len(KEYS), (digits,), generator=g)
    for key in keys.tolist():
        held, pause = torch.randint(5, 9, (2,), generator=g).tolist()
        tone = torch.zeros(held, BINS)
        tone[:, 1 + key // COLS] = 1.0
        tone[:, 8 + 2 * (key % COLS)] = 1.0
        frames += [tone, torch.zeros(pause, BINS)]
    spectrum = torch.cat(frames)
    spectrum += 0.15 * torch.randn(spectrum.shape, generator=g).abs()
    return torch.log1p(10 * spectrum), keys + 1


def batches(calls, size, order):
    for i in range(0, len(order) - size + 1, size):
        specs, texts = zip(*(calls[j] for j in order[i : i + size]))
        yield (
            nn.utils.rnn.pad_sequence(specs, batch_first=True).transpose(1, 2),
            torch.tensor([len(s) for s in specs]),
            torch.cat(texts),  # targets in one row, as CTC accepts them
            torch.tensor([len(t) for t in texts]),
        )


class Listener(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.conv = nn.Conv1d(BINS, width, kernel_size=7, stride=4, padding=3)
        self.norm = nn.BatchNorm1d(width)
        self.gru = nn.GRU(width, width // 2, bidirectional=True)
        self.fc = nn.Linear(width, len(KEYS) + 1)

    def forward(self, x, lengths):
        x = self.conv(x).permute(2, 0, 1)  # (T, N, width)
        out_lengths = (lengths - 1) // 4 + 1
        # silence behind the end of a call must not count in the batch's statistics
        real = torch.arange(len(x))[:, None] < out_lengths
        normed = torch.zeros_like(x)
        normed[real] = F.relu(self.norm(x[real]))
        packed = nn.utils.rnn.pack_padded_sequence(
            normed, out_lengths, enforce_sorted=False
        )
        around, _ = nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0])
        return self.fc(normed + around).log_softmax(2), out_lengths


def greedy(log_probs, lengths):
    best = log_probs.argmax(2).T
    for path, length in zip(best, lengths):
        path = torch.unique_consecutive(path[:length])
        yield path[path != BLANK].tolist()


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def error_rate(model, calls):
    model.eval()
    wrong = total = 0
    with torch.no_grad():
        for x, lengths, texts, sizes in batches(calls, 20, range(len(calls))):
            log_probs, lengths = model(x, lengths)
            for guess, text in zip(
                greedy(log_probs, lengths), texts.split(sizes.tolist())
            ):
                wrong += edit_distance(guess, text.tolist())
                total += len(text)
    model.train()
    return wrong / total


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=30)
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(11)
    sizes = torch.randint(2, 8, (240,), generator=g).tolist()
    calls = [call(g, n) for n in sizes]
    test = [call(g, 6) for _ in range(40)]

    model = Listener()
    ctc = nn.CTCLoss(blank=BLANK, zero_infinity=True)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=1e-3)
    epoch = step = 0
    while step < args.steps:
        if epoch == 0:
            order = sorted(range(len(calls)), key=lambda i: len(calls[i][0]))
        else:
            order = torch.randperm(len(calls)).tolist()
        for x, lengths, texts, text_lengths in batches(calls, 16, order):
            log_probs, out_lengths = model(x, lengths)
            loss = ctc(log_probs, texts, out_lengths, text_lengths)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            opt.step()
            step += 1
            print(f"epoch {epoch} step {step} ctc {loss.item():.4f}", flush=True)
            if step == args.steps:
                break
        epoch += 1
        print(f"error rate {error_rate(model, test):.3f}")


if __name__ == "__main__":
    main()
