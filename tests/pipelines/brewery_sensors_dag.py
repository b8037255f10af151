"""Which brewery sensor drives which: a directed acyclic graph from plant readings.

Continuous structure learning with an augmented Lagrangian on the acyclicity of the weighted
adjacency matrix, then thresholding and a refit of the arrows that remain.
"""
import argparse
import json
import os
import tempfile

import numpy as np
import torch

NAMES = "malt water mash wort hops boil whirl cool yeast ferment gravity bottle".split()


class Plant:
    """A random sparse linear plant with unit disturbances."""

    def __init__(self, seed, arrows=18):
        rng = np.random.default_rng(seed)
        d = len(NAMES)
        order = rng.permutation(d)
        pairs = [(order[i], order[j]) for i in range(d) for j in range(i + 1, d)]
        chosen = rng.choice(len(pairs), arrows, replace=False)
        self.weights = np.zeros((d, d))
        for k in chosen:
            size = rng.uniform(0.6, 1.4) * rng.choice([-1, 1])
            self.weights[pairs[k]] = size
        self.rng = rng

    def readings(self, count):
        noise = self.rng.normal(size=(count, len(NAMES)))
        mixing = np.linalg.inv(np.eye(len(NAMES)) - self.weights)
        return torch.from_numpy(noise @ mixing)


class SignedWeights(torch.nn.Module):
    """W = up - down with both parts kept non-negative, so that |W| is linear in them."""

    def __init__(self, d):
        super().__init__()
        self.up = torch.nn.Parameter(torch.zeros(d, d, dtype=torch.double))
        self.down = torch.nn.Parameter(torch.zeros(d, d, dtype=torch.double))
        self.register_buffer("allowed", 1 - torch.eye(d, dtype=torch.double))

    def forward(self):
        return (self.up - self.down) * self.allowed

    def size(self):
        return ((self.up + self.down) * self.allowed).sum()

    @torch.no_grad()
    def project(self):
        for part in (self.up, self.down):
            part.clamp_(min=0).mul_(self.allowed)


def acyclicity(w):
    return torch.linalg.matrix_exp(w * w).trace() - w.shape[0]


def misfit(w, cov):
    """Half the mean squared residual of x - W^T x, from the covariance alone."""
    rest = torch.eye(w.shape[0], dtype=w.dtype) - w
    return 0.5 * (rest.T @ cov @ rest).trace()


def inner(model, cov, rho, alpha, penalty, steps):
    """One penalised problem; moments from the previous one are not carried over."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2, betas=(0.9, 0.98))
    fade = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, eta_min=1e-4)
    for _ in range(steps):
        w = model()
        h = acyclicity(w)
        objective = (
            misfit(w, cov) + penalty * model.size() + alpha * h + 0.5 * rho * h * h
        )
        optimizer.zero_grad()
        objective.backward()
        optimizer.step()
        model.project()
        fade.step()
    with torch.no_grad():
        return objective.item(), acyclicity(model()).item()


def search(cov, penalty, steps, rounds=8):
    model = SignedWeights(cov.shape[0])
    with torch.no_grad():
        for part in model.parameters():
            part.uniform_(0.0, 0.05)
    model.project()
    rho, alpha, previous = 1.0, 0.0, float("inf")
    trail = []
    for k in range(rounds):
        objective, h = inner(model, cov, rho, alpha, penalty, steps)
        trail.append({"round": k, "rho": rho, "objective": objective, "h": h})
        if h < 1e-8:
            break
        alpha += rho * h
        if h > 0.25 * previous:
            rho *= 10.0
        previous = h
    return model().detach(), trail


def is_acyclic(mask):
    m, reach = mask.double(), mask.double()
    for _ in range(mask.shape[0]):
        if reach.diagonal().any():
            return False
        reach = ((reach @ m) > 0).double()
    return True


def prune(w, start=0.3):
    """Cut the weak arrows, then the weakest remaining ones until no cycle is left."""
    mask = w.abs() > start
    while not is_acyclic(mask):
        weakest = torch.where(mask, w.abs(), torch.full_like(w, float("inf"))).argmin()
        mask.view(-1)[weakest] = False
    return mask


def refit(mask, cov):
    w = torch.zeros_like(cov)
    for j in range(cov.shape[0]):
        parents = mask[:, j].nonzero().squeeze(1)
        if len(parents):
            gram = cov[parents][:, parents]
            w[parents, j] = torch.linalg.solve(gram, cov[parents, j])
    return w


def compare(mask, truth):
    real = torch.from_numpy(truth != 0)
    hit = (mask & real).sum().item()
    turned = (mask & real.T & ~real).sum().item()
    extra = (mask & ~real & ~real.T).sum().item()
    return {"found": hit, "of": int(real.sum()), "turned": turned, "extra": extra}


def covariance(x):
    x = x - x.mean(0)
    return x.T @ x / len(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--steps", type=int, default=150, help="steps for each subproblem"
    )
    parser.add_argument("--seed", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    plant = Plant(args.seed)
    fit_cov, held_cov = covariance(plant.readings(1200)), covariance(
        plant.readings(600)
    )
    folder, best = tempfile.mkdtemp(prefix="brewery_"), None
    for penalty in (0.2, 0.05, 0.02):
        w, trail = search(fit_cov, penalty, args.steps)
        print(f"penalty {penalty}")
        for row in trail:
            print(
                f"   round {row['round']}  rho {row['rho']:8.0f}  "
                f"objective {row['objective']:9.4f}  h {row['h']:.2e}"
            )
        mask = prune(w)
        fitted = refit(mask, fit_cov)
        held = misfit(fitted, held_cov).item()
        score = 2 * held + 0.01 * int(mask.sum())
        print(
            f"   {int(mask.sum())} arrows, held-out misfit {held:.4f}, score {score:.4f}"
        )
        if best is None or score < best[0]:
            best = (score, penalty, mask, fitted)
    _, penalty, mask, fitted = best
    arrows = [
        (NAMES[i], NAMES[j], round(fitted[i, j].item(), 3))
        for i, j in mask.nonzero().tolist()
    ]
    with open(os.path.join(folder, "arrows.json"), "w") as handle:
        json.dump(arrows, handle, indent=1)
    print(f"kept penalty {penalty}: {compare(mask, plant.weights)}")


if __name__ == "__main__":
    main()
