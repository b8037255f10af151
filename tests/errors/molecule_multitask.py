"""Graph network with two heads on random molecules: solubility (regression) and toxicity (yes/no).

The two losses are balanced by learnt uncertainties (Kendall et al. 2018).
"""
from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

ATOMS = 5
MAX_ATOMS = 12


class MoleculeBank:
    """Padded dense graphs: one-hot atoms (N, 12, 5), adjacency (N, 12, 12), mask (N, 12)."""

    def __init__(self, n: int, seed: int):
        g = torch.Generator().manual_seed(seed)
        size = torch.randint(5, MAX_ATOMS + 1, (n,), generator=g)
        self.mask = (torch.arange(MAX_ATOMS) < size[:, None]).float()
        kind = torch.randint(0, ATOMS, (n, MAX_ATOMS), generator=g)
        self.atoms = nn.functional.one_hot(kind, ATOMS).float() * self.mask[..., None]
        bond = (torch.rand(n, MAX_ATOMS, MAX_ATOMS, generator=g) < 0.15).float().triu(1)
        chain = torch.diag(torch.ones(MAX_ATOMS - 1), 1)
        adj = torch.maximum(bond, chain)
        adj = (
            (adj + adj.transpose(1, 2)) * self.mask[:, :, None] * self.mask[:, None, :]
        )
        self.adj = adj
        pairs = torch.einsum("nia,nij,njb->nab", self.atoms, adj, self.atoms)
        polar = pairs[:, 0, 1] + pairs[:, 1, 2] - pairs[:, 3, 3]
        # solubility is in the units of the lab, its spread is large
        self.solubility = 8.0 * (
            0.4 * polar - 0.15 * size + 0.5 * torch.randn(n, generator=g)
        )
        self.solubility = self.solubility - self.solubility.mean()
        risk = pairs[:, 2, 4] + 0.5 * pairs[:, 4, 4]
        self.toxic = (risk + 0.4 * torch.randn(n, generator=g) > risk.median()).float()

    def __len__(self) -> int:
        return len(self.toxic)

    def batch(self, idx: Tensor) -> dict[str, Tensor]:
        return {
            k: getattr(self, k)[idx]
            for k in ("atoms", "adj", "mask", "solubility", "toxic")
        }


class GraphLayer(nn.Module):
    def __init__(self, d_in: int, d_out: int):
        super().__init__()
        self.own = nn.Linear(d_in, d_out)
        self.neighbour = nn.Linear(d_in, d_out, bias=False)
        self.norm = nn.LayerNorm(d_out)

    def forward(self, h: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
        out = self.own(h) + adj @ self.neighbour(h)
        return torch.relu(self.norm(out)) * mask[..., None]


class MoleculeNet(nn.Module):
    def __init__(self, dim: int = 32):
        super().__init__()
        self.layers = nn.ModuleList([GraphLayer(ATOMS, dim), GraphLayer(dim, dim)])
        self.solubility = nn.Sequential(
            nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1)
        )
        self.toxic = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, b: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        h = b["atoms"]
        for layer in self.layers:
            h = layer(h, b["adj"], b["mask"])
        pooled = h.sum(1) / 4.0
        return self.solubility(pooled).squeeze(1), self.toxic(pooled).squeeze(1)


class UncertaintyLoss(nn.Module):
    def __init__(self, n_tasks: int):
        super().__init__()
        self.log_vars = nn.Parameter(torch.zeros(n_tasks))

    def forward(self, *losses: Tensor) -> Tensor:
        total = losses[0].new_zeros(())
        for loss, s in zip(losses, self.log_vars):
            total = total + torch.exp(-s) * loss + s
        return total


def task_losses(model: MoleculeNet, b: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    sol, tox = model(b)
    return (
        nn.functional.mse_loss(sol, b["solubility"]),
        nn.functional.binary_cross_entropy_with_logits(tox, b["toxic"]),
    )


@torch.no_grad()
def validate(model: MoleculeNet, bank: MoleculeBank) -> tuple[float, float]:
    model.eval()
    b = bank.batch(torch.arange(len(bank)))
    sol, tox = model(b)
    model.train()
    return (
        (sol - b["solubility"]).abs().mean().item(),
        ((tox > 0) == (b["toxic"] > 0.5)).float().mean().item(),
    )


def main() -> None:
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(17)
    train_bank, val_bank = MoleculeBank(1200, 1), MoleculeBank(300, 2)
    model = MoleculeNet()
    criterion = UncertaintyLoss(n_tasks=2)
    groups = [{"params": model.parameters()}]
    if args.fixed:
        groups.append({"params": criterion.parameters(), "lr": 2e-2})
    optimizer = torch.optim.Adam(groups, lr=3e-3)

    model.train()
    meter = torch.zeros(2)
    for step in range(1, args.steps + 1):
        b = train_bank.batch(torch.randint(0, len(train_bank), (args.batch_size,)))
        losses = task_losses(model, b)
        loss = criterion(*losses)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter += torch.stack(losses).detach()
        if step % 25 == 0:
            mae, acc = validate(model, val_bank)
            sol, tox = (meter / 25).tolist()
            print(
                f"step {step:4d} | total {loss.item():8.4f} | solubility {sol:7.3f} toxic {tox:.4f} "
                f"| val mae {mae:.3f} acc {acc:.3f}"
            )
            meter.zero_()

    if args.prove:
        s = criterion.log_vars.detach()
        print(
            f"# log variances after the training: {s.tolist()}, gradient there: {criterion.log_vars.grad is not None}"
        )
        print("fault shows:", "yes" if bool((s == 0).all()) else "no")


if __name__ == "__main__":
    main()
