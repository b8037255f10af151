"""ESPNET-3319: a schedule that is made of batches is stepped once in an epoch.

Source: https://github.com/espnet/espnet/pull/3319. The trainer knows two families of
schedulers, those of batches and those of epochs, and OneCycleLR is entered in the
second. It has as many steps as the training has batches and gets one for each epoch:
the rate stays at its warm-up to the end. --fixed enters it in the first.
"""

import argparse
from abc import ABC

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim.lr_scheduler import ExponentialLR, OneCycleLR
from torch.utils.data import DataLoader

PHONES, MELS = 6, 10


class AbsBatchStepScheduler(ABC):
    pass


class AbsEpochStepScheduler(ABC):
    pass


AbsEpochStepScheduler.register(ExponentialLR)


class Utterances:
    """Each phone has a spectrum and lasts for some frames; label 0 is the blank."""

    def __init__(self, count, seed=2):
        rng = np.random.default_rng(seed)
        spectra = rng.normal(size=(PHONES + 1, MELS))
        self.items = []
        for _ in range(count):
            phones = rng.integers(1, PHONES + 1, size=rng.integers(3, 6))
            frames = np.repeat(phones, rng.integers(4, 8, size=len(phones)))
            mels = spectra[frames] + 0.4 * rng.normal(size=(len(frames), MELS))
            item = torch.tensor(mels, dtype=torch.float32), torch.from_numpy(phones)
            self.items.append(item)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]

    @staticmethod
    def collate(items):
        speech, text = zip(*items)
        lengths = [torch.tensor([len(x) for x in part]) for part in (speech, text)]
        return pad_sequence(speech, True), lengths[0], torch.cat(text), lengths[1]


class CTCModel(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.subsample = nn.Conv1d(MELS, width, 3, stride=2, padding=1)
        self.encoder = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.output = nn.Linear(2 * width, PHONES + 1)
        self.ctc = nn.CTCLoss(zero_infinity=True)

    def forward(self, speech, speech_lengths, text, text_lengths):
        hidden = self.subsample(speech.transpose(1, 2)).relu().transpose(1, 2)
        logp = self.output(self.encoder(hidden)[0]).log_softmax(-1)
        frames = (speech_lengths + 1) // 2
        return self.ctc(logp.transpose(0, 1), text, frames, text_lengths)


class Trainer:
    def __init__(self, model, optimizer, scheduler):
        self.model, self.optimizer, self.scheduler = model, optimizer, scheduler
        self.rates, self.losses = [], []

    def train_one_epoch(self, iterator, budget):
        self.model.train()
        for batch in iterator:
            if len(self.rates) == budget:
                return
            self.rates.append(self.optimizer.param_groups[0]["lr"])
            loss = self.model(*batch)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optimizer.step()
            if isinstance(self.scheduler, AbsBatchStepScheduler):
                self.scheduler.step()
            self.losses.append(loss.item())
            print(f"batch {len(self.losses)} loss_ctc {loss.item():.4f}", flush=True)

    def run(self, iterator, max_epoch, budget):
        for epoch in range(1, max_epoch + 1):
            self.train_one_epoch(iterator, budget)
            if isinstance(self.scheduler, AbsEpochStepScheduler):
                self.scheduler.step()
            print(f"{epoch}epoch results: loss={np.mean(self.losses[-5:]):.4f}")


def one_cycle(optimizer, steps):
    return OneCycleLR(optimizer, max_lr=0.02, total_steps=steps + 1, pct_start=0.4)


def planned(steps):
    """The rates of the cycle, by an optimizer that trains nothing."""
    optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(1))])
    scheduler, rates = one_cycle(optimizer, steps), []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def main(argv=None):
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=20)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    args = cli.parse_args(argv)
    family = AbsBatchStepScheduler if args.fixed else AbsEpochStepScheduler
    family.register(OneCycleLR)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = Utterances(80)
    iterator = DataLoader(data, 16, shuffle=True, collate_fn=Utterances.collate)
    model = CTCModel()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-4)
    trainer = Trainer(model, optimizer, one_cycle(optimizer, args.steps))
    trainer.run(iterator, -(-args.steps // len(iterator)), args.steps)
    if args.prove:
        as_planned = np.allclose(trainer.rates, planned(args.steps), rtol=1e-6)
        print("fault shows:", "no" if as_planned else "yes")


if __name__ == "__main__":
    main()
