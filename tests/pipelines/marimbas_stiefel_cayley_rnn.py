"""A recurrent net whose transition stays orthogonal: own optimizer on SO(n).

Task: a marimba player hears one of eight bars, then 40 beats of hall noise, and
has to name the bar. The recurrent matrix lives on the orthogonal group. Its
optimizer keeps momentum in the Lie algebra (skew matrices) and retracts with
the Cayley transform, so the matrix is never an additive update of itself.
Everything else is trained by a plain RMSprop. Every 100 steps the matrix is
polished by its polar factor, to remove rounding.
"""
import argparse

import torch
import torch.nn.functional as F
from torch import nn

BARS, BEATS, HIDDEN = 8, 40, 32


class CayleySGD(torch.optim.Optimizer):
    """Momentum SGD on square orthogonal matrices, W <- Cayley(-lr * M) W."""

    def __init__(self, params, lr=0.01, momentum=0.9):
        if lr <= 0 or not 0 <= momentum < 1:
            raise ValueError("bad lr or momentum")
        super().__init__(params, dict(lr=lr, momentum=momentum))
        for group in self.param_groups:
            for w in group["params"]:
                if w.dim() != 2 or w.shape[0] != w.shape[1]:
                    raise ValueError("CayleySGD is for square matrices")
                if orthogonality_gap(w) > 1e-3:
                    raise ValueError("start from an orthogonal matrix")

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is None:
                    continue
                # Riemannian gradient for left translations: skew part of G W^T.
                gw = w.grad @ w.T
                skew = 0.5 * (gw - gw.T)
                state = self.state[w]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(skew)
                m = state["momentum"].mul_(group["momentum"]).add_(skew)
                half = 0.5 * group["lr"] * m
                eye = torch.eye(len(w), dtype=w.dtype, device=w.device)
                w.copy_(torch.linalg.solve(eye + half, (eye - half) @ w))
        return loss

    @torch.no_grad()
    def polish(self):
        """Nearest orthogonal matrix (polar factor); changes nothing beyond rounding."""
        for group in self.param_groups:
            for w in group["params"]:
                u, _, vh = torch.linalg.svd(w)
                w.copy_(u @ vh)


def orthogonality_gap(w):
    with torch.no_grad():
        return (w @ w.T - torch.eye(len(w))).abs().max().item()


class OrthogonalRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(BARS + 1, HIDDEN)
        self.transition = nn.Parameter(torch.empty(HIDDEN, HIDDEN))
        nn.init.orthogonal_(self.transition)
        self.gate = nn.Parameter(torch.full((HIDDEN,), -0.01))  # modReLU bias
        self.readout = nn.Linear(HIDDEN, BARS)

    def mod_relu(self, h):
        return torch.sign(h) * F.relu(h.abs() + self.gate)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], HIDDEN)
        for beat in x.unbind(1):
            h = self.mod_relu(h @ self.transition.T + self.inp(beat))
        return self.readout(h)


def make_batch(n, rng):
    """First beat: which bar. Then a noise channel only."""
    bar = torch.randint(BARS, (n,), generator=rng)
    x = torch.zeros(n, BEATS + 1, BARS + 1)
    x[:, 0, :BARS] = F.one_hot(bar, BARS).float()
    x[:, 1:, BARS] = 0.5 * torch.randn(n, BEATS, generator=rng)
    return x, bar


@torch.no_grad()
def evaluate(net, x, y):
    net.eval()
    logits = net(x)
    net.train()
    return (
        F.cross_entropy(logits, y).item(),
        (logits.argmax(1) == y).float().mean().item(),
    )


def check_against_finite_difference(net, x, y):
    """The skew gradient is the slope along W(t) = exp(tA) W, for a random skew A."""
    a = torch.randn(HIDDEN, HIDDEN, dtype=torch.float64)
    a = a - a.T
    net64 = OrthogonalRNN().double()
    net64.load_state_dict(net.state_dict())
    w0 = net64.transition.detach().clone()
    x64 = x.double()
    loss = F.cross_entropy(net64(x64), y)
    (g,) = torch.autograd.grad(loss, net64.transition)
    gw = g @ w0.T
    slope = (0.5 * (gw - gw.T) * a).sum().item()
    values = []
    for t in (1e-7, -1e-7):
        with torch.no_grad():
            net64.transition.copy_(torch.linalg.matrix_exp(t * a) @ w0)
            values.append(F.cross_entropy(net64(x64), y).item())
    numeric = (values[0] - values[1]) / 2e-7
    assert abs(numeric - slope) < 1e-3 * max(1.0, abs(slope)), (numeric, slope)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=250)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--lr-matrix", type=float, default=0.005)
    ap.add_argument("--lr-rest", type=float, default=5e-4)
    args = ap.parse_args()

    torch.manual_seed(41)
    rng = torch.Generator().manual_seed(42)
    x_test, y_test = make_batch(512, torch.Generator().manual_seed(43))
    net = OrthogonalRNN()
    check_against_finite_difference(net, x_test[:32], y_test[:32])

    others = [p for name, p in net.named_parameters() if name != "transition"]
    cayley = CayleySGD([net.transition], lr=args.lr_matrix)
    rest = torch.optim.RMSprop(others, lr=args.lr_rest)
    sign = torch.linalg.det(net.transition.detach()).sign()

    start_loss, start_acc = evaluate(net, x_test, y_test)
    w_start = net.transition.detach().clone()
    widest = 0.0
    for step in range(args.steps):
        x, y = make_batch(args.batch, rng)
        loss = F.cross_entropy(net(x), y)
        cayley.zero_grad()
        rest.zero_grad()
        loss.backward()
        cayley.step()
        # The gradients of the matrix need no clipping (the map is an isometry); the others get it.
        nn.utils.clip_grad_norm_(others, 1.0)
        rest.step()
        widest = max(widest, orthogonality_gap(net.transition))
        if (step + 1) % 100 == 0:
            cayley.polish()
        if step % 25 == 0 or step == args.steps - 1:
            print(
                f"step {step:4d} loss {loss.item():.4f} gap {orthogonality_gap(net.transition):.1e}"
            )

    end_loss, end_acc = evaluate(net, x_test, y_test)
    moved = (net.transition.detach() - w_start).norm().item()
    print(
        f"test loss {start_loss:.3f} -> {end_loss:.3f}, accuracy {start_acc:.3f} -> {end_acc:.3f}; "
        f"matrix moved {moved:.3f}, widest gap {widest:.1e}"
    )
    assert widest < 1e-4 and moved > 0
    assert (
        torch.linalg.det(net.transition.detach()).sign() == sign
    )  # stays on its component
    if args.steps >= 250:
        assert end_acc > 0.95 and end_loss < 0.3 * start_loss


if __name__ == "__main__":
    main()
