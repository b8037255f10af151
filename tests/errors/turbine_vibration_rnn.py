"""Predict remaining bearing life from turbine vibration windows (Elman RNN)."""
import argparse
import math

import torch
import torch.nn as nn


def vibration(n, length, seed):
    g = torch.Generator().manual_seed(seed)
    wear = torch.rand(n, 1, generator=g)
    t = torch.arange(length).float()[None]
    tone = torch.sin(0.6 * t + 6.28 * torch.rand(n, 1, generator=g))
    rattle = wear * torch.sin(2.1 * t + 6.28 * torch.rand(n, 1, generator=g))
    shock = (torch.rand(n, length, generator=g) < 0.05 * wear).float() * 3
    x = torch.stack(
        [tone + rattle + 0.2 * torch.randn(n, length, generator=g), shock], dim=2
    )
    life = 10 * (1 - wear[:, 0]) ** 1.5
    return x, life


class VibrationRNN(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.0, 0.5]), requires_grad=False)
        self.rnn = nn.RNN(2, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)
        for name, w in self.rnn.named_parameters():
            if "weight_hh" in name:
                nn.init.orthogonal_(w, gain=1.1)

    def forward(self, x):
        h, _ = self.rnn(x * self.scale)
        return self.out(h.mean(1)).squeeze(1)


def total_norm(model):
    return math.sqrt(
        sum(
            p.grad.pow(2).sum().item() for p in model.parameters() if p.grad is not None
        )
    )


def setup(args):
    model = VibrationRNN(args.hidden)
    trainable = filter(lambda p: p.requires_grad, model.parameters())
    if args.fixed:
        trainable = list(trainable)
    opt = torch.optim.SGD(trainable, lr=args.lr, momentum=0.8)
    return model, trainable, opt


@torch.no_grad()
def mae(model, x, y):
    model.eval()
    e = (model(x) - y).abs().mean().item()
    model.train()
    return e


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=250)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--hidden", type=int, default=40)
    ap.add_argument("--length", type=int, default=40)
    ap.add_argument("--lr", type=float, default=0.015)
    ap.add_argument("--max-norm", type=float, default=2.0)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(0)
    x, y = vibration(1200, args.length, 1)
    xt, yt = vibration(300, args.length, 2)
    model, trainable, opt = setup(args)
    loss_fn = nn.MSELoss()
    pick = torch.Generator().manual_seed(6)

    norms = []
    for step in range(args.steps):
        i = torch.randint(0, len(x), (args.batch,), generator=pick)
        loss = loss_fn(model(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trainable, args.max_norm)
        if args.prove:
            norms.append(total_norm(model))
        opt.step()
        if step % 25 == 0 or step == args.steps - 1:
            print(
                f"{step:4d}  loss {loss.item():8.4f}  test MAE {mae(model, xt, yt):.4f}"
            )

    if args.prove:
        over = [s for s, v in enumerate(norms) if v > args.max_norm * 1.001]
        print(
            f"norm at the step: largest {max(norms):.3f}, limit {args.max_norm}, "
            f"{len(over)} of {len(norms)} steps above, first {over[0] if over else None}"
        )
        print("fault shows:", "yes" if over else "no")


if __name__ == "__main__":
    main()
