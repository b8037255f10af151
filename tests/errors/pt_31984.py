"""Learns the energy of a small cluster of atoms, and the forces, from samples.

After PyTorch, issue 31984.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

ATOMS = 4


def true_energy(place):
    """A sum over pairs with a shallow well at distance one."""
    first, second = torch.triu_indices(ATOMS, ATOMS, 1)
    apart = (place[:, first] - place[:, second]).square().sum(2).add(0.3).sqrt()
    return (torch.exp(-3 * (apart - 1)) - 2 * torch.exp(-1.5 * (apart - 1))).sum(1)


def samples(count, seed):
    generator = torch.Generator().manual_seed(seed)
    corners = torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    noise = torch.randn(count, ATOMS, 3, generator=generator)
    place = (1.2 * corners + 0.35 * noise).requires_grad_()
    energy = true_energy(place)
    force = -torch.autograd.grad(energy.sum(), place)[0]
    return place.detach(), energy.detach(), force


class Potential(nn.Module):
    def __init__(self, fixed, width=64):
        super().__init__()
        self.fixed = fixed
        self.net = nn.Sequential(
            nn.Linear(ATOMS * (ATOMS - 1) // 2, width), nn.SiLU(),
            nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1),
        )  # fmt: skip

    def energy(self, place):
        first, second = torch.triu_indices(ATOMS, ATOMS, 1)
        apart = (place[:, first] - place[:, second]).square().sum(2).add(1e-3).sqrt()
        return self.net(apart)[:, 0]

    def forward(self, place):
        place = place.detach().requires_grad_()
        energy = self.energy(place)
        slope = torch.autograd.grad(
            energy.sum(), place, retain_graph=True, create_graph=self.fixed
        )[0]
        return energy, -slope


def losses(model, place, energy, force):
    guess, push = model(place)
    return F.mse_loss(guess, energy), F.mse_loss(push, force)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--force-weight", type=float, default=0.5)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train = TensorDataset(*samples(960, args.seed))
    valid = samples(256, args.seed + 1)
    loader = DataLoader(train, batch_size=32, shuffle=True)
    model = Potential(args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    step = 0
    for epoch in range(args.epochs):
        model.train()
        for batch in loader:
            energy_loss, force_loss = losses(model, *batch)
            loss = energy_loss + args.force_weight * force_loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        scheduler.step()
        model.eval()
        held = [one.item() for one in losses(model, *valid)]
        print(f"epoch {epoch} energy {held[0]:.4f} force {held[1]:.4f}", flush=True)
    if args.prove:
        _, force_loss = losses(model, *valid)
        pull = 0.0
        if force_loss.requires_grad:
            weight = model.net[0].weight
            pull = torch.autograd.grad(force_loss, weight)[0].norm().item()
        print(f"the gradient of the weights by the forces' loss is {pull:.6f}")
        print("fault shows:", "yes" if pull == 0 else "no", flush=True)


if __name__ == "__main__":
    main()
