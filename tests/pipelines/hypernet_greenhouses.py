"""A hypernetwork writes the weights of a small net for each greenhouse.

The small net has no parameters of its own: it is run by functional_call through vmap with
what the hypernetwork gives from a vector per greenhouse. New greenhouses are met at the
end by fitting their vector alone, by an optimizer that holds nothing else. Vectors have a
penalty in the loss instead of weight decay. Last layer small at first.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, vmap


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 12), nn.Linear(12, 1)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x))).squeeze(-1)


class Hyper(nn.Module):
    def __init__(self, code=4, width=48):
        super().__init__()
        small = Small()
        self.shapes = {k: v.shape for k, v in small.named_parameters()}
        self.body = nn.Sequential(nn.Linear(code, width), nn.SiLU())
        self.heads = nn.ModuleDict()
        for name, p in small.named_parameters():
            head = nn.Linear(width, p.numel())
            nn.init.normal_(head.weight, std=0.02)
            head.bias.data.copy_(p.detach().flatten())  # ordinary weights at first
            self.heads[name.replace(".", "_")] = head
        self.skeleton = [small.to("meta")]  # in a list: not a part of this module

    def weights(self, code):
        h = self.body(code)
        return {
            k: self.heads[k.replace(".", "_")](h).view(-1, *shape)
            for k, shape in self.shapes.items()
        }

    def forward(self, code, x):
        def run(w, x):
            return functional_call(self.skeleton[0], w, (x,))

        return vmap(run)(self.weights(code), x)


def greenhouses(n, rows, gen):
    """Temperature from sun, wind and heating: glass and heater differ by house."""
    glass, heater, draught = (torch.rand(n, 1, generator=gen) for _ in range(3))
    x = torch.rand(n, rows, 3, generator=gen) * 2 - 1
    sun, wind, heat = x.unbind(2)
    y = torch.tanh(2 * glass * sun) + heater * heat - draught * wind * (1 + heat)
    return x, y + 0.03 * torch.randn(n, rows, generator=gen)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=250)
    args = p.parse_args()
    torch.manual_seed(9)
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(2)
    x, y = greenhouses(60, 64, gen)
    fresh_x, fresh_y = greenhouses(20, 64, gen)

    hyper = Hyper()
    codes = nn.Embedding(60, 4)
    nn.init.normal_(codes.weight, std=0.3)
    optimizer = torch.optim.AdamW(
        [
            {"params": hyper.parameters(), "weight_decay": 1e-3},
            {"params": codes.parameters(), "lr": 2e-2, "weight_decay": 0.0},
        ],
        lr=3e-3,
    )
    for step in range(args.steps):
        house = torch.randperm(60, generator=gen)[:15]
        rows = torch.randint(48, (15, 16), generator=gen)  # the last 16 are held out
        bx, by = x[house[:, None], rows], y[house[:, None], rows]
        code = codes(house)
        fit = F.mse_loss(hyper(code, bx), by)
        loss = fit + 1e-3 * code.square().sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49 or step == args.steps - 1:
            with torch.no_grad():
                held = F.mse_loss(hyper(codes.weight, x[:, 48:]), y[:, 48:])
            print(
                f"step {step + 1:3d} loss {fit.item():.4f} held out {held.item():.4f}"
            )

    for q in hyper.parameters():
        q.requires_grad_(False)
    code = nn.Parameter(codes.weight.detach().mean(0).repeat(20, 1))
    optimizer = torch.optim.Adam([code], lr=0.05)
    for k in range(40):
        fit = F.mse_loss(hyper(code, fresh_x[:, :16]), fresh_y[:, :16])
        optimizer.zero_grad()
        fit.backward()
        optimizer.step()
        if k in (0, 39):
            with torch.no_grad():
                held = F.mse_loss(hyper(code, fresh_x[:, 16:]), fresh_y[:, 16:])
            print(f"new houses: fit {fit.item():.4f} held out {held.item():.4f}")


if __name__ == "__main__":
    main()
