#!/usr/bin/env python3
"""CTC recogniser on raw waveforms with a learnable filterbank (tone 'words')."""
import argparse
import dataclasses
import logging
import math

import numpy as np
import torch

logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")


@dataclasses.dataclass
class TrainerOptions:
    accum_grad: int
    grad_clip: float
    log_interval: int
    max_update: int
    fixed: bool


class Fbank(torch.nn.Module):
    """pairs of sine/cosine like filters, magnitude, log compression"""

    def __init__(self, n_filters=24, width=64, hop=32):
        super().__init__()
        t = torch.arange(width) / width
        f = torch.linspace(1, 20, n_filters)[:, None]
        win = torch.hann_window(width)
        w = torch.cat(
            [torch.cos(2 * math.pi * f * t) * win, torch.sin(2 * math.pi * f * t) * win]
        )
        self.conv = torch.nn.Conv1d(1, 2 * n_filters, width, stride=hop, bias=False)
        self.conv.weight.data.copy_(w[:, None] / width * 4)

    def forward(self, wav):
        re, im = self.conv(wav[:, None]).chunk(2, dim=1)
        mag = torch.sqrt(re**2 + im**2)
        return torch.log1p(10 * mag).transpose(1, 2)


class ASRModel(torch.nn.Module):
    def __init__(self, vocab, dim=48):
        super().__init__()
        self.frontend = Fbank()
        self.norm = torch.nn.LayerNorm(24)
        self.encoder = torch.nn.LSTM(24, dim, batch_first=True, bidirectional=True)
        self.ctc_lo = torch.nn.Linear(2 * dim, vocab)
        self.ctc_loss = torch.nn.CTCLoss(blank=0, reduction="sum")

    def forward(self, speech, text, text_lengths):
        h, _ = self.encoder(self.norm(self.frontend(speech)))
        lp = self.ctc_lo(h).log_softmax(-1)
        olens = torch.full((len(speech),), lp.size(1), dtype=torch.long)
        loss = self.ctc_loss(lp.transpose(0, 1), text, olens, text_lengths) / len(
            speech
        )
        hyp = [torch.unique_consecutive(u) for u in lp.detach().argmax(-1)]
        hyp = [u[u > 0].tolist() for u in hyp]
        ref = [t[:n].tolist() for t, n in zip(text, text_lengths)]
        stats = {
            "loss": loss.detach().item(),
            "acc": float(np.mean([a == b for a, b in zip(hyp, ref)])),
        }
        return loss, stats


class UtteranceSet:
    def __init__(self, n, seed, silent=()):
        rng = np.random.default_rng(seed)
        self.wav, self.txt = [], []
        for i in range(n):
            words = rng.integers(1, 7, rng.integers(2, 5))
            sig = np.zeros(1536, dtype=np.float32)
            for k, w in enumerate(words):
                t = np.arange(288) / 64
                sig[40 + 370 * k : 328 + 370 * k] = np.sin(
                    2 * np.pi * (2.5 * w) * t + rng.uniform(0, 6)
                )
            sig += 0.05 * rng.standard_normal(len(sig)).astype(np.float32)
            if i in silent:  # the microphone was muted in this one
                sig[:] = 0
            self.wav.append(sig)
            self.txt.append(words)

    def iterator(self, bs, shuffle_seed=None):
        order = np.arange(len(self.wav))
        if shuffle_seed is not None:
            np.random.default_rng(shuffle_seed).shuffle(order)
        for k in range(0, len(order) - bs + 1, bs):
            idx = order[k : k + bs]
            lens = torch.tensor([len(self.txt[i]) for i in idx])
            text = torch.zeros(bs, 4, dtype=torch.long)
            for r, i in enumerate(idx):
                text[r, : lens[r]] = torch.from_numpy(self.txt[i])
            yield torch.from_numpy(np.stack([self.wav[i] for i in idx])), text, lens


class Trainer:
    def __init__(self, model, optimizer, scheduler, options):
        self.model, self.optimizer, self.scheduler, self.options = (
            model,
            optimizer,
            scheduler,
            options,
        )
        self.num_update = 0
        self.iiter = 0
        self.applied = []

    def train_one_epoch(self, iterator):
        opt = self.options
        self.model.train()
        for batch in iterator:
            if self.num_update >= opt.max_update:
                return
            self.iiter += 1
            loss, stats = self.model(*batch)
            loss = loss / opt.accum_grad
            loss.backward()

            if self.iiter % opt.accum_grad == 0:
                grad_norm = torch.nn.utils.clip_grad_norm_(
                    self.model.parameters(), max_norm=opt.grad_clip
                )
                if not torch.isfinite(grad_norm):
                    logging.warning(
                        f"The grad norm is {grad_norm}. Skipping updating the model."
                    )
                    if opt.fixed:
                        self.optimizer.zero_grad()
                    self.applied.append(False)
                else:
                    self.optimizer.step()
                    self.scheduler.step()
                    self.optimizer.zero_grad()
                    self.applied.append(True)
                self.num_update += 1
                if self.num_update % opt.log_interval == 0:
                    print(
                        f"update {self.num_update}: loss={stats['loss']:.3f} acc={stats['acc']:.3f} lr={self.scheduler.get_last_lr()[0]:.2e}"
                    )

    @torch.no_grad()
    def validate_one_epoch(self, iterator):
        self.model.eval()
        s = [self.model(*b)[1] for b in iterator]
        return {k: float(np.mean([x[k] for x in s])) for k in s[0]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--steps", type=int, default=120, help="updates (each of accum_grad batches)"
    )
    parser.add_argument("--accum_grad", type=int, default=2)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = ASRModel(vocab=7)
    optim = torch.optim.Adam(model.parameters(), lr=5e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(
        optim, lambda n: min((n + 1) / 10, ((n + 1) / 10) ** -0.5)
    )
    trainer = Trainer(
        model,
        optim,
        sched,
        TrainerOptions(args.accum_grad, 5.0, 10, args.steps, args.fixed),
    )
    train_set, dev_set = UtteranceSet(960, 1, silent=(411,)), UtteranceSet(96, 2)
    epoch = 0
    while trainer.num_update < args.steps:
        epoch += 1
        trainer.train_one_epoch(train_set.iterator(8, epoch))
        print(
            f"{epoch}epoch results: [valid]",
            trainer.validate_one_epoch(dev_set.iterator(16)),
        )
    if args.prove:
        a = trainer.applied
        first = a.index(False) if False in a else len(a)
        print(
            "fault shows:", "yes" if first + 1 < len(a) and not any(a[first:]) else "no"
        )
