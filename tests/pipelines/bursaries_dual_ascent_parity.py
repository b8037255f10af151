"""Bursary decisions with a limit on the gap of award rates between two regions.

  min_w max_{lam >= 0}  BCE(w) + lam_0 (gap - eps) + lam_1 (-gap - eps)
Primal: Adam on w, with the smooth rate (mean probability) in the penalty.
Dual:   SGD(maximize=True) on lam; its gradient is put in by hand from the HARD award rate
        (thresholded, has no derivative), every 4th step, then lam is projected to >= 0.
Batches take 64 of each region so that both rates are measured well; the BCE is weighted back
to the true shares of the regions. The BCE must rise again while lam grows: that is the price.
"""
import argparse

import torch
from torch import nn
import torch.nn.functional as F

EPS = 0.05


def applicants(n, seed):
    g = torch.Generator().manual_seed(seed)
    region = (torch.rand(n, generator=g) < 0.3).long()  # 30 % live in region 1
    talent = torch.randn(n, generator=g)
    school = 1.3 * region.float() + 0.6 * torch.randn(
        n, generator=g
    )  # a proxy for region
    need = torch.randn(n, generator=g)
    x = torch.stack(
        [
            talent + 0.3 * torch.randn(n, generator=g),
            school,
            need,
            talent * need,
            torch.rand(n, generator=g),
        ],
        1,
    )
    score = 1.8 * talent + 0.9 * need - 1.1 * school + 0.4 * talent * need
    y = (torch.rand(n, generator=g) < torch.sigmoid(score)).float()
    return x, y, region


class PerRegionBatches:
    """Endless pairs of index sets; each region is reshuffled when it is used up."""

    def __init__(self, region, per, seed):
        self.where = [(region == r).nonzero().squeeze(1) for r in (0, 1)]
        self.per, self.g = per, torch.Generator().manual_seed(seed)
        self.left = [torch.empty(0, dtype=torch.long)] * 2

    def __iter__(self):
        return self

    def __next__(self):
        out = []
        for r in (0, 1):
            if len(self.left[r]) < self.per:
                shuffle = torch.randperm(len(self.where[r]), generator=self.g)
                self.left[r] = self.where[r][shuffle]
            out.append(self.left[r][: self.per])
            self.left[r] = self.left[r][self.per :]
        return torch.cat(out)


def net():
    return nn.Sequential(
        nn.Linear(5, 32),
        nn.ReLU(),
        nn.Linear(32, 32),
        nn.ReLU(),
        nn.Linear(32, 1),
        nn.Flatten(0),
    )


@torch.no_grad()
def report(model, data):
    x, y, region = data
    logit = model(x)
    award = (logit > 0).float()
    gap = (award[region == 0].mean() - award[region == 1].mean()).item()
    return {
        "bce": F.binary_cross_entropy_with_logits(logit, y).item(),
        "acc": (award == y).float().mean().item(),
        "gap": gap,
    }


def show(tag, r, extra=""):
    print(
        f"{tag:>14}  bce {r['bce']:.4f}  acc {r['acc']:.3f}  gap {r['gap']:+.3f}  {extra}"
    )


def train(train_set, val_set, steps, constrained):
    torch.manual_seed(12)
    x, y, region = train_set
    share = torch.bincount(region).float() / len(region)
    model = net()
    primal = torch.optim.Adam(model.parameters(), lr=3e-3)
    cool = torch.optim.lr_scheduler.LinearLR(primal, 1.0, 0.05, total_iters=steps)
    lam = torch.zeros(2, requires_grad=False)
    dual = torch.optim.SGD([lam], lr=0.1, maximize=True)
    batches = PerRegionBatches(region, per=64, seed=13)
    smoothed = torch.zeros(2)  # running mean of the hard violation, for a calm dual
    lams, first = [], report(model, val_set)
    show("start", first)
    for step, idx in zip(range(1, steps + 1), batches):
        xb, yb, rb = x[idx], y[idx], region[idx]
        logit = model(xb)
        weight = share[rb] / 0.5
        bce = (
            weight * F.binary_cross_entropy_with_logits(logit, yb, reduction="none")
        ).mean()
        prob = logit.sigmoid()
        soft = prob[rb == 0].mean() - prob[rb == 1].mean()
        loss = bce + lam[0] * (soft - EPS) + lam[1] * (-soft - EPS)
        primal.zero_grad()
        loss.backward()
        primal.step()
        cool.step()

        if constrained:
            award = (logit.detach() > 0).float()
            hard = award[rb == 0].mean() - award[rb == 1].mean()
            violation = torch.stack([hard - EPS, -hard - EPS])
            smoothed = 0.9 * smoothed + 0.1 * violation
            if step % 4 == 0:
                lam.grad = smoothed.clone()
                dual.step()
                lam.clamp_(min=0)
        lams.append(lam.clone())
        if step % 100 == 0 or step == steps:
            show(
                f"step {step}",
                report(model, val_set),
                f"lambda {lam[0].item():.3f} {lam[1].item():.3f}",
            )
    return model, torch.stack(lams), first


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=500)
    args = ap.parse_args()
    train_set, val_set, test_set = (
        applicants(n, s) for n, s in ((5000, 1), (3000, 2), (6000, 3))
    )

    print("-- without the limit (reference)")
    free, lams, first = train(train_set, val_set, args.steps, constrained=False)
    assert lams.abs().max() == 0
    print("-- with the limit")
    fair, lams, _ = train(train_set, val_set, args.steps, constrained=True)
    assert (lams >= 0).all() and torch.isfinite(lams).all()

    a, b = report(free, test_set), report(fair, test_set)
    majority = max(test_set[1].mean().item(), 1 - test_set[1].mean().item())
    show("test free", a)
    show("test limited", b, f"majority guess {majority:.3f}")
    if args.steps >= 400:
        assert a["bce"] < first["bce"] - 0.08 and a["gap"] > 0.15
        assert abs(b["gap"]) < EPS + 0.02, b
        assert b["acc"] > majority + 0.05 and a["acc"] >= b["acc"] - 0.01
        assert lams[-1, 0] > 0 and lams[-1, 1] < lams[-1, 0]


if __name__ == "__main__":
    main()
