"""Solubility from molecular fingerprints on a preemptible machine.

The job is cut once; the second session goes on from the saved file.
"""
import argparse
import os
import tempfile

import torch
from torch import nn

BITS = 96


def molecules(n, seed):
    wg = torch.Generator().manual_seed(1000)
    w = torch.randn(BITS, generator=wg) * (torch.rand(BITS, generator=wg) < 0.3)
    pair = torch.randint(0, BITS, (20, 2), generator=wg)
    pw = torch.randn(20, generator=wg)
    g = torch.Generator().manual_seed(seed)
    x = (torch.rand(n, BITS, generator=g) < 0.25).float()
    y = (
        x @ w
        + (x[:, pair[:, 0]] * x[:, pair[:, 1]]) @ pw
        + 0.2 * torch.randn(n, generator=g)
    )
    return x, y


def make_model():
    torch.manual_seed(90)
    return nn.Sequential(
        nn.Linear(BITS, 64), nn.SiLU(), nn.Linear(64, 32), nn.SiLU(), nn.Linear(32, 1)
    )


def batch_for(step, x, y, size):
    g = torch.Generator().manual_seed(7000 + step)
    i = torch.randint(0, len(x), (size,), generator=g)
    return x[i], y[i]


def save(path, step, model, opt):
    torch.save(
        {"step": step, "model": model.state_dict(), "optimizer": opt.state_dict()}, path
    )


def load(path, model, opt, fixed):
    ck = torch.load(path, weights_only=True)
    model.load_state_dict(ck["model"])
    if fixed:
        opt.load_state_dict(ck["optimizer"])
    return ck["step"]


def moments(opt):
    vals = [s["exp_avg_sq"].flatten() for s in opt.state.values() if "exp_avg_sq" in s]
    return torch.cat(vals).norm().item() if vals else 0.0


def session(name, until, data, args, ckpt=None, quiet=False):
    x, y, xt, yt = data
    model = make_model()
    opt = torch.optim.AdamW(
        model.parameters(), lr=args.lr, betas=(0.9, 0.999), weight_decay=1e-3
    )
    step = 0
    if ckpt and os.path.exists(ckpt):
        step = load(ckpt, model, opt, args.fixed)
        print(f"[{name}] continues at step {step}")
    entry = moments(opt)
    loss_fn = nn.MSELoss()
    while step < until:
        xb, yb = batch_for(step, x, y, args.batch)
        loss = loss_fn(model(xb).squeeze(1), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if not quiet and step % 30 == 0:
            with torch.no_grad():
                v = loss_fn(model(xt).squeeze(1), yt).item()
            print(f"[{name}] step {step:4d} loss {loss.item():.4f} val {v:.4f}")
        step += 1
    if ckpt:
        save(ckpt, step, model, opt)
    with torch.no_grad():
        final = loss_fn(model(xt).squeeze(1), yt).item()
    return model, entry, moments(opt), final


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=240)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=4e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    data = molecules(1500, 1) + molecules(400, 2)
    cut = args.steps // 2
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "last.pt")
        _, _, at_cut, _ = session("first", cut, data, args, path)
        model, at_entry, _, final = session("second", args.steps, data, args, path)
    print(f"final val MSE {final:.4f}")

    if args.prove:
        whole, _, _, whole_final = session("uncut", args.steps, data, args, quiet=True)
        gap = max(
            (a - b).abs().max().item()
            for a, b in zip(model.parameters(), whole.parameters())
        )
        print(f"second-moment norm: {at_cut:.5f} at the cut, {at_entry:.5f} on entry")
        print(
            f"largest weight distance to the uncut run {gap:.6f} (its val MSE {whole_final:.4f})"
        )
        print("fault shows:", "yes" if gap > 1e-5 else "no")


if __name__ == "__main__":
    main()
