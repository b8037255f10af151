"""An auto-decoder (DeepSDF): no encoder, one free code for each training shape.

Coral cross-sections are unions of discs, given as signed distances at sampled
points. Training fits the decoder (Adam) and a table of codes (sparse gradients,
SparseAdam) together. For an unseen coral there is no encoder to ask: with the
decoder frozen we *train a code* from zero on half of the points, and score the
other half. So the evaluation needs gradients, and runs an optimizer, on purpose.
"""
import argparse

import torch
from torch import nn

CODE, CLAMP = 8, 0.25


def make_corals(n, rng):
    """Two discs in a common layout: six degrees of freedom, so codes can be compact."""
    base = torch.tensor([[-0.35, 0.1], [0.35, -0.1]])
    centres = base + 0.15 * (torch.rand(n, 2, 2, generator=rng) * 2 - 1)
    radii = 0.2 + 0.25 * torch.rand(n, 2, generator=rng)
    return centres, radii


def signed_distance(shapes, points):
    """Exact outside; inside the union it is the usual lower bound. points: (n, m, 2)."""
    centres, radii = shapes
    gap = torch.cdist(points, centres) - radii[:, None, :]
    return gap.min(dim=-1).values


def sample_points(shapes, m, rng):
    """Half uniform, half close to the boundary of a random disc (as in the paper)."""
    centres, radii = shapes
    n = len(radii)
    uniform = torch.rand(n, m // 2, 2, generator=rng) * 2 - 1
    which = torch.randint(2, (n, m - m // 2), generator=rng)
    rows = torch.arange(n)[:, None]
    angle = torch.rand(which.shape, generator=rng) * 2 * torch.pi
    ring = torch.stack([angle.cos(), angle.sin()], -1) * radii[rows, which][..., None]
    near = (
        centres[rows, which] + ring + 0.05 * torch.randn(*which.shape, 2, generator=rng)
    )
    points = torch.cat([uniform, near], dim=1)
    return points, signed_distance(shapes, points)


class Decoder(nn.Module):
    """MLP on (code, point); the input is injected again half way."""

    def __init__(self, width=64):
        super().__init__()
        n_in = CODE + 2
        self.first = nn.Sequential(
            nn.Linear(n_in, width), nn.ReLU(), nn.Linear(width, width - n_in), nn.ReLU()
        )
        self.second = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, codes, points):
        x = torch.cat(
            [codes.unsqueeze(1).expand(-1, points.shape[1], -1), points], dim=-1
        )
        return self.second(torch.cat([self.first(x), x], dim=-1)).squeeze(-1)


def clamped_l1(pred, target):
    """Only distances near the surface matter; far points stop pulling."""
    return (pred.clamp(-CLAMP, CLAMP) - target.clamp(-CLAMP, CLAMP)).abs().mean()


def overlap(pred, target):
    inside, truth = pred < 0, target < 0
    return ((inside & truth).sum() / (inside | truth).sum().clamp(min=1)).item()


def train(decoder, codes, points, sdf, args, rng):
    decoder_opt = torch.optim.Adam(decoder.parameters(), lr=2e-3)
    code_opt = torch.optim.SparseAdam(list(codes.parameters()), lr=2e-2)
    milestones = [int(args.steps * 0.6), int(args.steps * 0.85)]
    schedules = [
        torch.optim.lr_scheduler.MultiStepLR(o, milestones, gamma=0.4)
        for o in (decoder_opt, code_opt)
    ]
    losses = []
    for step in range(args.steps):
        shapes = torch.randperm(codes.num_embeddings, generator=rng)[
            : args.shapes_per_step
        ]
        cols = torch.randint(
            points.shape[1], (len(shapes), args.points_per_shape), generator=rng
        )
        x = points[shapes[:, None], cols]
        y = sdf[shapes[:, None], cols]
        z = codes(shapes)
        fit = clamped_l1(decoder(z, x), y)
        # The Gaussian prior on codes enters slowly; at first they must spread.
        prior = args.prior * min(1.0, step / 100) * z.pow(2).sum(-1).mean()
        decoder_opt.zero_grad()
        code_opt.zero_grad()
        (fit + prior).backward()
        assert codes.weight.grad.is_sparse
        decoder_opt.step()
        code_opt.step()
        for s in schedules:
            s.step()
        losses.append(fit.item())
        if step % 150 == 0 or step == args.steps - 1:
            print(
                f"step {step:4d} fit {fit.item():.4f} prior {prior.item():.5f} "
                f"mean code norm {codes.weight.detach().norm(dim=1).mean():.3f}"
            )
    return losses


def infer_codes(decoder, points, sdf, iterations, prior):
    """Test-time optimisation. The weights of the decoder do not change, only the codes."""
    frozen = [p.requires_grad for p in decoder.parameters()]
    decoder.requires_grad_(False)
    z = torch.zeros(len(points), CODE, requires_grad=True)
    optimizer = torch.optim.Adam([z], lr=5e-2)
    for i in range(iterations):
        if i == iterations // 2:
            optimizer.param_groups[0]["lr"] = 1e-2
        optimizer.zero_grad()
        # Each code has its own mean over points; summing over shapes keeps their step apart.
        per_shape = (
            (decoder(z, points).clamp(-CLAMP, CLAMP) - sdf.clamp(-CLAMP, CLAMP))
            .abs()
            .mean(1)
        )
        loss = (per_shape + prior * z.pow(2).sum(-1)).sum()
        loss.backward()
        optimizer.step()
    for p, flag in zip(decoder.parameters(), frozen):
        p.requires_grad_(flag)
    return z.detach()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=900)
    ap.add_argument("--shapes-per-step", type=int, default=16)
    ap.add_argument("--points-per-shape", type=int, default=64)
    ap.add_argument("--prior", type=float, default=1e-4)
    ap.add_argument("--test-iterations", type=int, default=120)
    args = ap.parse_args()

    torch.manual_seed(31)
    rng = torch.Generator().manual_seed(32)
    shapes = make_corals(200, rng)
    points, sdf = sample_points(shapes, 512, rng)
    unseen = make_corals(12, rng)
    test_points, test_sdf = sample_points(unseen, 600, rng)
    order = torch.randperm(600, generator=rng)  # columns mix both kinds of points
    seen, held = order[:300], order[300:]

    decoder = Decoder()
    codes = nn.Embedding(len(points), CODE, sparse=True)
    nn.init.normal_(codes.weight, std=0.1)

    losses = train(decoder, codes, points, sdf, args, rng)

    before = [p.clone() for p in decoder.parameters()]
    z = infer_codes(
        decoder,
        test_points[:, seen],
        test_sdf[:, seen],
        args.test_iterations,
        args.prior,
    )
    assert all(torch.equal(a, b) for a, b in zip(before, decoder.parameters()))

    with torch.no_grad():
        mean_iou = overlap(
            decoder(torch.zeros_like(z), test_points[:, held]), test_sdf[:, held]
        )
        fitted = decoder(z, test_points[:, held])
        fitted_iou = overlap(fitted, test_sdf[:, held])
        error = clamped_l1(fitted, test_sdf[:, held]).item()
    print(
        f"unseen corals: IoU with the zero code {mean_iou:.3f}, with fitted codes {fitted_iou:.3f}, "
        f"clamped L1 {error:.4f}"
    )
    if args.steps >= 900:
        assert sum(losses[-20:]) < 0.4 * sum(losses[:20])
        assert fitted_iou > mean_iou + 0.05 and fitted_iou > 0.85


if __name__ == "__main__":
    main()
