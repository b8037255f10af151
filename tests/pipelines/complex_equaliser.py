"""Complex-valued equaliser of a radio link, in double precision and functional style.

The parameters are complex tensors in a plain dict: a linear filter, a cubic (Volterra)
branch and a widely linear branch on the conjugate. First momentum SGD written out, with
the loss summed over symbols and not averaged, gradients clipped by value, and bursts
of interference skipped; then LBFGS on a fixed block of symbols polishes the result. At the
end a directional derivative (forward mode) tells what a delay of the clock would cost.

    python complex_equaliser.py --steps 200
"""

import argparse
import math

import torch
from torch.func import grad_and_value, jvp

TAPS, BLOCK = 15, 256
torch.set_default_dtype(torch.float64)


def link(n, gen, interference=0.0):
    """16-QAM symbols through multipath, an amplifier near saturation, IQ imbalance, noise."""
    levels = torch.tensor([-3.0, -1.0, 1.0, 3.0]) / math.sqrt(10)
    i, q = levels[torch.randint(0, 4, (2, n + TAPS - 1), generator=gen)]
    sent = torch.complex(i, q)
    channel = torch.tensor([0.06 - 0.03j, -0.18 + 0.1j, 1.0 + 0j, 0.28 + 0.2j, -0.1j])
    padded = torch.nn.functional.pad(sent, (2, 2))
    heard = padded.unfold(0, 5, 1) @ channel.flip(0)
    heard = heard * (1 - 0.06 * heard.abs().square())
    heard = heard + 0.05 * heard.conj()
    noise = torch.randn(2, len(heard), generator=gen)
    heard = heard + 0.03 * torch.complex(*noise)
    if torch.rand((), generator=gen) < interference:
        heard = heard + 4 * torch.exp(1j * torch.arange(len(heard)) * 0.7)
    windows = heard.unfold(0, TAPS, 1)
    return windows, sent[TAPS // 2 : TAPS // 2 + n]


def init_params():
    linear = torch.zeros(TAPS, dtype=torch.complex128)
    linear[TAPS // 2] = 1
    return {
        "linear": linear,
        "cubic": torch.zeros(TAPS, dtype=torch.complex128),
        "conjugate": torch.zeros(TAPS, dtype=torch.complex128),
        "offset": torch.zeros((), dtype=torch.complex128),
    }


def equalise(params, x):
    y = x @ params["linear"] + x.conj() @ params["conjugate"]
    return y + (x * x.abs().square()) @ params["cubic"] + params["offset"]


def summed_loss(params, x, sent):
    return (equalise(params, x) - sent).abs().square().sum()


def clip_value(g, limit):
    """Real and imaginary part each."""
    return torch.view_as_complex(torch.view_as_real(g).clamp(-limit, limit))


def decibel(ratio):
    return 10 * math.log10(ratio)


def error_rate(params, x, sent):
    y = equalise(params, x)
    levels = torch.tensor([-3.0, -1.0, 1.0, 3.0]) / math.sqrt(10)

    def decide(v):
        return (v[:, None] - levels).abs().argmin(1)

    wrong = decide(y.real) != decide(sent.real)
    wrong |= decide(y.imag) != decide(sent.imag)
    return wrong.double().mean().item()


def descend(params, steps, gen, lr=3e-4, momentum=0.9, limit=40.0):
    velocity = {k: torch.zeros_like(p) for k, p in params.items()}
    # what is usual is measured once in a quiet moment
    usual, skipped = summed_loss(params, *link(BLOCK, gen)).item(), 0
    loss_and_grad = grad_and_value(summed_loss)
    for step in range(steps):
        x, sent = link(BLOCK, gen, interference=0.05)
        grads, loss = loss_and_grad(params, x, sent)
        loss = loss.item()
        if loss > 5 * usual:
            skipped += 1
            continue
        usual = 0.9 * usual + 0.1 * loss
        with torch.no_grad():
            rate = lr * (1 - step / steps)
            for k, p in params.items():
                velocity[k].mul_(momentum).add_(clip_value(grads[k], limit))
                p.sub_(rate * velocity[k])
        if step % 10 == 0:
            print(
                f"step {step:4d} loss {loss:9.4f} error {decibel(loss / BLOCK):7.2f} dB"
            )
    print(f"{skipped} blocks with interference skipped")


def polish(params, gen, rounds):
    x, sent = link(2000, gen)
    leaves = {k: p.clone().requires_grad_() for k, p in params.items()}
    optimizer = torch.optim.LBFGS(
        leaves.values(),
        lr=1,
        max_iter=6,
        history_size=10,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimizer.zero_grad()
        loss = summed_loss(leaves, x, sent)
        # a little ridge, as the taps at the edges are badly determined
        loss = loss + 1e-3 * sum(p.abs().square().sum() for p in leaves.values())
        loss.backward()
        return loss

    for i in range(rounds):
        loss = optimizer.step(closure).item()
        print(f"polish {i} loss {loss:9.4f} error {decibel(loss / len(sent)):7.2f} dB")
    return {k: p.detach() for k, p in leaves.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(21)
    x, sent = link(4000, torch.Generator().manual_seed(22))

    params = init_params()
    print(f"symbol errors before {error_rate(params, x, sent):.4f}")
    descend(params, args.steps, gen)
    print(f"symbol errors after descent {error_rate(params, x, sent):.4f}")
    params = polish(params, gen, rounds=max(2, args.steps // 30))
    print(f"symbol errors after polish {error_rate(params, x, sent):.4f}")

    slope = torch.gradient(x, dim=1)[0]
    _, change = jvp(lambda v: equalise(params, v), (x,), (slope,))
    print(f"output changes by {change.abs().mean().item():.3f} per sample of delay")


if __name__ == "__main__":
    main()
