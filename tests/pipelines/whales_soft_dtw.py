"""Pitch curves of whale calls from sound, with labels that know the shape but not the timing.

An annotator drew each call's pitch curve with 14 points at no fixed speed, so curve and sound are
only alike up to a time warp. The loss is soft-DTW (Cuturi & Blondel 2017), written as a custom
autograd function with batched anti-diagonals. Soft-DTW is a soft minimum over ALL alignments and
goes below zero for good fits; the hard DTW distance is what evaluation reports.
"""
import argparse

import torch
import torch.nn as nn

FRAMES, SAMPLES, POINTS, GAMMA = 20, 64, 14, 0.05
BIG = 1e8


def softmin3(a, b, c, gamma):
    z = torch.stack([a, b, c], -1)
    if gamma == 0:
        return z.amin(-1)
    return -gamma * torch.logsumexp(-z / gamma, -1)


def accumulate(cost, gamma):
    """R[i, j]: (soft) cost of the best path to cell (i, j); cells are 1-based, borders are BIG."""
    b, n, m = cost.shape
    r = cost.new_full((b, n + 2, m + 2), BIG)
    r[:, 0, 0] = 0
    for s in range(2, n + m + 1):  # all cells with i + j == s at once
        i = torch.arange(max(1, s - m), min(n, s - 1) + 1)
        j = s - i
        r[:, i, j] = cost[:, i - 1, j - 1] + softmin3(
            r[:, i - 1, j - 1], r[:, i - 1, j], r[:, i, j - 1], gamma
        )
    return r


class SoftDtw(torch.autograd.Function):
    @staticmethod
    def forward(ctx, cost, gamma):
        r = accumulate(cost, gamma)
        ctx.save_for_backward(cost, r)
        ctx.gamma = gamma
        return r[:, cost.shape[1], cost.shape[2]].clone()

    @staticmethod
    def backward(ctx, grad):
        cost, r = ctx.saved_tensors
        gamma = ctx.gamma
        b, n, m = cost.shape
        r = r.clone()
        r[:, n + 1, :] = -BIG
        r[:, :, m + 1] = -BIG
        r[:, n + 1, m + 1] = r[:, n, m]
        d = cost.new_zeros(b, n + 2, m + 2)
        d[:, 1 : n + 1, 1 : m + 1] = cost
        e = cost.new_zeros(b, n + 2, m + 2)
        e[:, n + 1, m + 1] = 1
        for s in range(n + m, 1, -1):
            i = torch.arange(max(1, s - m), min(n, s - 1) + 1)
            j = s - i
            here = r[:, i, j]
            down = torch.exp((r[:, i + 1, j] - here - d[:, i + 1, j]) / gamma)
            right = torch.exp((r[:, i, j + 1] - here - d[:, i, j + 1]) / gamma)
            both = torch.exp((r[:, i + 1, j + 1] - here - d[:, i + 1, j + 1]) / gamma)
            e[:, i, j] = (
                e[:, i + 1, j] * down
                + e[:, i, j + 1] * right
                + e[:, i + 1, j + 1] * both
            )
        return grad[:, None, None] * e[:, 1 : n + 1, 1 : m + 1], None


def costs(x, y):
    return (x[:, :, None] - y[:, None, :]).square()


def calls(n, g):
    """Sound frames, the annotator's warped curve, and the true pitch of every frame."""
    u = torch.rand(n, 4, generator=g)
    t = torch.linspace(0, 1, FRAMES)
    warped = torch.linspace(0, 1, POINTS) ** (0.6 + 0.9 * torch.rand(n, 1, generator=g))

    def curve(time):
        return 0.5 + 0.35 * torch.sin(
            torch.pi * (1 + u[:, :1]) * time + 6.28 * u[:, 1:2]
        ) * (0.6 + 0.4 * u[:, 2:3])

    pitch, label = curve(t.expand(n, -1)), curve(warped)
    hertz = 2 + 22 * pitch  # periods per frame
    phase = 2 * torch.pi * torch.rand(n, FRAMES, 1, generator=g)
    k = torch.arange(SAMPLES) / SAMPLES
    wave = torch.sin(2 * torch.pi * hertz[..., None] * k + phase)
    wave = wave * (0.5 + u[:, 3:, None]) + 0.3 * torch.randn(
        n, FRAMES, SAMPLES, generator=g
    )
    spectrum = torch.fft.rfft(wave * torch.hann_window(SAMPLES), dim=-1).abs()
    return torch.log1p(spectrum).transpose(1, 2), label, pitch


class PitchNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(SAMPLES // 2 + 1, width, 1),
            nn.GELU(),
            nn.Conv1d(width, width, 3, padding=1),
            nn.GELU(),
            nn.Conv1d(width, 1, 1),
        )

    def forward(self, spectrum):
        return self.net(spectrum).squeeze(1)


def check_gradient():
    g = torch.Generator().manual_seed(0)
    cost = torch.rand(2, 5, 4, generator=g, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda c: SoftDtw.apply(c, 0.3), (cost,))


@torch.no_grad()
def evaluate(net, data):
    """Hard DTW per frame against the label, and mean error against the pitch nobody annotated."""
    net.eval()
    spectrum, label, pitch = data
    guess = net(spectrum)
    hard = accumulate(costs(guess, label), 0)[:, FRAMES, POINTS].mean().item() / FRAMES
    net.train()
    return hard, (guess - pitch).abs().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=5)
    epochs = ap.parse_args().epochs
    check_gradient()
    torch.manual_seed(9)
    g = torch.Generator().manual_seed(10)
    train, held = calls(640, g), calls(128, g)
    net = PitchNet()
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    start = evaluate(net, held)
    print(f"untrained: hard dtw {start[0]:.4f}, pitch error {start[1]:.4f}")
    for epoch in range(epochs):
        total = 0.0
        for rows in torch.randperm(len(train[0]), generator=g).split(32):
            spectrum, label = train[0][rows], train[1][rows]
            loss = SoftDtw.apply(costs(net(spectrum), label), GAMMA).mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
            total += loss.item() * len(rows)
        end = evaluate(net, held)
        print(
            f"epoch {epoch + 1}: soft-dtw {total / len(train[0]):+.4f} (may be negative) | held: hard "
            f"dtw {end[0]:.4f}, pitch error {end[1]:.4f}"
        )
    if epochs >= 5:
        assert end[0] < 0.2 * start[0] and end[1] < 0.5 * start[1]


if __name__ == "__main__":
    main()
