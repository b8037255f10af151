"""Two starlings in one recording: a small mask separator, permutation-invariant SI-SNR.

The birds have no order, so for each mixture the loss takes the better of the two assignments.
Mixtures are made afresh every step from a pool of single calls (dynamic mixing); validation
mixtures are fixed and come from calls that are never trained on. The net runs under bfloat16
autocast, the loss in float32. A negative loss is normal here (it is -dB).
"""
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

LENGTH = 768


def calls(n, seed):
    """Warbling tones: own carrier, own vibrato, own rhythm of syllables."""
    g = torch.Generator().manual_seed(seed)

    def u(lo, hi):
        return lo + (hi - lo) * torch.rand(n, 1, generator=g)

    t = torch.arange(LENGTH).float()
    carrier = u(0.04, 0.40)
    phase = 2 * math.pi * carrier * t + u(0.5, 3.0) * torch.sin(
        2 * math.pi * t / u(90, 300)
    )
    envelope = torch.sigmoid(6 * torch.sin(2 * math.pi * t / u(120, 400) + u(0, 6.28)))
    x = (0.05 + envelope) * torch.sin(phase + u(0, 6.28))
    return x / x.pow(2).mean(1, keepdim=True).sqrt()


def mix(pool, n, gen):
    """n mixtures of two DIFFERENT calls, second one at -3..3 dB, a little hiss."""
    first = torch.randint(len(pool), (n,), generator=gen)
    second = (first + torch.randint(1, len(pool), (n,), generator=gen)) % len(pool)
    db = 6 * torch.rand(n, 1, generator=gen) - 3
    sources = torch.stack([pool[first], pool[second] * 10 ** (db / 20)], dim=1)
    hiss = 0.03 * torch.randn(n, LENGTH, generator=gen)
    return sources.sum(1) + hiss, sources


class Separator(nn.Module):
    def __init__(self, filters=64, hidden=64, kernel=32, stride=16):
        super().__init__()
        self.pad = stride
        self.enc = nn.Conv1d(1, filters, kernel, stride, bias=False)
        self.norm = nn.GroupNorm(1, filters)
        self.inp = nn.Conv1d(filters, hidden, 1)
        self.tcn = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(hidden, hidden, 3, padding=d, dilation=d),
                nn.PReLU(),
                nn.GroupNorm(1, hidden),
                nn.Conv1d(hidden, hidden, 1),
            )
            for d in (1, 2, 4, 1, 2, 4)
        )
        self.masks = nn.Conv1d(hidden, 2 * filters, 1)
        self.dec = nn.ConvTranspose1d(filters, 1, kernel, stride, bias=False)

    def forward(self, wave):
        n, length = wave.shape
        code = self.enc(F.pad(wave, (self.pad, self.pad)).unsqueeze(1))
        h = self.inp(self.norm(code))
        for block in self.tcn:
            h = h + block(h)
        masks = self.masks(h).view(n, 2, -1, h.shape[-1]).sigmoid()
        out = self.dec((masks * code.unsqueeze(1)).flatten(0, 1))
        return out.view(n, 2, -1)[..., self.pad : self.pad + length]


def si_snr(est, ref, eps=1e-8):
    est = est - est.mean(-1, keepdim=True)
    ref = ref - ref.mean(-1, keepdim=True)
    along = (
        (est * ref).sum(-1, keepdim=True)
        / (ref.pow(2).sum(-1, keepdim=True) + eps)
        * ref
    )
    return 10 * torch.log10(
        (along.pow(2).sum(-1) + eps) / ((est - along).pow(2).sum(-1) + eps)
    )


def pit(est, ref):
    """Best mean SI-SNR per mixture over both assignments, and whether it was the swapped one."""
    straight = si_snr(est, ref).mean(1)
    swapped = si_snr(est.flip(1), ref).mean(1)
    return torch.maximum(straight, swapped), swapped > straight


def separate(net, wave):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        est = net(wave)
    return est.float()


@torch.no_grad()
def improvement(net, wave, sources):
    net.eval()
    got, _ = pit(separate(net, wave), sources)
    raw = si_snr(wave.unsqueeze(1).expand_as(sources), sources).mean(1)
    net.train()
    return (got - raw).mean().item()


def sanity():
    ref = calls(4, seed=50).view(2, 2, LENGTH)
    noisy = ref + 0.1 * torch.randn(
        ref.shape, generator=torch.Generator().manual_seed(1)
    )
    a, sa = pit(noisy, ref)
    b, sb = pit(3.0 * noisy.flip(1), ref)  # neither order nor level may matter
    assert torch.allclose(a, b, atol=1e-2) and not sa.any() and sb.all()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--batch", type=int, default=12)
    args = ap.parse_args()
    sanity()
    torch.manual_seed(3)
    gen = torch.Generator().manual_seed(17)
    pool = calls(500, seed=1)
    val = mix(calls(80, seed=2), 64, torch.Generator().manual_seed(18))

    net = Separator()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps, eta_min=1e-4)
    start = improvement(net, *val)
    print(f"start: SI-SNR improvement {start:.2f} dB")
    history, swaps, t0 = [], 0, time.time()
    for step in range(1, args.steps + 1):
        wave, sources = mix(pool, args.batch, gen)
        best, was_swapped = pit(separate(net, wave), sources)
        loss = -best.mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
        sched.step()
        history.append(loss.item())
        swaps += was_swapped.sum().item()
        if step % 40 == 0 or step == args.steps:
            print(
                f"step {step:4d}  loss {sum(history[-20:]) / len(history[-20:]):6.2f} dB  "
                f"improvement {improvement(net, *val):5.2f} dB  swapped "
                f"{swaps / (step * args.batch):.2f}  {time.time() - t0:.1f}s"
            )
    end = improvement(net, *val)
    assert all(p.dtype == torch.float32 for p in net.parameters())
    if args.steps >= 150:
        assert sum(history[-20:]) < sum(history[:20]) - 40 and end > 1.5, (start, end)


if __name__ == "__main__":
    main()
