"""VAE on little seven-segment style glyphs.

The script saves checkpoints and can go on from one; by default it makes a stop half way and
resumes in the same run, which is how I check that restarting works on our cluster.
"""
import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEGMENTS = {  # a b c d e f g
    0: "abcdef",
    1: "bc",
    2: "abged",
    3: "abgcd",
    4: "fgbc",
    5: "afgcd",
    6: "afgedc",
    7: "abc",
    8: "abcdefg",
    9: "abcdfg",
}


def draw(digit, rng):
    img = np.zeros((16, 16), dtype=np.float32)
    oy, ox = rng.integers(0, 4), rng.integers(0, 6)
    w, h = 6, 5
    place = {
        "a": (slice(0, 1), slice(0, w)),
        "g": (slice(h, h + 1), slice(0, w)),
        "d": (slice(2 * h, 2 * h + 1), slice(0, w)),
        "f": (slice(0, h), slice(0, 1)),
        "e": (slice(h, 2 * h), slice(0, 1)),
        "b": (slice(0, h), slice(w - 1, w)),
        "c": (slice(h, 2 * h), slice(w - 1, w)),
    }
    for s in SEGMENTS[digit]:
        ys, xs = place[s]
        img[oy + ys.start : oy + ys.stop, ox + xs.start : ox + xs.stop] = 1.0
    return img


def make_set(n, seed):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(
        np.stack([draw(int(rng.integers(0, 10)), rng) for _ in range(n)])
    ).unsqueeze(1)


class VAE(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(16, 32, 4, 2, 1),
            nn.LeakyReLU(0.1),
            nn.Flatten(),
        )
        self.to_mu, self.to_logvar = nn.Linear(32 * 16, latent), nn.Linear(
            32 * 16, latent
        )
        self.from_z = nn.Linear(latent, 32 * 16)
        self.dec = nn.Sequential(
            nn.LeakyReLU(0.1),
            nn.ConvTranspose2d(32, 16, 4, 2, 1),
            nn.LeakyReLU(0.1),
            nn.ConvTranspose2d(16, 1, 4, 2, 1),
        )

    def decode(self, z):
        return self.dec(self.from_z(z).view(-1, 32, 4, 4))

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.to_mu(h), self.to_logvar(h).clamp(-8, 8)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp() if self.training else mu
        return self.decode(z), mu, logvar


def elbo_terms(logits, x, mu, logvar):
    # summed over pixels and latent dimensions, averaged over the pictures
    rec = (
        F.binary_cross_entropy_with_logits(logits, x, reduction="none")
        .flatten(1)
        .sum(1)
        .mean()
    )
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return rec, kl


class Session:
    def __init__(self, args):
        self.args = args
        self.train_x, self.val_x = make_set(960, 1), make_set(200, 2)
        self.model = VAE()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        self.sched = torch.optim.lr_scheduler.StepLR(self.opt, step_size=8, gamma=0.5)
        self.epoch, self.step = 0, 0
        self.gen = torch.Generator().manual_seed(args.seed)
        self.history = []

    def save(self, path):
        tmp = path + ".tmp"
        torch.save(
            {
                "model": self.model.state_dict(),
                "opt": self.opt.state_dict(),
                "sched": self.sched.state_dict(),
                "epoch": self.epoch,
                "step": self.step,
                "history": self.history,
                "shuffle_rng": self.gen.get_state(),
                "torch_rng": torch.get_rng_state(),
            },
            tmp,
        )
        os.replace(tmp, path)

    def load(self, path):
        ck = torch.load(path, map_location="cpu", weights_only=True)
        self.model.load_state_dict(ck["model"])
        self.opt.load_state_dict(ck["opt"])
        self.sched.load_state_dict(ck["sched"])
        self.epoch, self.step, self.history = ck["epoch"], ck["step"], ck["history"]
        self.gen.set_state(ck["shuffle_rng"])
        torch.set_rng_state(ck["torch_rng"])
        print(
            f"resumed at epoch {self.epoch}, step {self.step}, lr {self.sched.get_last_lr()[0]:.5f}"
        )

    def beta(self):
        return min(1.0, (self.step + 1) / self.args.kl_warmup)

    def train_epoch(self):
        self.model.train()
        order = torch.randperm(len(self.train_x), generator=self.gen)
        sums = np.zeros(2)
        for idx in order.split(self.args.batch_size):
            x = self.train_x[idx]
            rec, kl = elbo_terms(*self._call(x))
            loss = rec + self.beta() * kl
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(self.model.parameters(), 10.0)
            self.opt.step()
            self.step += 1
            sums += np.array([rec.item(), kl.item()]) * len(x)
        self.sched.step()
        self.epoch += 1
        return sums / len(self.train_x)

    def _call(self, x):
        logits, mu, logvar = self.model(x)
        return logits, x, mu, logvar

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        rec, kl = elbo_terms(*self._call(self.val_x))
        return rec.item(), kl.item()

    def run(self, until):
        while self.epoch < until:
            tr = self.train_epoch()
            va = self.validate()
            self.history.append(sum(va))
            print(
                f"epoch {self.epoch:2d} train rec {tr[0]:.2f} kl {tr[1]:.2f} | val rec {va[0]:.2f} kl {va[1]:.2f}"
            )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=20)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument(
        "--kl-warmup",
        type=int,
        default=60,
        help="steps until the KL term has its full weight",
    )
    ap.add_argument("--resume", default=None)
    ap.add_argument("--seed", type=int, default=21)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    with tempfile.TemporaryDirectory() as d:
        s = Session(args)
        if args.resume:
            s.load(args.resume)
        elif args.epochs > 1:
            s.run(args.epochs // 2)
            path = os.path.join(d, "last.pt")
            s.save(path)
            s = Session(args)
            s.load(path)
        s.run(args.epochs)
    s.model.eval()
    with torch.no_grad():
        pic = s.model.decode(torch.randn(1, 8)).sigmoid()[0, 0] > 0.5
    print("\n".join("".join("#" if v else "." for v in row) for row in pic.tolist()))
    print(f"best validation (negative ELBO at the mean) {min(s.history):.2f}")


if __name__ == "__main__":
    main()
