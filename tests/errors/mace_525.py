"""Message-passing interatomic potential on random clusters of charged molecules."""
import argparse
import logging
import sys

import torch
import torch.nn as nn

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
log = logging.getLogger("train")

N_ATOMS, N_SPECIES, N_CHARGES, CUTOFF = 7, 3, 5, 3.2


def make_clusters(n, seed):
    """Positions, species and total charge; energy = Morse pairs + charge-dependent site terms."""
    g = torch.Generator().manual_seed(seed)
    grid = torch.tensor(
        [[x, y, z] for x in range(2) for y in range(2) for z in range(2)]
    ).float()[:N_ATOMS]
    pos = grid[None] * 1.5 + 0.22 * torch.randn(n, N_ATOMS, 3, generator=g)
    z = torch.randint(0, N_SPECIES, (n, N_ATOMS), generator=g)
    q = torch.randint(0, N_CHARGES, (n,), generator=g)
    r = torch.cdist(pos, pos) + 10 * torch.eye(N_ATOMS)
    depth = torch.tensor([[0.5, 0.8, 0.3], [0.8, 1.0, 0.6], [0.3, 0.6, 0.4]])[
        z[:, :, None], z[:, None, :]
    ]
    morse = depth * ((1 - torch.exp(-1.4 * (r - 1.5))) ** 2 - 1)
    energy = 0.5 * (morse * (r < CUTOFF)).sum((1, 2))
    affinity = torch.tensor(
        [
            [0.9, -0.3, 0.1, 0.5, -0.8],
            [-0.6, 0.4, 0.0, -0.9, 0.7],
            [0.2, 0.8, -0.1, -0.5, -0.4],
        ]
    )
    energy = energy + 0.6 * affinity[z, q[:, None]].sum(1)
    return {"pos": pos, "z": z, "q": q, "energy": energy}


class RadialBasis(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("centres", torch.linspace(0.6, CUTOFF, n))

    def forward(self, r):
        envelope = 0.5 * (torch.cos(3.14159 * (r / CUTOFF).clamp(max=1)) + 1)
        return torch.exp(-4 * (r[..., None] - self.centres) ** 2) * envelope[..., None]


class Interaction(nn.Module):
    def __init__(self, d, n_rad):
        super().__init__()
        self.linear_up = nn.Linear(d, d, bias=False)
        self.conv_tp_weights = nn.Sequential(
            nn.Linear(n_rad, 32), nn.SiLU(), nn.Linear(32, d)
        )
        self.skip_tp = nn.Linear(d, d, bias=False)

    def forward(self, h, rad):
        msg = self.conv_tp_weights(rad) * self.linear_up(h)[:, None]
        return msg.sum(2) / 3.0 + self.skip_tp(h)


class Product(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(2, d) * 0.3)
        self.linear = nn.Linear(d, d)

    def forward(self, m, h):
        return (
            self.linear(self.weights[0] * m + self.weights[1] * m * torch.tanh(m)) + h
        )


class Potential(nn.Module):
    def __init__(self, d=32, n_rad=10, layers=2):
        super().__init__()
        self.node_embedding = nn.Embedding(N_SPECIES, d)
        self.radial = RadialBasis(n_rad)
        self.joint_embedding = nn.Sequential(
            nn.Embedding(N_CHARGES, 4), nn.Linear(4, d), nn.SiLU(), nn.Linear(d, d)
        )
        self.interactions = nn.ModuleList(Interaction(d, n_rad) for _ in range(layers))
        self.products = nn.ModuleList(Product(d) for _ in range(layers))
        self.readouts = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 16), nn.SiLU(), nn.Linear(16, 1))
            for _ in range(layers)
        )

    def forward(self, pos, z, q):
        r = torch.cdist(pos, pos) + 10 * torch.eye(N_ATOMS)
        rad = self.radial(r)
        h = self.node_embedding(z) * (1 + self.joint_embedding(q)[:, None])
        energy = 0.0
        for inter, prod, read in zip(self.interactions, self.products, self.readouts):
            h = prod(inter(h, rad), h)
            energy = energy + read(h).squeeze(-1).sum(1)
        return energy


def get_params_options(args, model):
    """Weight decay for the interaction weights and the products only."""
    decay, no_decay = [], []
    for name, p in model.interactions.named_parameters():
        (decay if "linear" in name or "skip_tp" in name else no_decay).append(p)
    groups = [
        {
            "name": "embedding",
            "params": list(model.node_embedding.parameters()),
            "weight_decay": 0.0,
        },
        {
            "name": "interactions_decay",
            "params": decay,
            "weight_decay": args.weight_decay,
        },
        {"name": "interactions_no_decay", "params": no_decay, "weight_decay": 0.0},
        {
            "name": "products",
            "params": list(model.products.parameters()),
            "weight_decay": args.weight_decay,
        },
        {
            "name": "readouts",
            "params": list(model.readouts.parameters()),
            "weight_decay": 0.0,
        },
    ]
    if args.fixed:
        groups.append(
            {
                "name": "joint_embedding",
                "params": list(model.joint_embedding.parameters()),
                "weight_decay": 0.0,
            }
        )
    return dict(params=groups, lr=args.lr, amsgrad=True)


def evaluate(model, data, shift):
    with torch.no_grad():
        err = model(data["pos"], data["z"], data["q"]) + shift - data["energy"]
    return err.pow(2).mean().sqrt().item() / N_ATOMS, err.abs().mean().item() / N_ATOMS


def train(model, optimizer, scheduler, data, valid, shift, args):
    gen = torch.Generator().manual_seed(args.seed)
    n = len(data["energy"])
    for epoch in range(args.epochs):
        total = 0.0
        for idx in torch.randperm(n, generator=gen).split(args.batch_size):
            pred = model(data["pos"][idx], data["z"][idx], data["q"][idx]) + shift
            loss = ((pred - data["energy"][idx]) / N_ATOMS).pow(2).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(
                [p for p in model.parameters() if p.grad is not None], 10.0
            )
            optimizer.step()
            total += loss.item() * len(idx)
        scheduler.step()
        if epoch % 3 == 0 or epoch == args.epochs - 1:
            rmse, _ = evaluate(model, valid, shift)
            log.info(
                f"Epoch {epoch}: loss={total / n:.6f}, valid RMSE_E_per_atom={1000 * rmse:.2f} meV"
            )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=24)
    ap.add_argument("--batch_size", type=int, default=32)
    ap.add_argument("--lr", type=float, default=6e-3)
    ap.add_argument("--weight_decay", type=float, default=5e-7)
    ap.add_argument("--seed", type=int, default=123)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    data, valid = make_clusters(480, args.seed), make_clusters(200, args.seed + 1)
    shift = data["energy"].mean()
    model = Potential()
    start = {k: v.detach().clone() for k, v in model.named_parameters()}
    optimizer = torch.optim.Adam(**get_params_options(args, model))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.95)
    log.info(f"{sum(p.numel() for p in model.parameters())} parameters")
    train(model, optimizer, scheduler, data, valid, shift, args)
    rmse, mae = evaluate(model, valid, shift)
    log.info(f"final: RMSE {1000 * rmse:.2f} meV/atom, MAE {1000 * mae:.2f} meV/atom")

    if args.prove:
        known = {id(p) for g in optimizer.param_groups for p in g["params"]}
        still = [
            k
            for k, p in model.named_parameters()
            if p.requires_grad and id(p) not in known and torch.equal(p, start[k])
        ]
        with_grad = [
            k for k, p in model.named_parameters() if k in still and p.grad is not None
        ]
        log.info(f"tensors as they were at the start: {still}")
        log.info(f"of these with a gradient: {len(with_grad)}")
        log.info("fault shows: " + ("yes" if still else "no"))


if __name__ == "__main__":
    main()
