# Age group estimation with soft labels: annotators disagree, so every face has
# a distribution over 12 age groups.  Trained on (pre-computed) face embeddings.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

N_GROUPS = 12


def get_data(n, seed):
    world = torch.Generator().manual_seed(1234)
    basis = torch.randn(3, 48, generator=world)
    g = torch.Generator().manual_seed(seed)
    age = torch.rand(n, generator=g) * (N_GROUPS - 1)
    width = 0.6 + 1.4 * torch.rand(n, generator=g)  # how unsure people are
    feats = torch.stack([age / 4 - 1.5, torch.sin(age), width], 1) @ basis
    feats = feats + 0.5 * torch.randn(n, 48, generator=g)
    bins = torch.arange(N_GROUPS).float()
    dist = torch.exp(-0.5 * ((bins[None] - age[:, None]) / width[:, None]) ** 2)
    dist = dist / dist.sum(1, keepdim=True)
    return feats, dist, age


class AgeHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(48),
            nn.Linear(48, 128),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(128, 128),
            nn.GELU(),
            nn.Linear(128, N_GROUPS),
        )

    def forward(self, x):
        return self.net(x)


class LabelDistributionLoss(nn.Module):
    """KL to the annotators' distribution + L1 on the expected age group"""

    def __init__(self, lam=1.0):
        super().__init__()
        self.kl = nn.KLDivLoss(reduction="batchmean")
        self.lam = lam
        self.register_buffer("bins", torch.arange(N_GROUPS).float())

    def divergence(self, logits, dist):
        prob = F.softmax(logits, dim=1)
        if args.fixed:
            prob = F.log_softmax(logits, dim=1)
        return self.kl(prob, dist)

    def forward(self, logits, dist):
        expected = (F.softmax(logits, dim=1) * self.bins).sum(1)
        wanted = (dist * self.bins).sum(1)
        return (
            self.divergence(logits, dist) + self.lam * (expected - wanted).abs().mean()
        )


def evaluate(model, feats, dist, age):
    model.eval()
    with torch.no_grad():
        logits = model(feats)
    p = F.softmax(logits, 1)
    mae = ((p * torch.arange(N_GROUPS)).sum(1) - age).abs().mean().item()
    overlap = torch.minimum(p, dist).sum(1).mean().item()
    model.train()
    return mae, overlap, logits


def main():
    torch.manual_seed(8)
    feats, dist, _ = get_data(4000, 1)
    vfeats, vdist, vage = get_data(1000, 2)
    model = AgeHead()
    criterion = LabelDistributionLoss(lam=args.lam)
    optim = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.OneCycleLR(
        optim, max_lr=4e-3, total_steps=max(args.steps, 2)
    )

    step = 0
    while step < args.steps:
        order = torch.randperm(len(feats))
        for idx in order.split(128):
            loss = criterion(model(feats[idx]), dist[idx])
            optim.zero_grad()
            loss.backward()
            optim.step()
            sched.step()
            step += 1
            if step % 60 == 0:
                mae, overlap, _ = evaluate(model, vfeats, vdist, vage)
                print(
                    f"step {step} loss {loss.item():.4f} valid MAE {mae:.3f} overlap {overlap:.3f}"
                )
            if step == args.steps:
                break

    mae, overlap, logits = evaluate(model, vfeats, vdist, vage)
    print(f"final MAE {mae:.3f}, histogram overlap {overlap:.3f}")

    if args.prove:
        # against the divergence written out by hand
        p = F.softmax(logits, 1)
        by_hand = (
            (vdist * (vdist.clamp_min(1e-30).log() - p.clamp_min(1e-30).log()))
            .sum(1)
            .mean()
            .item()
        )
        used = criterion.divergence(logits, vdist).item()
        print("fault shows:", "yes" if abs(by_hand - used) > 1e-3 else "no")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=240)
    ap.add_argument("--lam", type=float, default=1.0)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    main()
