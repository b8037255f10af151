"""CTC training of a small transformer encoder on strings of spoken digits."""
import argparse
import logging
import math
import os
import random
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

DIGITS = 8
FEAT_DIM = 16
RIGHT_CONTEXT = 6


class SyntheticSpeech:
    """Log energies of 16 bands; every digit moves between two spectra."""

    def __init__(self, seed):
        gen = torch.Generator().manual_seed(seed)
        self.start = 1.5 * torch.randn(DIGITS, FEAT_DIM, generator=gen)
        self.end = 1.5 * torch.randn(DIGITS, FEAT_DIM, generator=gen)

    def utterance(self, rng):
        digits = [rng.randrange(DIGITS) for _ in range(rng.randint(1, 5))]
        gen = torch.Generator().manual_seed(rng.getrandbits(40))
        parts = [torch.zeros(rng.randint(2, 5), FEAT_DIM)]
        for d in digits:
            n = rng.randint(10, 16)
            u = torch.linspace(0, 1, n)[:, None]
            parts.append((1 - u) * self.start[d] + u * self.end[d])
        x = torch.cat(parts)
        speaker = 0.3 * torch.randn(FEAT_DIM, generator=gen)
        x = x + speaker + 0.5 * torch.randn(x.shape, generator=gen) - 7.0
        return x, torch.tensor(digits) + 1

    def corpus(self, n, seed):
        rng = random.Random(seed)
        return [self.utterance(rng) for _ in range(n)]


def padding(batch):
    feats = nn.utils.rnn.pad_sequence([x for x, _ in batch], batch_first=True)
    labels = nn.utils.rnn.pad_sequence([y for _, y in batch], batch_first=True)
    feat_lens = torch.tensor([len(x) for x, _ in batch])
    label_lens = torch.tensor([len(y) for _, y in batch])
    return feats, feat_lens, labels, label_lens


def dynamic_batches(data, max_frames, rng):
    order = list(data)
    rng.shuffle(order)
    batch, longest = [], 0
    for utt in order:
        longest = max(longest, len(utt[0]))
        if batch and longest * (len(batch) + 1) > max_frames:
            yield padding(batch)
            batch, longest = [], len(utt[0])
        batch.append(utt)
    yield padding(batch)


def make_non_pad_mask(lengths, max_len):
    return torch.arange(max_len)[None, :] < lengths[:, None]


class GlobalCMVN(nn.Module):
    def __init__(self, data):
        super().__init__()
        frames = torch.cat([x for x, _ in data])
        self.register_buffer("mean", frames.mean(0))
        self.register_buffer("istd", 1.0 / frames.std(0))

    def forward(self, x):
        return (x - self.mean) * self.istd


class ConvSubsampling4(nn.Module):
    """Two strided convolutions; the input is extended by the right context."""

    def __init__(self, dim, channels=8):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, channels, 3, stride=2),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, stride=2),
            nn.ReLU(),
        )
        width = ((FEAT_DIM - 1) // 2 - 1) // 2
        self.out = nn.Linear(channels * width, dim)

    def forward(self, xs, lens):
        xs = F.pad(xs, (0, 0, 0, RIGHT_CONTEXT))
        xs = self.conv(xs.unsqueeze(1))
        b, c, t, f = xs.shape
        lens = ((lens + RIGHT_CONTEXT - 1) // 2 - 1) // 2
        return self.out(xs.transpose(1, 2).reshape(b, t, c * f)), lens


class Encoder(nn.Module):
    def __init__(self, cmvn, dim=48, heads=4, layers=2, dropout=0.1):
        super().__init__()
        self.global_cmvn = cmvn
        self.embed = ConvSubsampling4(dim)
        self.dim = dim
        layer = nn.TransformerEncoderLayer(
            dim, heads, 2 * dim, dropout, batch_first=True, norm_first=True
        )
        self.encoders = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.after_norm = nn.LayerNorm(dim)
        self.mask_after_cmvn = False

    def positions(self, n):
        rate = torch.exp(torch.arange(0, self.dim, 2) * (-math.log(1e4) / self.dim))
        angle = torch.arange(n)[:, None] * rate
        return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)

    def forward(self, xs, lens):
        masks = make_non_pad_mask(lens, xs.shape[1])
        xs = self.global_cmvn(xs)
        if self.mask_after_cmvn:
            xs = xs * masks.unsqueeze(-1)
        xs, lens = self.embed(xs, lens)
        xs = xs + self.positions(xs.shape[1])
        masks = make_non_pad_mask(lens, xs.shape[1])
        xs = self.encoders(xs, src_key_padding_mask=~masks)
        return self.after_norm(xs), lens


class ASRModel(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.ctc_lo = nn.Linear(encoder.dim, DIGITS + 1)

    def forward(self, feats, feat_lens, labels, label_lens):
        hidden, lens = self.encoder(feats, feat_lens)
        logp = self.ctc_lo(hidden).log_softmax(-1).transpose(0, 1)
        loss = F.ctc_loss(logp, labels, lens, label_lens, reduction="sum")
        return loss / len(feats)

    @torch.no_grad()
    def greedy(self, feats, feat_lens):
        hidden, lens = self.encoder(feats, feat_lens)
        best = self.ctc_lo(hidden).argmax(-1)
        out = []
        for row, n in zip(best.tolist(), lens.tolist()):
            row = row[:n]
            kept = [a for a, b in zip(row, [0] + row[:-1]) if a != b and a != 0]
            out.append(kept)
        return out


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (x != y))
    return row[-1]


def compute_wer(model, data, batch_size):
    model.eval()
    edits = total = 0
    for i in range(0, len(data), batch_size):
        chunk = data[i : i + batch_size]
        feats, feat_lens, _, _ = padding(chunk)
        for hyp, (_, ref) in zip(model.greedy(feats, feat_lens), chunk):
            edits += edit_distance(hyp, ref.tolist())
            total += len(ref)
    model.train()
    return edits / total


def warmup_lr(step, warmup):
    return min((step + 1) / warmup, (warmup / (step + 1)) ** 0.5)


def run(model, train_set, cv_set, args, exp_dir):
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: warmup_lr(s, 60))
    rng = random.Random(args.seed)
    step, epoch = 0, 0
    model.train()
    while step < args.steps:
        for batch in dynamic_batches(train_set, args.max_frames, rng):
            loss = model(*batch)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            sched.step()
            if step % 25 == 0:
                logging.info("epoch %d step %d loss %.3f", epoch, step, loss.item())
            step += 1
            if step == args.steps:
                break
        wer = compute_wer(model, cv_set, 16)
        logging.info("epoch %d cv WER %.2f%%", epoch, 100 * wer)
        torch.save(model.state_dict(), os.path.join(exp_dir, f"{epoch}.pt"))
        epoch += 1


@torch.no_grad()
def prove(model, cv_set):
    """Encoder output of short utterances alone and next to longer ones."""
    model.eval()
    chunk = sorted(cv_set, key=lambda u: len(u[0]))[:: len(cv_set) // 8]
    feats, feat_lens, _, _ = padding(chunk)
    together, lens = model.encoder(feats, feat_lens)
    worst = 0.0
    for i, utt in enumerate(chunk):
        x, n, _, _ = padding([utt])
        alone = model.encoder(x, n)[0][0]
        worst = max(worst, (together[i, : lens[i]] - alone).abs().max().item())
    logging.info("largest change of an output by batching %.2e", worst)
    print("fault shows:", "yes" if worst > 1e-3 else "no")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=260)
    parser.add_argument("--max_frames", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    torch.manual_seed(args.seed)
    speech = SyntheticSpeech(args.seed)
    train_set, cv_set = speech.corpus(900, 1), speech.corpus(120, 2)
    model = ASRModel(Encoder(GlobalCMVN(train_set)))
    if args.fixed:
        model.encoder.mask_after_cmvn = True
    with tempfile.TemporaryDirectory() as exp_dir:
        run(model, train_set, cv_set, args, exp_dir)
    logging.info("WER one by one %.2f%%", 100 * compute_wer(model, cv_set, 1))
    if args.prove:
        prove(model, cv_set)


if __name__ == "__main__":
    main()
