"""Predicts the power of wind turbines with a network that grows while it trains: a
small one is widened, hardly changing what it computes (Net2Net), and the optimizer's
moments are carried over with its weights. Those of another turbine type's network
start it, with names and shapes that do not all fit. Units that never fire are drawn
anew at the end of each phase.

    python growing_turbine_net.py --steps 280
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class OldPowerNet(nn.Module):
    """The network of the older type: fewer sensors, other names."""

    def __init__(self, sensors=6, width=12):
        super().__init__()
        self.fc_in = nn.Linear(sensors, width)
        self.fc_mid = nn.Linear(width, width)
        self.fc_out = nn.Linear(width, 1)

    def forward(self, x):
        x = F.relu(self.fc_in(x))
        return self.fc_out(F.relu(self.fc_mid(x))).squeeze(1)


class PowerNet(nn.Module):
    def __init__(self, sensors=8, width=12):
        super().__init__()
        self.enter = nn.Linear(sensors, width)
        self.middle = nn.Linear(width, width)
        self.leave = nn.Linear(width, 1)

    def hidden(self, x):
        first = F.relu(self.enter(x))
        return first, F.relu(self.middle(first))

    def forward(self, x):
        return self.leave(self.hidden(x)[1]).squeeze(1)


def turbines(count, sensors, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, sensors, generator=g)
    wind = F.softplus(1.5 * x[:, 0] + 0.5 * x[:, 1] + 0.5)
    power = torch.clamp(0.3 * wind**2, max=2.0) * (1 + 0.3 * torch.tanh(x[:, 2]))
    power = power - 0.4 * (x[:, 3] * x[:, 4]).clamp(-2, 2)
    return x, power + 0.05 * torch.randn(count, generator=g)


def warm_start(model, state):
    """Takes what fits after renaming; the layer of the sensors does not."""
    names = {"fc_in": "enter", "fc_mid": "middle", "fc_out": "leave"}
    renamed = {
        f"{names[k.split('.')[0]]}.{k.split('.')[1]}": v for k, v in state.items()
    }
    own = model.state_dict()
    # A layer comes over whole or not at all: a bias is of no use to other weights.
    strange = {k.split(".")[0] for k, v in renamed.items() if own[k].shape != v.shape}
    fits = {k: v for k, v in renamed.items() if k.split(".")[0] not in strange}
    missing = model.load_state_dict(fits, strict=False).missing_keys
    print(f"taken over {len(fits)} tensors, left as they were: {missing}", flush=True)


def widened(model, optimizer, width, lr):
    """A wider copy with nearly the same output, and its optimizer. New units copy old ones, and
    what goes out of a copied unit is divided among the copies."""
    old_width, sensors = model.enter.weight.shape
    source = torch.cat(
        [torch.arange(old_width), torch.randint(old_width, (width - old_width,))]
    )
    source2 = torch.cat(
        [torch.arange(old_width), torch.randint(old_width, (width - old_width,))]
    )
    copies = torch.bincount(source, minlength=old_width)[source].float()
    copies2 = torch.bincount(source2, minlength=old_width)[source2].float()

    def spread(enter_w, enter_b, middle_w, middle_b, leave_w, leave_b, power):
        return [
            enter_w[source],
            enter_b[source],
            middle_w[source2][:, source] / copies**power,
            middle_b[source2],
            leave_w[:, source2] / copies2**power,
            leave_b.clone(),
        ]

    large = PowerNet(sensors, width)
    with torch.no_grad():
        old = list(model.parameters())
        for p, value in zip(large.parameters(), spread(*old, power=1)):
            p.copy_(value)
            # A little noise on the copies, or they would stay the same for ever.
            if p.shape[0] == width:
                p[old_width:] += 0.02 * torch.randn_like(p[old_width:])
    fresh = torch.optim.AdamW(large.parameters(), lr=lr)
    moments = {
        key: spread(*(optimizer.state[p][key] for p in old), power=0)
        for key in ("exp_avg", "exp_avg_sq")
    }
    for i, p in enumerate(large.parameters()):
        step = optimizer.state[old[0]]["step"].clone()
        fresh.state[p] = {"step": step, **{k: v[i].clone() for k, v in moments.items()}}
    return large, fresh


@torch.no_grad()
def revive(model, optimizer, x):
    """Draws units anew that are zero for every sample, and clears their moments."""
    revived = 0
    layers = [(model.enter, model.middle), (model.middle, model.leave)]
    for active, (layer, after) in zip(model.hidden(x), layers):
        dead = torch.nonzero((active > 0).sum(0) == 0).squeeze(1)
        if len(dead) == 0:
            continue
        fresh = nn.Linear(layer.in_features, layer.out_features)
        layer.weight[dead], layer.bias[dead] = fresh.weight[dead], fresh.bias[dead]
        after.weight[:, dead] = 0.0
        for key in ("exp_avg", "exp_avg_sq"):
            optimizer.state[layer.weight][key][dead] = 0.0
            optimizer.state[layer.bias][key][dead] = 0.0
            optimizer.state[after.weight][key][:, dead] = 0.0
        revived += len(dead)
    return revived


def train(model, optimizer, data, steps, name):
    x, y = data
    for step in range(steps):
        rows = torch.randint(len(x), (64,))
        loss = F.huber_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"{name} step {step} loss {loss.item():.6f}", flush=True)


@torch.no_grad()
def unexplained(model, x, y):
    return ((model(x) - y).square().mean() / y.var()).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=280, help="of all four phases")
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--seed", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    each = max(1, args.steps // 4)

    older = OldPowerNet()
    optimizer = torch.optim.AdamW(older.parameters(), lr=args.lr)
    train(older, optimizer, turbines(1500, 6, seed=1), each, "older type")

    data, test = turbines(3000, 8, seed=2), turbines(500, 8, seed=3)
    model = PowerNet()
    warm_start(model, older.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for width in (12, 24, 48):
        if width > 12:
            before = unexplained(model, *test)
            model, optimizer = widened(model, optimizer, width, 0.5 * args.lr)
            after = unexplained(model, *test)
            print(f"  widened to {width}: {before:.4f} became {after:.4f}", flush=True)
        train(model, optimizer, data, each, f"width {width}")
        revived = revive(model, optimizer, data[0])
        left = unexplained(model, *test)
        print(f"  unexplained {left:.4f}, units drawn anew {revived}", flush=True)


if __name__ == "__main__":
    main()
