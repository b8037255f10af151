"""A painted wall as a sum of coloured Gaussians that split and die during the fit.

One picture is fitted, all of its pixels in every step. Every `--tend` steps, splats that are pulled
hard are split in two, those that have faded are taken away, and the state of Adam is cut and
grown along with the parameters. The check is on points between the pixels, which were never fitted.
"""
import argparse
import math

import torch

SIDE = 40
FIELDS = {
    "centre": 0.01,
    "log_scale": 0.02,
    "turn": 0.02,
    "colour": 0.02,
    "opacity": 0.05,
}  # learning rates


def wall(xy):
    """The mural, at any points of the unit square: sky, hills, a sun, a tower."""
    x, y = xy[:, 0], xy[:, 1]
    sky = torch.stack([0.35 + 0.3 * y, 0.5 + 0.2 * y, 0.9 - 0.2 * y], 1)
    hill = torch.sigmoid((y - 0.68 - 0.08 * torch.sin(9 * x)) * 60).unsqueeze(1)
    img = sky * (1 - hill) + hill * torch.tensor([0.2, 0.5, 0.2])
    sun = torch.sigmoid(
        (0.12 - ((x - 0.75) ** 2 + (y - 0.25) ** 2).sqrt()) * 60
    ).unsqueeze(1)
    img = img * (1 - sun) + sun * torch.tensor([1.0, 0.8, 0.2])
    tower = (
        torch.sigmoid((0.07 - (x - 0.3).abs()) * 80)
        * torch.sigmoid((y - 0.3) * 80)
        * torch.sigmoid((0.8 - y) * 80)
    ).unsqueeze(1)
    return img * (1 - tower) + tower * torch.tensor([0.55, 0.25, 0.2])


def lattice(side, offset=0.5):
    t = (torch.arange(side) + offset) / side
    yy, xx = torch.meshgrid(t, t, indexing="ij")
    return torch.stack([xx, yy], -1).view(-1, 2)


class Splats:
    """Parameters and optimiser in one place, since both change size together."""

    def __init__(self, n):
        s = 1 / math.sqrt(n)
        init = {
            "centre": torch.rand(n, 2),
            "log_scale": torch.full((n, 2), math.log(0.5 * s)),
            "turn": torch.zeros(n, 1),
            "colour": torch.rand(n, 3) * 0.5,
            "opacity": torch.zeros(n, 1),
        }
        self.p = {k: torch.nn.Parameter(v) for k, v in init.items()}
        self.opt = torch.optim.Adam(
            [{"params": [self.p[k]], "lr": lr, "name": k} for k, lr in FIELDS.items()],
            eps=1e-12,
        )
        self.pull, self.count = torch.zeros(n), 0

    def __len__(self):
        return len(self.p["turn"])

    def paint(self, xy):
        d = xy.unsqueeze(1) - self.p["centre"]  # points x splats x 2
        c, s = self.p["turn"].cos().squeeze(1), self.p["turn"].sin().squeeze(1)
        inv = (-self.p["log_scale"]).exp()
        u = (c * d[..., 0] + s * d[..., 1]) * inv[:, 0]
        v = (c * d[..., 1] - s * d[..., 0]) * inv[:, 1]
        weight = torch.exp(-0.5 * (u * u + v * v)) * torch.sigmoid(
            self.p["opacity"]
        ).squeeze(1)
        return weight @ self.p["colour"]

    def note_pull(self):
        self.pull += self.p["centre"].grad.norm(dim=1)
        self.count += 1

    def _replace(self, name, rows, extra):
        """Keep `rows`, append `extra`; Adam's moments follow, new rows start with none."""
        old = self.p[name]
        new = torch.nn.Parameter(torch.cat([old.detach()[rows], extra]))
        group = next(g for g in self.opt.param_groups if g["name"] == name)
        assert group["params"][0] is old
        state = self.opt.state.pop(old)
        for key in ("exp_avg", "exp_avg_sq"):
            state[key] = torch.cat([state[key][rows], torch.zeros_like(extra)])
        group["params"][0] = new
        self.opt.state[new] = state
        self.p[name] = new

    @torch.no_grad()
    def tend(self, limit, share=0.3, faint=0.02):
        alive = (
            torch.sigmoid(self.p["opacity"]).squeeze(1) * self.p["colour"].abs().amax(1)
            > faint
        )
        room = max(0, limit - int(alive.sum()))
        want = min(room, int(share * len(self)))
        pull = torch.where(alive, self.pull / max(self.count, 1), torch.tensor(-1.0))
        split = torch.zeros(len(self), dtype=torch.bool)
        if want:
            split[pull.topk(want).indices] = True
            split &= alive
        keep = (alive & ~split).nonzero().squeeze(1)
        parents = split.nonzero().squeeze(1)
        # two children on the long axis, smaller; each as bright as the parent (half the area each)
        scale = self.p["log_scale"][parents]
        t = self.p["turn"][parents].squeeze(1)
        long_x = (scale[:, 0] >= scale[:, 1]).unsqueeze(1)
        axis = torch.where(
            long_x,
            torch.stack([t.cos(), t.sin()], 1),
            torch.stack([-t.sin(), t.cos()], 1),
        )
        step = 0.6 * scale.exp().amax(1, keepdim=True) * axis
        small = scale - torch.where(torch.cat([long_x, ~long_x], 1), math.log(1.8), 0.0)
        for name in FIELDS:
            child = self.p[name][parents]
            pair = torch.cat([child, child])
            if name == "centre":
                pair = torch.cat([child + step, child - step])
            elif name == "log_scale":
                pair = torch.cat([small, small])
            self._replace(name, keep, pair)
        self.pull, self.count = torch.zeros(len(self)), 0
        return len(parents), int((~alive).sum())


def psnr(a, b):
    return -10 * math.log10((a - b).square().mean().item())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=500)
    ap.add_argument("--tend", type=int, default=60)
    ap.add_argument("--limit", type=int, default=90)
    args = ap.parse_args()
    torch.manual_seed(13)
    pixels = lattice(SIDE)
    target = wall(pixels)
    between = (
        lattice(SIDE - 1, offset=1.0) * (SIDE - 1) / SIDE
    )  # the corners shared by four pixels
    between_target = wall(between)
    splats = Splats(24)
    with torch.no_grad():
        first = psnr(splats.paint(between), between_target)
    stop_tending = int(0.7 * args.steps)
    for step in range(args.steps):
        loss = (splats.paint(pixels) - target).square().mean()
        splats.opt.zero_grad()
        loss.backward()
        splats.note_pull()
        splats.opt.step()
        if step == int(0.8 * args.steps):
            for g in splats.opt.param_groups:
                g["lr"] *= 0.3
        if (step + 1) % args.tend == 0:
            with torch.no_grad():
                q = psnr(splats.paint(between), between_target)
            line = f"step {step + 1:4d} loss {loss.item():.5f} splats {len(splats):3d} PSNR between pixels {q:.2f}"
            if step < stop_tending:
                born, dead = splats.tend(args.limit)
                line += f" | split {born} removed {dead}"
            print(line)
    with torch.no_grad():
        last = psnr(splats.paint(between), between_target)
    owned = {id(p) for g in splats.opt.param_groups for p in g["params"]}
    assert owned == {id(p) for p in splats.p.values()} and len(splats.opt.state) == len(
        FIELDS
    )
    for p in splats.p.values():
        assert (
            len(p) == len(splats) <= args.limit
            and splats.opt.state[p]["exp_avg"].shape == p.shape
        )
    print(f"PSNR {first:.2f} -> {last:.2f} dB with {len(splats)} splats")
    if args.steps >= 500:
        assert len(splats) > 24 and last > first + 10, (first, last)


if __name__ == "__main__":
    main()
