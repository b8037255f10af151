"""
Bird calls: pre-train a spectrogram CNN on many "source" species, then fine-tune on a few
recordings of new ones. First only the head is trained, later the last block is opened too.
"""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

SR = 4000
N_FFT = 128
HOP = 64


def make_call(f0, f1, pulses, gen):
    t = torch.arange(SR // 2) / SR
    jitter = 1 + 0.04 * torch.randn(1, generator=gen)
    freq = (f0 + (f1 - f0) * t / t[-1]) * jitter
    phase = 2 * math.pi * torch.cumsum(freq, 0) / SR
    gate = (
        torch.sin(2 * math.pi * pulses * t + 6 * torch.rand(1, generator=gen)) > -0.2
    ).float()
    return torch.sin(phase) * gate + 0.4 * torch.randn(t.shape, generator=gen)


def make_recordings(species, counts, seed):
    gen = torch.Generator().manual_seed(seed)
    waves, labels = [], []
    for label, (spec, n) in enumerate(zip(species, counts)):
        for _ in range(n):
            waves.append(make_call(*spec, gen))
            labels.append(label)
    return torch.stack(waves), torch.tensor(labels)


def log_spectrogram(waves):
    spec = torch.stft(
        waves, N_FFT, HOP, window=torch.hann_window(N_FFT), return_complex=True
    )
    x = torch.log1p(10 * spec.abs())
    # every clip is normalised by itself
    x = (x - x.mean((1, 2), keepdim=True)) / (x.std((1, 2), keepdim=True) + 1e-5)
    return x[:, :64].unsqueeze(1)


def spec_augment(x):
    x = x.clone()
    for i in range(x.size(0)):
        f = torch.randint(0, x.size(2) - 6, (1,)).item()
        t = torch.randint(0, x.size(3) - 4, (1,)).item()
        x[i, :, f : f + 6] = 0
        x[i, :, :, t : t + 4] = 0
    return x


def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(),
    )


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.block1, self.block2, self.block3 = (
            block(1, 12),
            block(12, 24),
            block(24, 48),
        )
        self.out_dim = 48

    def forward(self, x):
        return self.block3(self.block2(self.block1(x))).mean((2, 3))


class CallClassifier(nn.Module):
    def __init__(self, backbone, n_classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(backbone.out_dim, n_classes)

    def forward(self, x):
        return self.head(self.backbone(x))

    def train(self, mode=True):
        super().train(mode)
        # blocks that are not being trained keep their running statistics
        for m in self.backbone.children():
            if not any(p.requires_grad for p in m.parameters()):
                m.eval()
        return self


def evaluate(model, loader):
    model.eval()
    hits = torch.zeros(64)
    total = torch.zeros(64)
    loss = 0.0
    with torch.no_grad():
        for x, y in loader:
            logits = model(x)
            loss += F.cross_entropy(logits, y, reduction="sum").item()
            ok = (logits.argmax(1) == y).float()
            hits.index_add_(0, y, ok)
            total.index_add_(0, y, torch.ones_like(ok))
    seen = total > 0
    return (
        loss / total.sum().item(),
        (hits[seen] / total[seen]).mean().item(),
    )  # balanced accuracy


def train_epoch(model, loader, opt, augment=False):
    model.train()
    running, seen = 0.0, 0
    for x, y in loader:
        opt.zero_grad()
        loss = F.cross_entropy(model(spec_augment(x) if augment else x), y)
        loss.backward()
        opt.step()
        running += loss.item() * len(y)
        seen += len(y)
    return running / seen


def describe(model):
    n = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(
        f"   trainable parameters: {n} of {sum(p.numel() for p in model.parameters())}"
    )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument(
        "--epochs",
        type=int,
        default=18,
        help="fine-tuning epochs; the last block opens after a third",
    )
    ap.add_argument("--pretrain-epochs", type=int, default=6)
    ap.add_argument("--seed", type=int, default=11)
    args = ap.parse_args()
    torch.manual_seed(args.seed)

    # ---- source species
    source = [(300 + 150 * i, 500 + 120 * ((i * 3) % 8), 3 + i % 4) for i in range(8)]
    sw, sl = make_recordings(source, [40] * 8, seed=1)
    source_loader = DataLoader(
        TensorDataset(log_spectrogram(sw), sl), batch_size=32, shuffle=True
    )
    pre = CallClassifier(Backbone(), len(source))
    opt = torch.optim.Adam(pre.parameters(), lr=3e-3)
    for e in range(args.pretrain_epochs):
        print(f"pretrain {e}: {train_epoch(pre, source_loader, opt):.3f}")

    # ---- target species, unbalanced
    target = [(420, 900, 4), (900, 420, 4), (650, 660, 8), (1200, 1500, 2)]
    tw, tl = make_recordings(target, [80, 30, 20, 60], seed=2)
    vw, vl = make_recordings(target, [25, 25, 25, 25], seed=3)
    weights = 1.0 / torch.bincount(tl).float()[tl]
    sampler = WeightedRandomSampler(
        weights.double(), num_samples=len(tl), replacement=True
    )
    train_loader = DataLoader(
        TensorDataset(log_spectrogram(tw), tl), batch_size=24, sampler=sampler
    )
    val_loader = DataLoader(TensorDataset(log_spectrogram(vw), vl), batch_size=50)

    backbone = Backbone()
    backbone.load_state_dict(pre.backbone.state_dict())
    backbone.requires_grad_(False)
    model = CallClassifier(backbone, len(target))
    opt = torch.optim.AdamW(model.head.parameters(), lr=1e-2, weight_decay=1e-2)
    describe(model)

    open_at = max(1, args.epochs // 3)
    for epoch in range(args.epochs):
        if epoch == open_at:
            model.backbone.block3.requires_grad_(True)
            opt.add_param_group(
                {"params": list(model.backbone.block3.parameters()), "lr": 1e-3}
            )
            opt.param_groups[0]["lr"] = 3e-3
            print("-- opening block3")
            describe(model)
        tr = train_epoch(model, train_loader, opt, augment=True)
        vl_loss, bal = evaluate(model, val_loader)
        print(f"epoch {epoch}: train {tr:.3f} val {vl_loss:.3f} balanced acc {bal:.3f}")


if __name__ == "__main__":
    main()
