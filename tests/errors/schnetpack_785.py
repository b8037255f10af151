"""Energy regression for small clusters of atoms, with an averaged copy of the weights.

The run is done in two sessions, as on a cluster with a wall-time limit: the first one
writes a checkpoint after a validation, the second one picks it up.
"""
import argparse
import os
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def make_clusters(n, n_atoms, seed):
    g = torch.Generator().manual_seed(seed)
    pos = torch.rand(n, n_atoms, 3, generator=g) * 2.5
    kind = torch.randint(0, 3, (n, n_atoms), generator=g)
    charge = torch.tensor([0.4, -0.7, 1.1])[kind]
    d = torch.cdist(pos, pos) + torch.eye(n_atoms) * 1e6
    pair = (charge[:, :, None] * charge[:, None, :]) * torch.exp(-d) + 0.05 / (
        d + 0.3
    ) ** 2
    energy = pair.sum((1, 2)) * 0.5
    energy = (energy - energy.mean()) / energy.std()
    return TensorDataset(pos, kind, energy)


class AtomNet(nn.Module):
    def __init__(self, width=32, n_rbf=12):
        super().__init__()
        self.embed = nn.Embedding(3, width)
        self.register_buffer("centers", torch.linspace(0.0, 4.0, n_rbf))
        self.filter = nn.Sequential(
            nn.Linear(n_rbf, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.mix = nn.Sequential(
            nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.head = nn.Sequential(
            nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)
        )

    def forward(self, pos, kind):
        n = pos.shape[1]
        d = (pos[:, :, None] - pos[:, None]).pow(2).sum(-1).add(1e-8).sqrt()
        w = self.filter(torch.exp(-2.0 * (d[..., None] - self.centers) ** 2))
        w = w * (1.0 - torch.eye(n))[None, :, :, None]
        h = self.embed(kind)
        for _ in range(2):
            h = h + self.mix((w * h[:, None]).sum(2) / n)
        return self.head(h).squeeze(-1).sum(1)


class AveragedWeights:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = [p.detach().clone() for p in model.parameters()]
        self.kept = None

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow, model.parameters()):
            s.mul_(self.decay).add_(p, alpha=1.0 - self.decay)

    def store(self, model):
        self.kept = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def copy_to(self, model):
        for s, p in zip(self.shadow, model.parameters()):
            p.copy_(s)

    @torch.no_grad()
    def restore(self, model):
        if self.kept is not None:
            for k, p in zip(self.kept, model.parameters()):
                p.copy_(k)
            self.kept = None

    def state_dict(self):
        return {"decay": self.decay, "shadow": self.shadow, "kept": self.kept}

    def load_state_dict(self, state):
        self.decay, self.shadow, self.kept = (
            state["decay"],
            state["shadow"],
            state["kept"],
        )


class AveragingCallback:
    def __init__(self, decay, fixed):
        self.decay, self.fixed = decay, fixed
        self.avg, self.pending = None, None

    def on_fit_start(self, model):
        if self.avg is None:
            self.avg = AveragedWeights(model, self.decay)
        if self.pending is not None:
            self.avg.load_state_dict(self.pending)
            self.pending = None
            if self.fixed:
                self.avg.restore(model)
        self.avg.store(model)

    def on_train_epoch_start(self, model):
        self.avg.restore(model)

    def on_batch_end(self, model):
        self.avg.update(model)

    def on_validation_start(self, model):
        self.avg.store(model)
        self.avg.copy_to(model)


class Session:
    def __init__(self, args, workdir):
        self.args, self.path = args, os.path.join(workdir, "last.ckpt")
        torch.manual_seed(args.seed)
        self.model = AtomNet()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.cb = AveragingCallback(args.decay, args.fixed)
        self.step, self.epoch = 0, 0
        self.first_weights = None

    def load(self):
        ck = torch.load(self.path, weights_only=False)
        self.model.load_state_dict(ck["model"])
        self.opt.load_state_dict(ck["opt"])
        self.step, self.epoch = ck["step"], ck["epoch"]
        self.cb.pending = ck["averaging"]

    def save(self):
        torch.save(
            {
                "model": self.model.state_dict(),
                "opt": self.opt.state_dict(),
                "step": self.step,
                "epoch": self.epoch,
                "averaging": self.cb.avg.state_dict(),
            },
            self.path,
        )

    @torch.no_grad()
    def validate(self, val):
        self.model.eval()
        pos, kind, e = val.tensors
        return (self.model(pos, kind) - e).abs().mean().item()

    def fit(self, train, val, until_epoch):
        self.cb.on_fit_start(self.model)
        while self.epoch < until_epoch:
            g = torch.Generator().manual_seed(100 + self.epoch)
            loader = DataLoader(
                train, batch_size=self.args.batch_size, shuffle=True, generator=g
            )
            self.cb.on_train_epoch_start(self.model)
            if self.first_weights is None:
                self.first_weights = [
                    p.detach().clone() for p in self.model.parameters()
                ]
            self.model.train()
            total = 0.0
            for pos, kind, e in loader:
                loss = nn.functional.mse_loss(self.model(pos, kind), e)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.cb.on_batch_end(self.model)
                self.step += 1
                total += loss.item()
            self.epoch += 1
            self.last_weights = [p.detach().clone() for p in self.model.parameters()]
            self.cb.on_validation_start(self.model)
            mae = self.validate(val)
            self.save()
            print(
                f"epoch {self.epoch:2d}  step {self.step:4d}  train mse {total / len(loader):.4f}  val mae {mae:.4f}"
            )
        return mae


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--decay", type=float, default=0.97)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    train, val = make_clusters(768, 4, 1), make_clusters(192, 4, 2)
    with tempfile.TemporaryDirectory() as workdir:
        first = Session(args, workdir)
        first.fit(train, val, max(1, args.epochs // 2))
        print("-- second session --")
        second = Session(args, workdir)
        second.load()
        mae = second.fit(train, val, max(2, args.epochs))
    print(f"final val mae {mae:.4f}")
    if args.prove:
        gap = (
            sum(
                (a - b).pow(2).sum()
                for a, b in zip(first.last_weights, second.first_weights)
            )
            .sqrt()
            .item()
        )
        norm = sum(a.pow(2).sum() for a in first.last_weights).sqrt().item()
        print(
            f"distance between the weights at the end of session 1 and at the start of session 2: {gap:.5f} (norm {norm:.2f})"
        )
        print("fault shows:", "yes" if gap > 1e-6 else "no")


if __name__ == "__main__":
    main()
