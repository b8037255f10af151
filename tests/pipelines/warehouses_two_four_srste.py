"""Slotting model for warehouse goods with 2:4 structured sparsity, trained from scratch with SR-STE.

Dense warm-up, then in each group of four weights along the inputs only the two largest take part in the forward
pass, while the dense weights go on being trained ("Learning N:M fine-grained structured sparse
neural networks from scratch"): the backward pass gives the gradient to ALL weights and adds a decay to those
that are masked.  For the last epochs the masks are frozen.  The export stores two values and two 2-bit positions
per group; it is unpacked again and compared.
"""
import argparse
import json

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CONFIG = {
    "data": {
        "goods": 2500,
        "valid": 600,
        "zones": 6,
        "numeric": 12,
        "families": 20,
        "family_dim": 12,
        "seed": 51,
    },
    "model": {"hidden": [64, 64], "srste_lambda": 2e-3},
    "optim": {"lr": 0.08, "momentum": 0.9, "batch": 50, "clip": 5.0},
    "plan": {"epochs": 14, "dense_share": 0.2, "frozen_share": 0.75},
    "loader": {"workers": 1},
}


def two_of_four(weight):
    """0/1 mask with exactly two ones per group of four along the last axis."""
    groups = weight.detach().abs().reshape(-1, 4)
    mask = torch.zeros_like(groups).scatter_(1, groups.topk(2, dim=1).indices, 1.0)
    return mask.view_as(weight)


class SparseRefined(torch.autograd.Function):
    """Forward: mask * w.  Backward: straight through, plus lambda * w where the mask is zero."""

    @staticmethod
    def forward(ctx, weight, mask, lam):
        ctx.save_for_backward(weight, mask)
        ctx.lam = lam
        return weight * mask

    @staticmethod
    def backward(ctx, grad):
        weight, mask = ctx.saved_tensors
        return grad + ctx.lam * (1 - mask) * weight, None, None


class SparseLinear(nn.Linear):
    def __init__(self, cin, cout, lam):
        assert cin % 4 == 0
        super().__init__(cin, cout)
        self.lam, self.mode = lam, "dense"
        self.register_buffer("mask", torch.ones(cout, cin))

    def forward(self, x):
        if self.mode == "dense":
            return super().forward(x)
        if self.mode == "search":
            self.mask.copy_(
                two_of_four(self.weight)
            )  # a function of the weights, never stale
            return F.linear(
                x, SparseRefined.apply(self.weight, self.mask, self.lam), self.bias
            )
        return F.linear(
            x, self.weight * self.mask, self.bias
        )  # frozen: masked weights get no gradient


class Slotting(nn.Module):
    def __init__(self, d, m):
        super().__init__()
        self.family = nn.Embedding(d["families"], d["family_dim"])
        sizes = [d["numeric"] + d["family_dim"], *m["hidden"]]
        self.hidden = nn.ModuleList(
            SparseLinear(a, b, m["srste_lambda"]) for a, b in zip(sizes, sizes[1:])
        )
        self.norms = nn.ModuleList(nn.LayerNorm(b) for b in sizes[1:])
        self.out = nn.Linear(sizes[-1], d["zones"])  # the small last layer stays dense

    def forward(self, numeric, family):
        h = torch.cat([numeric, self.family(family)], 1)
        for layer, norm in zip(self.hidden, self.norms):
            h = F.relu(norm(layer(h)))
        return self.out(h)


def make_goods(d, n, stream):
    shared = np.random.default_rng(d["seed"])
    pull = shared.normal(0, 1.2, (d["families"], d["zones"]))
    mix, bend = shared.normal(0, 0.9, (d["numeric"], d["zones"])), shared.normal(
        0, 0.7, (d["numeric"], d["zones"])
    )
    rng = np.random.default_rng([d["seed"], stream])
    x, fam = rng.standard_normal((n, d["numeric"])), rng.integers(0, d["families"], n)
    score = (
        x @ mix
        + np.abs(x) @ bend
        + 1.5 * pull[fam]
        + rng.gumbel(0, 0.4, (n, d["zones"]))
    )
    return TensorDataset(
        torch.tensor(x, dtype=torch.float32),
        torch.from_numpy(fam),
        torch.from_numpy(score.argmax(1)),
    )


class PhaseCallback:
    """dense -> search -> frozen, by epoch."""

    def __init__(self, plan):
        self.dense, self.frozen = round(plan["dense_share"] * plan["epochs"]), round(
            plan["frozen_share"] * plan["epochs"]
        )

    def before_epoch(self, trainer, epoch):
        mode = (
            "dense"
            if epoch < self.dense
            else "search"
            if epoch < self.frozen
            else "frozen"
        )
        for layer in trainer.model.hidden:
            if layer.mode != mode:
                if mode in ("search", "frozen"):
                    layer.mask.copy_(two_of_four(layer.weight))
                if mode == "frozen":
                    with torch.no_grad():  # what is masked now is gone, its momentum as well
                        layer.weight.mul_(layer.mask)
                        trainer.opt.state[layer.weight]["momentum_buffer"].mul_(
                            layer.mask
                        )
                layer.mode = mode
        return mode


class FlipMonitor:
    """Share of mask entries that changed during an epoch: it should calm down."""

    def before_epoch(self, trainer, epoch):
        self.old = [layer.mask.clone() for layer in trainer.model.hidden]

    def after_epoch(self, trainer):
        pairs = [
            (a != layer.mask).float().mean().item()
            for a, layer in zip(self.old, trainer.model.hidden)
        ]
        return float(np.mean(pairs))


class Trainer:
    def __init__(self, cfg):
        torch.manual_seed(cfg["data"]["seed"])
        self.cfg, d = cfg, cfg["data"]
        self.model = Slotting(d, cfg["model"])
        o = cfg["optim"]
        # No weight decay in the optimizer: SR-STE decays exactly the masked weights itself.
        self.opt = torch.optim.SGD(
            self.model.parameters(), lr=o["lr"], momentum=o["momentum"]
        )
        self.train_loader = DataLoader(
            make_goods(d, d["goods"], 1),
            o["batch"],
            shuffle=True,
            num_workers=cfg["loader"]["workers"],
            persistent_workers=cfg["loader"]["workers"] > 0,
        )
        self.valid = make_goods(d, d["valid"], 2).tensors
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(
            self.opt, cfg["plan"]["epochs"] * len(self.train_loader), eta_min=1e-3
        )
        self.phase, self.flips = PhaseCallback(cfg["plan"]), FlipMonitor()

    def run(self):
        rows = []
        for epoch in range(self.cfg["plan"]["epochs"]):
            mode = self.phase.before_epoch(self, epoch)
            self.flips.before_epoch(self, epoch)
            self.model.train()
            total = 0.0
            for x, fam, y in self.train_loader:
                loss = F.cross_entropy(self.model(x, fam), y)
                self.opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(
                    self.model.parameters(), self.cfg["optim"]["clip"]
                )
                self.opt.step()
                self.sched.step()
                total += loss.item() / len(self.train_loader)
            rows.append(
                {
                    "epoch": epoch,
                    "mode": mode,
                    "loss": round(total, 4),
                    "accuracy": round(self.accuracy(), 4),
                    "flips": round(self.flips.after_epoch(self), 4),
                }
            )
            print(json.dumps(rows[-1]))
        return rows

    @torch.no_grad()
    def accuracy(self):
        self.model.eval()
        x, fam, y = self.valid
        return (self.model(x, fam).argmax(1) == y).float().mean().item()


def pack(layer):
    groups = (layer.weight.detach() * layer.mask).reshape(-1, 4)
    where = layer.mask.reshape(-1, 4).topk(2, dim=1).indices.sort(1).values
    return {
        "values": groups.gather(1, where),
        "where": where.to(torch.uint8),
        "shape": tuple(layer.weight.shape),
    }


def unpack(p):
    return (
        torch.zeros(p["values"].shape[0], 4)
        .scatter_(1, p["where"].long(), p["values"])
        .view(p["shape"])
    )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=CONFIG["plan"]["epochs"])
    CONFIG["plan"]["epochs"] = ap.parse_args().epochs
    trainer = Trainer(CONFIG)
    untrained = trainer.accuracy()
    rows = trainer.run()
    for layer in trainer.model.hidden:
        if layer.mode == "frozen":
            assert (layer.mask.reshape(-1, 4).sum(1) == 2).all() and (
                layer.weight[layer.mask == 0] == 0
            ).all()
            assert torch.equal(unpack(pack(layer)), layer.weight.detach())
    print(
        f"accuracy {untrained:.3f} -> {rows[-1]['accuracy']:.3f} with half of the hidden weights"
    )
    if CONFIG["plan"]["epochs"] >= 10:
        assert rows[-1]["mode"] == "frozen" and rows[-1]["loss"] < 0.6 * rows[0]["loss"]
        assert rows[-1]["accuracy"] > untrained + 0.35


if __name__ == "__main__":
    main()
