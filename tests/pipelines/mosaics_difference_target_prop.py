"""Difference target propagation (Lee et al., 2015) on tesserae from a mosaic.

No error is propagated through the stack. Each hidden layer has
  * a forward map  f_i : h_{i-1} -> h_i,
  * a feedback map g_i : h_i -> h_{i-1}, trained as a noisy local inverse,
and receives a *target* that it should have produced. The top hidden layer's
target is one small gradient step on the class loss; lower ones come from
    t_{i-1} = h_{i-1} - g_i(h_i) + g_i(t_i).
Every layer then regresses on its target from a detached input, so the layers
are trained by separate losses and separate optimizers.
"""
import argparse

import torch
import torch.nn.functional as F
from torch import nn

HIDDEN = [48, 48, 32]
N_CLASSES = 3


def make_tesserae(n, rng, lift):
    """Rings around a centre (pattern of the mosaic), seen through 10 noisy sensors."""
    ring = torch.randint(N_CLASSES, (n,), generator=rng)
    angle = torch.rand(n, generator=rng) * 2 * torch.pi
    radius = 0.5 + ring + 0.12 * torch.randn(n, generator=rng)
    plane = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    x = plane @ lift + 0.05 * torch.randn(n, lift.shape[1], generator=rng)
    return x, ring


class Layer(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.lin = nn.Linear(n_in, n_out)
        nn.init.orthogonal_(self.lin.weight, gain=1.2)
        nn.init.zeros_(self.lin.bias)

    def forward(self, h):
        return torch.tanh(self.lin(h))


class TargetPropNet(nn.Module):
    def __init__(self, n_in):
        super().__init__()
        sizes = [n_in] + HIDDEN
        self.f = nn.ModuleList(Layer(a, b) for a, b in zip(sizes[:-1], sizes[1:]))
        # g[0] would predict the raw input, which no one needs a target for.
        self.g = nn.ModuleList(Layer(b, a) for a, b in zip(sizes[1:-1], sizes[2:]))
        self.head = nn.Linear(HIDDEN[-1], N_CLASSES)

    def forward(self, x):
        for layer in self.f:
            x = layer(x)
        return self.head(x)

    @torch.no_grad()
    def activities(self, x):
        acts = [x]
        for layer in self.f:
            acts.append(layer(acts[-1]))
        return acts


def train_inverses(net, acts, optimizer, sigma):
    """g_i(f_i(h + noise)) should give h + noise back; f_i is a constant here."""
    optimizer.zero_grad()
    total = 0.0
    for i, g in enumerate(net.g, start=1):
        noisy = acts[i] + sigma * torch.randn_like(acts[i])
        with torch.no_grad():
            image = net.f[i](noisy)
        total = total + F.mse_loss(g(image), noisy)
    total.backward()
    optimizer.step()
    return float(total.detach())


def top_target(net, h_top, y, eta):
    """One gradient step on the activity (not on the weights) of the last hidden layer."""
    h = h_top.clone().requires_grad_(True)
    loss = F.cross_entropy(net.head(h), y, reduction="sum")
    (grad,) = torch.autograd.grad(loss, h)
    return (h_top - eta * grad).detach()


@torch.no_grad()
def lower_targets(net, acts, t_top):
    targets = [None] * len(acts)
    targets[-1] = t_top
    for i in range(len(acts) - 1, 1, -1):
        g = net.g[i - 2]
        targets[i - 1] = acts[i - 1] - g(acts[i]) + g(targets[i])
    return targets


def train_forwards(net, acts, targets, y, layer_optimizers, head_optimizer):
    for i, (layer, opt) in enumerate(zip(net.f, layer_optimizers), start=1):
        opt.zero_grad()
        # Sum over units, mean over rows: the scale of a gradient on the activity.
        loss = (layer(acts[i - 1]) - targets[i]).pow(2).sum(1).mean()
        loss.backward()
        opt.step()
    head_optimizer.zero_grad()
    class_loss = F.cross_entropy(net.head(acts[-1]), y)
    class_loss.backward()
    head_optimizer.step()
    return class_loss.item()


@torch.no_grad()
def accuracy(net, x, y):
    net.eval()
    acc = (net(x).argmax(1) == y).float().mean().item()
    net.train()
    return acc


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=500)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--eta", type=float, default=0.4)
    ap.add_argument("--sigma", type=float, default=0.1)
    ap.add_argument("--warm-inverse", type=int, default=60)
    args = ap.parse_args()

    torch.manual_seed(11)
    rng = torch.Generator().manual_seed(12)
    lift = torch.randn(2, 10, generator=rng) / 2
    x_train, y_train = make_tesserae(3000, rng, lift)
    x_test, y_test = make_tesserae(1000, rng, lift)

    net = TargetPropNet(10)
    inverse_opt = torch.optim.Adam(net.g.parameters(), lr=3e-3)
    layer_opts = [torch.optim.Adam(layer.parameters(), lr=2e-3) for layer in net.f]
    head_opt = torch.optim.Adam(net.head.parameters(), lr=3e-3)
    owned = [
        p
        for o in [inverse_opt, head_opt, *layer_opts]
        for group in o.param_groups
        for p in group["params"]
    ]
    assert len(owned) == len({id(p) for p in owned}) == len(list(net.parameters()))

    def batch():
        rows = torch.randint(len(x_train), (args.batch,), generator=rng)
        return x_train[rows], y_train[rows]

    # The feedback maps go first: targets are only as good as the inverses.
    first_inverse = last_inverse = None
    for _ in range(args.warm_inverse):
        x, _ = batch()
        last_inverse = train_inverses(net, net.activities(x), inverse_opt, args.sigma)
        first_inverse = last_inverse if first_inverse is None else first_inverse
    print(f"inverse loss {first_inverse:.4f} -> {last_inverse:.4f}")
    assert last_inverse < first_inverse

    start = accuracy(net, x_test, y_test)
    losses = []
    for step in range(args.steps):
        x, y = batch()
        acts = net.activities(x)
        inverse = train_inverses(net, acts, inverse_opt, args.sigma)
        targets = lower_targets(net, acts, top_target(net, acts[-1], y, args.eta))
        losses.append(train_forwards(net, acts, targets, y, layer_opts, head_opt))
        if step % 100 == 0 or step == args.steps - 1:
            print(
                f"step {step:4d} class loss {losses[-1]:.3f} inverse {inverse:.4f} "
                f"test acc {accuracy(net, x_test, y_test):.3f}"
            )

    end = accuracy(net, x_test, y_test)
    print(f"test accuracy {start:.3f} -> {end:.3f}")
    if args.steps >= 500:
        assert end > 0.9 and sum(losses[-20:]) < 0.5 * sum(losses[:20])


if __name__ == "__main__":
    main()
