"""Syllables in the song of warblers (conv1d, LSTM), CTC on a stream without end.

Two workers make songs of their own, sort them in a buffer and cut batches by a number
of frames, so that lengths in a batch are alike and its size varies. The losses of two
batches are sums, in the hundreds, and gradients are divided by the number of syllables
before clipping. Packed sequences; time is halved by a stride, and lengths with it. The
bias of the forget gate and that of the blank are set in place. ReduceLROnPlateau at
each eighth step; the held-out songs are decoded by a prefix beam search at the end.
"""

import argparse
import math

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SYLLABLES, BANDS, WIDTH = 6, 10, 48


def song(generator, sounds):
    count = int(torch.randint(2, 7, (1,), generator=generator))
    syllables = torch.randint(1, SYLLABLES + 1, (count,), generator=generator)
    lengths = torch.randint(4, 8, (count,), generator=generator)
    parts, gap = [], torch.zeros(1, BANDS)
    frames = sounds[torch.repeat_interleave(syllables, lengths)]
    for part in frames.split(lengths.tolist()):
        parts += [part, gap, gap]
    frames = torch.cat(parts)
    return frames + 0.3 * torch.randn(frames.shape, generator=generator), syllables


def collate(songs):
    songs = sorted(songs, key=lambda pair: -len(pair[0]))
    frames, syllables = zip(*songs)
    lengths = torch.tensor([len(f) for f in frames])
    counts = torch.tensor([len(s) for s in syllables])
    return pad_sequence(frames, True), lengths, torch.cat(syllables), counts


class Songs(IterableDataset):
    def __init__(self, sounds, seed, budget=700, buffer=64):
        self.sounds, self.seed = sounds, seed
        self.budget, self.buffer = budget, buffer

    def batches(self, songs):
        batch, longest = [], 0
        for one in sorted(songs, key=lambda pair: -len(pair[0])):
            longest = max(longest, len(one[0]))
            if batch and (len(batch) + 1) * longest > self.budget:
                yield batch
                batch, longest = [], len(one[0])
            batch.append(one)
        yield batch

    def __iter__(self):
        worker = get_worker_info()
        seed = self.seed * 1000 + (worker.id if worker else 0)
        generator = torch.Generator().manual_seed(seed)
        while True:
            songs = [song(generator, self.sounds) for _ in range(self.buffer)]
            batches = list(self.batches(songs))
            for index in torch.randperm(len(batches), generator=generator).tolist():
                yield collate(batches[index])


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.halve = nn.Conv1d(BANDS, 32, 3, stride=2, padding=1)
        self.lstm = nn.LSTM(32, WIDTH, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * WIDTH, SYLLABLES + 1)
        with torch.no_grad():
            for name, parameter in self.lstm.named_parameters():
                if "bias_ih" in name:
                    parameter[WIDTH : 2 * WIDTH].fill_(1.0)
            self.out.bias[0] = -1.0

    def forward(self, frames, lengths):
        halved = self.halve(frames.transpose(1, 2)).relu().transpose(1, 2)
        lengths = (lengths + 1) // 2
        packed = pack_padded_sequence(halved, lengths, batch_first=True)
        hidden, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.out(hidden).log_softmax(-1), lengths


def log_sum(*values):
    return torch.logsumexp(torch.tensor(values), 0).item()


def decode(log_chances, width=4):
    nothing = (-math.inf, -math.inf)
    beams = {(): (0.0, -math.inf)}  # log chances of an end in a blank, and of another
    for row in log_chances.tolist():
        likely = sorted(range(1, SYLLABLES + 1), key=lambda s: -row[s])[:2]
        new = {}
        for prefix, (blank, other) in beams.items():
            old = new.get(prefix, nothing)
            again = log_sum(old[1], other + row[prefix[-1]]) if prefix else old[1]
            new[prefix] = (log_sum(old[0], blank + row[0], other + row[0]), again)
            for syllable in likely:
                repeated = prefix and prefix[-1] == syllable
                base = blank if repeated else log_sum(blank, other)
                longer = (*prefix, syllable)
                old = new.get(longer, nothing)
                new[longer] = (old[0], log_sum(old[1], base + row[syllable]))
        best = sorted(new.items(), key=lambda item: -max(item[1]))
        beams = dict(best[:width])
    return max(beams, key=lambda prefix: max(beams[prefix]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sounds = torch.randn(SYLLABLES + 1, BANDS) * 1.5
    songs = Songs(sounds, 1)
    loader = DataLoader(songs, batch_size=None, num_workers=2, prefetch_factor=2)
    generator = torch.Generator().manual_seed(77)
    held_out = collate([song(generator, sounds) for _ in range(24)])
    net, ctc = Listener(), nn.CTCLoss(reduction="sum", zero_infinity=True)
    optimizer = torch.optim.RAdam(net.parameters(), lr=1.5e-2)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=0
    )
    stream = iter(loader)
    for step in range(options.steps):
        optimizer.zero_grad()
        targets = 0
        for _ in range(2):
            frames, lengths, syllables, counts = next(stream)
            log_chances, lengths = net(frames, lengths)
            loss = ctc(log_chances.transpose(0, 1), syllables, lengths, counts)
            loss.backward()
            targets += int(counts.sum())
        for parameter in net.parameters():
            parameter.grad.div_(targets)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        if step % 8 == 7 or step + 1 == options.steps:
            net.eval()
            with torch.inference_mode():
                frames, lengths, syllables, counts = held_out
                log_chances, lengths = net(frames, lengths)
                loss = ctc(log_chances.transpose(0, 1), syllables, lengths, counts)
                held_out_loss = (loss / counts.sum()).item()
            net.train()
            schedule.step(held_out_loss)
            rate = optimizer.param_groups[0]["lr"]
            print(f"step {step} held out {held_out_loss:.3f} rate {rate:g}")
    truths = syllables.split(counts.tolist())[:8]
    heard = [decode(log_chances[i, : lengths[i]]) for i in range(8)]
    right = sum(h == tuple(truth.tolist()) for h, truth in zip(heard, truths))
    print(
        f"{right} of 8 songs without an error, {sum(map(len, heard))} syllables heard"
    )


if __name__ == "__main__":
    main()
