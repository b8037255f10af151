"""Fault detector for kettles: Deep SVDD (soft boundary) on boiling spectra, trained on good kettles only.

Two stages: an autoencoder warms the encoder up, then its decoder is thrown away and the encoder pulls all
good spectra towards a FIXED centre (the mean embedding of the warmed encoder).  No layer of the encoder has
a bias and no activation is bounded, else the constant solution would be optimal.  The radius is not trained
by gradients: it is set to a quantile of the distances after each epoch.  Centre and radius are buffers, so
they travel with the checkpoint; the run stops in the middle of stage two and resumes from that file.
"""
import argparse
import io
import json
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CFG = {
    "data": {"bins": 48, "good_train": 1200, "good_test": 300, "bad_test": 100},
    "model": {"hidden": 40, "code": 10, "slope": 0.1},
    "pretrain": {"epochs": 6, "lr": 3e-3, "batch": 64, "weight_decay": 1e-6},
    "svdd": {
        "epochs": 14,
        "lr": 1e-3,
        "batch": 64,
        "weight_decay": 1e-5,
        "nu": 0.05,
        "hard_epochs": 3,
    },
    "seed": 31,
}


def boil(n, bins, gen, faulty=False):
    """Log spectrum of boiling: two resonances whose positions move with the water level."""
    f = torch.linspace(0, 1, bins)
    level = torch.rand(n, 1, generator=gen)
    gain = 1 + 0.2 * torch.randn(n, 1, generator=gen)
    spec = gain * torch.exp(-(((f - 0.2 - 0.15 * level) / 0.07) ** 2))
    spec = spec + 0.7 * gain * torch.exp(-(((f - 0.55 - 0.25 * level) / 0.1) ** 2))
    if faulty:  # scale or a loose element: a third line, or the second one drifts
        kind = torch.rand(n, 1, generator=gen) < 0.5
        line = 0.6 * torch.exp(
            -(((f - 0.05 - 0.9 * torch.rand(n, 1, generator=gen)) / 0.03) ** 2)
        )
        drift = 0.7 * torch.exp(-(((f - 0.75 + 0.25 * level) / 0.06) ** 2))
        spec = spec + torch.where(kind, line, drift)
    return spec + 0.06 * torch.randn(n, bins, generator=gen)


class Encoder(nn.Module):
    def __init__(self, bins, hidden, code, slope):
        super().__init__()
        self.slope = slope
        self.a, self.b = nn.Linear(bins, hidden, bias=False), nn.Linear(
            hidden, hidden, bias=False
        )
        self.c = nn.Linear(hidden, code, bias=False)

    def forward(self, x):
        h = F.leaky_relu(self.a(x), self.slope)
        return self.c(F.leaky_relu(self.b(h), self.slope))


class Detector(nn.Module):
    def __init__(self, encoder, bins, code):
        super().__init__()
        self.encoder = encoder
        self.register_buffer("shift", torch.zeros(bins))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("centre", torch.full((code,), float("nan")))
        self.register_buffer("radius2", torch.zeros(()))

    def forward(self, x):
        """Squared distance to the centre: the anomaly score."""
        return (self.encoder((x - self.shift) / self.scale) - self.centre).pow(2).sum(1)

    @torch.no_grad()
    def set_centre(self, x, margin=0.1):
        c = self.encoder((x - self.shift) / self.scale).mean(0)
        # A coordinate near zero could be matched by zero weights alone: move it away from zero.
        side = torch.where(c < 0, -1.0, 1.0)
        self.centre.copy_(torch.where(c.abs() < margin, side * margin, c))

    @torch.no_grad()
    def set_radius(self, x, nu):
        self.radius2.copy_(torch.quantile(self(x), 1 - nu))


def auroc(good, bad):
    both = torch.cat([good, bad])
    rank = torch.empty(len(both), dtype=torch.float64)
    rank[both.argsort()] = torch.arange(1, len(both) + 1, dtype=torch.float64)
    u = rank[len(good) :].sum().item() - len(bad) * (len(bad) + 1) / 2
    return u / (len(good) * len(bad))


def pretrain(detector, train, cfg, bins, code):
    decoder = nn.Sequential(nn.Linear(code, 40), nn.LeakyReLU(0.1), nn.Linear(40, bins))
    opt = torch.optim.Adam(
        [*detector.encoder.parameters(), *decoder.parameters()],
        lr=cfg["lr"],
        weight_decay=cfg["weight_decay"],
    )
    curve = []
    for _ in range(cfg["epochs"]):
        total = 0.0
        for (x,) in DataLoader(TensorDataset(train), cfg["batch"], shuffle=True):
            x = (x - detector.shift) / detector.scale
            loss = F.mse_loss(decoder(detector.encoder(x)), x)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(x)
        curve.append(total / len(train))
    return curve  # the decoder ends here


def svdd_epochs(detector, opt, train, cfg, first, last):
    rows = []
    for epoch in range(first, last):
        for group in opt.param_groups:
            group["lr"] = cfg["lr"] * (0.1 if epoch >= 0.75 * cfg["epochs"] else 1.0)
        soft, mean_dist, mean_loss = epoch >= cfg["hard_epochs"], 0.0, 0.0
        for (x,) in DataLoader(TensorDataset(train), cfg["batch"], shuffle=True):
            dist = detector(x)
            if soft:  # only spectra outside of the sphere pull; the rest are at zero
                loss = (
                    detector.radius2
                    + F.relu(dist - detector.radius2).mean() / cfg["nu"]
                )
            else:
                loss = dist.mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            mean_dist += dist.sum().item() / len(train)
            mean_loss += loss.item() * len(x) / len(train)
        detector.set_radius(train, cfg["nu"])
        rows.append(
            {
                "epoch": epoch,
                "distance": mean_dist,
                "loss": mean_loss,
                "radius2": detector.radius2.item(),
            }
        )
    return rows


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument(
        "--epochs",
        type=int,
        default=CFG["svdd"]["epochs"],
        help="epochs of the second stage",
    )
    CFG["svdd"]["epochs"] = epochs = ap.parse_args().epochs
    d, m = CFG["data"], CFG["model"]
    torch.manual_seed(CFG["seed"])
    gen = torch.Generator().manual_seed(CFG["seed"])
    train, good = boil(d["good_train"], d["bins"], gen), boil(
        d["good_test"], d["bins"], gen
    )
    bad = boil(d["bad_test"], d["bins"], gen, faulty=True)

    def fresh():
        return Detector(
            Encoder(d["bins"], m["hidden"], m["code"], m["slope"]), d["bins"], m["code"]
        )

    detector = fresh()
    assert not any("bias" in n for n, _ in detector.named_parameters())
    detector.shift.copy_(train.mean(0))
    detector.scale.copy_(train.std())
    curve = pretrain(detector, train, CFG["pretrain"], d["bins"], m["code"])
    print("autoencoder", [round(c, 4) for c in curve])
    assert curve[-1] < 0.8 * curve[0]
    detector.set_centre(train)
    centre = detector.centre.clone()
    with torch.no_grad():
        before = auroc(detector(good), detector(bad))

    svdd = CFG["svdd"]
    opt = torch.optim.Adam(
        detector.parameters(), lr=svdd["lr"], weight_decay=svdd["weight_decay"]
    )
    half = max(1, epochs // 2)
    rows = svdd_epochs(detector, opt, train, svdd, 0, half)
    box = io.BytesIO()
    torch.save(
        {
            "detector": detector.state_dict(),
            "opt": opt.state_dict(),
            "epoch": half,
            "rng": torch.get_rng_state(),
        },
        box,
    )

    box.seek(0)  # the service is restarted here
    saved = torch.load(box, weights_only=True)
    detector = fresh()
    detector.load_state_dict(saved["detector"])
    opt = torch.optim.Adam(
        detector.parameters(), lr=svdd["lr"], weight_decay=svdd["weight_decay"]
    )
    opt.load_state_dict(saved["opt"])
    torch.set_rng_state(saved["rng"])
    rows += svdd_epochs(detector, opt, train, svdd, saved["epoch"], epochs)

    detector.eval()
    with torch.no_grad():
        g, b = detector(good), detector(bad)
        codes = detector.encoder((good - detector.shift) / detector.scale)
    report = {
        "auroc_before": before,
        "auroc": auroc(g, b),
        "false_alarms": (g > detector.radius2).float().mean().item(),
        "caught": (b > detector.radius2).float().mean().item(),
        "code_std": codes.std(0).mean().item(),
    }
    for row in rows[::3]:
        print({k: round(v, 4) for k, v in row.items()})
    print(json.dumps({k: round(v, 4) for k, v in report.items()}))
    assert torch.equal(
        detector.centre, centre
    ), "the centre never moves, through the restart as well"
    assert (
        math.isfinite(report["code_std"]) and report["code_std"] > 1e-4
    ), "the embedding has collapsed"
    if epochs >= 10:
        assert rows[-1]["distance"] < 0.5 * rows[0]["distance"]
        assert report["auroc"] > 0.85 and report["false_alarms"] < 0.2


if __name__ == "__main__":
    main()
