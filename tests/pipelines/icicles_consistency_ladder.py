"""Consistency training (no diffusion teacher) of a one-step sampler: where icicles break the eaves.

Teacher and student are the same weights: the teacher's value is taken at the lower noise of a
pair, without gradient and with the student's own noise. The ladder of noise levels gets twice as
fine at set steps, so the loss is a different quantity on each rung; progress is judged by an
energy distance between one-step samples and points that were held out.
"""
import argparse
import copy

import torch
import torch.nn as nn

SIGMA_MIN, SIGMA_MAX, SIGMA_DATA, RHO = 0.02, 8.0, 0.5, 7.0


def breaks(n, gen):
    """Points on a six-armed star of frost; standard deviation near one half per coordinate."""
    arm = torch.randint(6, (n,), generator=gen)
    r = 0.25 + 0.75 * torch.rand(n, generator=gen)
    angle = arm * (torch.pi / 3) + 0.07 * torch.randn(n, generator=gen)
    return torch.stack([r * torch.cos(angle), r * torch.sin(angle)], 1)


class Denoiser(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.register_buffer("freq", torch.randn(16))
        self.inp = nn.Linear(2 + 32, width)
        self.mid = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.drop = nn.Dropout(0.05)
        self.out = nn.Linear(width, 2)
        nn.init.zeros_(self.out.weight)  # the first output is the skip path alone
        nn.init.zeros_(self.out.bias)

    def forward(self, x, sigma):
        s = sigma.unsqueeze(1)
        gap = s - SIGMA_MIN
        c_skip = SIGMA_DATA**2 / (gap**2 + SIGMA_DATA**2)
        c_out = SIGMA_DATA * gap / (s**2 + SIGMA_DATA**2).sqrt()
        c_in = 1 / (s**2 + SIGMA_DATA**2).sqrt()
        phase = 0.25 * s.log() * self.freq * 2 * torch.pi
        h = torch.nn.functional.silu(
            self.inp(torch.cat([c_in * x, phase.sin(), phase.cos()], 1))
        )
        for lin, norm in zip(self.mid, self.norms):
            h = h + self.drop(torch.nn.functional.silu(lin(norm(h))))
        return c_skip * x + c_out * self.out(h)


def ladder(rungs):
    i = torch.linspace(0, 1, rungs)
    lo, hi = SIGMA_MIN ** (1 / RHO), SIGMA_MAX ** (1 / RHO)
    return (lo + i * (hi - lo)) ** RHO


def rung_weights(sig, mean=-0.8, std=1.6):
    """Discretised lognormal over the intervals of the ladder."""
    cdf = torch.special.ndtr((sig.log() - mean) / std)
    return cdf[1:] - cdf[:-1]


def energy_distance(a, b):
    return (
        2 * torch.cdist(a, b).mean()
        - torch.cdist(a, a).mean()
        - torch.cdist(b, b).mean()
    ).item()


@torch.no_grad()
def quality(model, held_out, noise):
    was = model.training
    model.eval()
    sample = model(noise * SIGMA_MAX, torch.full((len(noise),), SIGMA_MAX))
    model.train(was)
    return energy_distance(sample, held_out)


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=640)
    ap.add_argument("--batch", type=int, default=192)
    args = ap.parse_args()
    torch.manual_seed(21)
    gen = torch.Generator().manual_seed(22)
    data, held_out = breaks(6000, gen), breaks(1200, gen)
    noise = torch.randn(1200, 2, generator=gen)
    assert abs(data.std().item() - SIGMA_DATA) < 0.1

    model = Denoiser()
    # the boundary condition holds by construction: at the lowest noise the model is the identity
    probe = torch.randn(8, 2)
    assert torch.allclose(model(probe, torch.full((8,), SIGMA_MIN)), probe, atol=1e-6)
    opt = torch.optim.RAdam(model.parameters(), lr=1e-3)
    decay_from = int(0.8 * args.steps)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt,
        lambda s: 1.0
        if s < decay_from
        else max(0.05, (args.steps - s) / max(1, args.steps - decay_from)),
    )
    huber = 0.00054 * 2**0.5 * 10
    best, best_state = float("inf"), None
    start = quality(model, held_out[:600], noise[:600])
    print(f"start: energy distance {start:.4f}")

    rungs, rung_losses = 0, {}
    for step in range(args.steps):
        wanted = min(8 * 2 ** (4 * step // args.steps), 64) + 1
        if wanted != rungs:
            rungs = wanted
            sig = ladder(rungs)
            weights = rung_weights(sig)
            print(f"step {step:4d}: the ladder now has {rungs} rungs")
        x = data[torch.randint(len(data), (args.batch,))]
        n = torch.multinomial(weights, args.batch, replacement=True)
        z = torch.randn_like(x)
        high, low = sig[n + 1], sig[n]

        # the same dropout mask on both sides: restore the generator before the second call
        rng = torch.get_rng_state()
        student = model(x + high.unsqueeze(1) * z, high)
        after = torch.get_rng_state()
        torch.set_rng_state(rng)
        with torch.no_grad():
            teacher = model(x + low.unsqueeze(1) * z, low)
        assert torch.equal(torch.get_rng_state(), after)

        dist = ((student - teacher).square().sum(1) + huber**2).sqrt() - huber
        loss = (dist / (high - low)).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        rung_losses.setdefault(rungs, []).append(loss.item())

        if step % 80 == 79:
            q = quality(model, held_out[:600], noise[:600])
            print(f"step {step + 1:4d} loss {loss.item():.3f} energy distance {q:.4f}")
            if q < best:  # the selection half of the held-out points
                best, best_state = q, copy.deepcopy(model.state_dict())

    if best_state is not None:
        model.load_state_dict(best_state)
    final = quality(
        model, held_out[600:], noise[600:]
    )  # the other half, untouched until now
    print(
        f"final: energy distance {final:.4f} on unseen points; "
        + " ".join(f"{k}: {sum(v) / len(v):.2f}" for k, v in rung_losses.items())
    )
    if args.steps >= 640:
        assert final < 0.2 * start, (start, final)


if __name__ == "__main__":
    main()
