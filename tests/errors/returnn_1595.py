import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    steps: int
    fixed: bool
    prove: bool
    batch: int = 16
    lr: float = 1.5e-3
    gradient_clip_global_norm: float = 1.0
    gradient_noise: float = 0.0
    seed: int = 17


NUM_LABELS = 14  # index 0 is the CTC blank
NUM_MEL = 20


class UtteranceSource:
    """Every phoneme is a pair of formant bumps in a 20 band spectrogram lasting 3 to 5 frames."""

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)
        proto = torch.Generator().manual_seed(3)
        bands = torch.arange(NUM_MEL).float()
        f1 = torch.rand(NUM_LABELS, generator=proto) * 8 + 1
        f2 = torch.rand(NUM_LABELS, generator=proto) * 8 + 10
        self.proto = torch.exp(-((bands - f1[:, None]) ** 2) / 3) + torch.exp(
            -((bands - f2[:, None]) ** 2) / 3
        )

    def _int(self, lo, hi):
        return int(torch.randint(lo, hi, (1,), generator=self.gen))

    def utterance(self):
        labels, frames, prev = [], [], 0
        for _ in range(self._int(3, 7)):
            k = self._int(1, NUM_LABELS)
            if k == prev:
                k = k % (NUM_LABELS - 1) + 1
            prev = k
            labels.append(k)
            frames.append(self.proto[k].expand(self._int(3, 6), NUM_MEL))
        feat = torch.cat(frames)
        feat = feat + 0.5 * torch.randn(feat.shape, generator=self.gen)
        return feat, torch.tensor(labels)

    def batch(self, n):
        pairs = [self.utterance() for _ in range(n)]
        feat_len = torch.tensor([len(f) for f, _ in pairs])
        lab_len = torch.tensor([len(l) for _, l in pairs])
        feats = nn.utils.rnn.pad_sequence([f for f, _ in pairs], batch_first=True)
        labels = nn.utils.rnn.pad_sequence([l for _, l in pairs], batch_first=True)
        return feats, feat_len, labels, lab_len


class AcousticModel(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.inp = nn.Linear(NUM_MEL, dim)
        self.convs = nn.ModuleList(nn.Conv1d(dim, dim, 5, padding=2) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.out = nn.Linear(dim, NUM_LABELS)

    def forward(self, x):
        h = self.inp(x)
        for conv, norm in zip(self.convs, self.norms):
            h = h + F.relu(conv(norm(h).transpose(1, 2)).transpose(1, 2))
        return self.out(h)


def ctc(logits, batch):
    _, feat_len, labels, lab_len = batch
    logp = logits.float().log_softmax(-1).transpose(0, 1)
    return F.ctc_loss(logp, labels, feat_len, lab_len, blank=0, zero_infinity=True)


class Updater:
    def __init__(self, model, cfg):
        self.cfg = cfg
        self.model = model
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=cfg.lr, weight_decay=1e-2, eps=1e-8
        )
        self.scaler = torch.amp.GradScaler("cpu", growth_interval=1000)
        self.noise_gen = torch.Generator().manual_seed(cfg.seed)

    def step(self, loss):
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        if self.cfg.fixed:
            self.scaler.unscale_(self.optimizer)
        if self.cfg.gradient_noise:
            for p in self.model.parameters():
                p.grad += self.cfg.gradient_noise * torch.randn(
                    p.shape, generator=self.noise_gen
                )
        if self.cfg.gradient_clip_global_norm:
            nn.utils.clip_grad_norm_(
                self.model.parameters(), self.cfg.gradient_clip_global_norm
            )
        self.scaler.step(self.optimizer)
        self.scaler.update()


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (x != y))
    return row[-1]


@torch.no_grad()
def phone_error_rate(model, batches):
    model.eval()
    errors = total = 0
    for feats, feat_len, labels, lab_len in batches:
        best = model(feats).argmax(-1)
        for i in range(len(feats)):
            path = torch.unique_consecutive(best[i, : feat_len[i]])
            hyp = [k for k in path.tolist() if k != 0]
            ref = labels[i, : lab_len[i]].tolist()
            errors += edit_distance(ref, hyp)
            total += len(ref)
    model.train()
    return errors / total


def grad_norm(model):
    return torch.sqrt(
        sum(p.grad.double().pow(2).sum() for p in model.parameters())
    ).item()


def true_norm(model, batch):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(batch[0])
    grads = torch.autograd.grad(ctc(logits, batch), list(model.parameters()))
    return torch.sqrt(sum(g.double().pow(2).sum() for g in grads)).item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    a = ap.parse_args()
    cfg = Config(steps=a.steps, fixed=a.fixed, prove=a.prove)
    torch.manual_seed(cfg.seed)
    train, dev_source = UtteranceSource(1), UtteranceSource(2)
    dev = [dev_source.batch(32) for _ in range(2)]
    model = AcousticModel()
    updater = Updater(model, cfg)
    ratios = []
    for step in range(cfg.steps):
        batch = train.batch(cfg.batch)
        wanted = None
        if cfg.prove and step % 10 == 0:
            wanted = min(true_norm(model, batch), cfg.gradient_clip_global_norm)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(batch[0])
        loss = ctc(logits, batch)
        updater.step(loss)
        if wanted is not None:
            ratios.append(grad_norm(model) / wanted)
        if step % 20 == 0:
            print(
                f"step {step}, ctc {loss.item():.3f}, loss scale {updater.scaler.get_scale():.0f}"
            )
    print(f"dev phone error rate {phone_error_rate(model, dev):.3f}")
    if cfg.prove:
        print(
            f"norm seen by the optimizer / clipped norm of the gradient: min {min(ratios):.3g} max {max(ratios):.3g}"
        )
        print("fault shows:", "yes" if min(ratios) < 0.5 or max(ratios) > 1.5 else "no")


if __name__ == "__main__":
    main()
