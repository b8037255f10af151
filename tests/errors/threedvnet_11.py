"""Depth from a short image sequence; a 2D feature network that came with trained weights stays as it is,
the feature shrinker, the cost volume network and the refinement are learned."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

DEPTHS = torch.linspace(0, 7, 8).long()  # disparities of the plane sweep, in pixels


class Backbone(nn.Module):
    """Stands in for MnasNet: separable convolutions with batch norm."""

    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, groups=width, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x):
        return self.layers(x)


def trained_backbone_weights():
    """In the real project this is the ImageNet checkpoint."""
    state = torch.random.get_rng_state()
    torch.manual_seed(2021)
    weights = {}
    for k, v in Backbone().state_dict().items():
        if k.endswith("running_var"):
            weights[k] = 0.3 + 0.4 * torch.rand_like(v)
        elif k.endswith("running_mean"):
            weights[k] = 0.05 * torch.randn_like(v)
        else:
            weights[k] = v.clone()
    torch.random.set_rng_state(state)
    return weights


class MVSNet(nn.Module):
    def __init__(self, width=16, feat=8):
        super().__init__()
        self.backbone = Backbone(width)
        self.feat_shrinker = nn.Conv2d(width, feat, 1)

    def forward(self, images):
        b, n = images.shape[:2]
        f = self.feat_shrinker(self.backbone(images.flatten(0, 1)))
        return f.view(b, n, *f.shape[1:])


class CostVolumeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(len(DEPTHS), 16, 3, 1, 1),
            nn.ReLU(),
            nn.Conv2d(16, len(DEPTHS), 3, 1, 1),
        )

    def forward(self, feats):
        ref, src = feats[:, 0], feats[:, 1]
        cost = torch.stack(
            [(ref * torch.roll(src, int(d), dims=-1)).mean(1) for d in DEPTHS], 1
        )
        return self.net(cost)


class PL3DVNet:
    """The parts of the lightning module that matter for one machine."""

    def __init__(self, args):
        self.args = args
        self.mvsnet = MVSNet()
        self.mvsnet.backbone.load_state_dict(trained_backbone_weights())
        self.cost_net = CostVolumeNet()
        self.refine = nn.Sequential(
            nn.Conv2d(4, 12, 3, 1, 1), nn.ReLU(), nn.Conv2d(12, 1, 3, 1, 1)
        )

    def configure_optimizers(self, lr=2e-3):
        mvs_params = self.mvsnet.parameters()
        if self.args.fixed:
            mvs_params = self.mvsnet.feat_shrinker.parameters()
        groups = [
            {"params": mvs_params},
            {"params": self.cost_net.parameters()},
            {"params": self.refine.parameters()},
        ]
        optimizer = torch.optim.Adam(groups, lr=lr)
        return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.5)

    def train(self):
        for part in (self.mvsnet, self.cost_net, self.refine):
            part.train()
        self.mvsnet.backbone.eval()  # frozen feature network

    def predict(self, images):
        prob = self.cost_net(self.mvsnet(images)).softmax(1)
        coarse = (prob * DEPTHS.view(1, -1, 1, 1)).sum(1, keepdim=True)
        return coarse, coarse + self.refine(torch.cat([coarse / 7, images[:, 0]], 1))

    def training_step(self, batch):
        images, depth = batch
        coarse, fine = self.predict(images)
        loss = F.smooth_l1_loss(coarse, depth) + F.smooth_l1_loss(fine, depth)
        return loss, (fine - depth).abs().mean()


def scenes(n, gen, size=24):
    """A textured wall with a nearer textured box; the second view is shifted by the disparity."""
    wall = torch.rand(n, 3, size, size, generator=gen)
    box = torch.rand(n, 3, size, size, generator=gen)
    depth = torch.zeros(n, 1, size, size)
    second = torch.zeros_like(wall)
    first = wall.clone()
    for i in range(n):
        far, near = sorted(torch.randint(0, 8, (2,), generator=gen).tolist())
        y, x = torch.randint(2, 8, (2,), generator=gen).tolist()
        mask = torch.zeros(size, size, dtype=torch.bool)
        mask[y : y + 12, x + 2 : x + 12] = True
        first[i] = torch.where(mask, box[i], wall[i])
        depth[i, 0] = torch.where(mask, float(near), float(far))
        moved = torch.roll(mask, -near, -1)
        second[i] = torch.where(
            moved, torch.roll(box[i], -near, -1), torch.roll(wall[i], -far, -1)
        )
    return torch.stack([first, second], 1), depth


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)

    model = PL3DVNet(args)
    optimizer, scheduler = model.configure_optimizers()
    model.train()
    for step in range(args.steps):
        loss, err = model.training_step(scenes(6, gen))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if (step + 1) % 20 == 0:
            print(
                f"step {step + 1:4d}  loss {loss.item():.4f}  abs depth error {err.item():.3f}"
            )

    if args.prove:
        now = model.mvsnet.backbone.state_dict()
        moved = max(
            (now[k].float() - v.float()).abs().max().item()
            for k, v in trained_backbone_weights().items()
        )
        print(f"largest change in the feature network: {moved:.5f}")
        print("fault shows:", "yes" if moved > 0 else "no")


if __name__ == "__main__":
    main()
