"""Transfer learning: backbone trained on generic textures, then fine-tuned on few flower pictures.

Stage 1 trains only the new head; stage 2 unfreezes the last block with a smaller learning rate.
"""
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


def textures(n, n_classes, gen, flavour):
    """Oriented gratings; `flavour` shifts frequencies so that the two tasks differ."""
    y = torch.randint(n_classes, (n,), generator=gen)
    angle = y.float() * torch.pi / n_classes + 0.12 * torch.randn(n, generator=gen)
    freq = 0.6 + 0.25 * flavour + 0.05 * torch.randn(n, generator=gen)
    phase = 2 * torch.pi * torch.rand(n, generator=gen)
    grid = torch.arange(24).float()
    yy, xx = torch.meshgrid(grid, grid, indexing="ij")
    arg = freq.view(-1, 1, 1) * (
        xx * angle.cos().view(-1, 1, 1) + yy * angle.sin().view(-1, 1, 1)
    )
    wave = torch.sin(arg + phase.view(-1, 1, 1))
    rgb = torch.stack([wave, 0.5 * wave, -0.3 * wave], dim=1)
    return rgb + 1.6 * torch.randn(n, 3, 24, 24, generator=gen), y


class ConvBlock(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.conv = nn.Conv2d(i, o, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(o)

    def forward(self, x):
        return F.max_pool2d(F.relu(self.bn(self.conv(x))), 2)


class Backbone(nn.Module):
    out_features = 48

    def __init__(self):
        super().__init__()
        self.block1 = ConvBlock(3, 16)
        self.block2 = ConvBlock(16, 32)
        self.block3 = ConvBlock(32, 48)

    def forward(self, x):
        return self.block3(self.block2(self.block1(x))).mean(dim=(2, 3))


class Classifier(nn.Module):
    def __init__(self, backbone, n_classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(backbone.out_features, n_classes)
        self._frozen = []

    def freeze(self, *modules):
        self._frozen = list(modules)
        for p in self.backbone.parameters():
            p.requires_grad_(True)
        for m in self._frozen:
            for p in m.parameters():
                p.requires_grad_(False)
        return self

    def train(self, mode=True):
        super().train(mode)
        for m in self._frozen:  # frozen batch norm keeps its statistics
            m.eval()
        return self

    def forward(self, x):
        return self.head(self.backbone(x))


def trainable(module):
    return [p for p in module.parameters() if p.requires_grad]


def accuracy(model, loader):
    model.eval()
    hit = n = 0
    with torch.no_grad():
        for x, y in loader:
            hit += (model(x).argmax(1) == y).sum().item()
            n += len(y)
    return hit / n


def run_steps(model, loader, optimizer, n_steps, scheduler=None, tag=""):
    model.train()
    done, running = 0, 0.0
    while done < n_steps:
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            done += 1
            running += loss.item()
            if done % 20 == 0:
                print(f"{tag} step {done}/{n_steps} loss {running / 20:.4f}")
                running = 0.0
            if done == n_steps:
                break


def main(args):
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)

    # source task
    src_x, src_y = textures(1600, 8, gen, flavour=0.0)
    source = DataLoader(TensorDataset(src_x, src_y), batch_size=64, shuffle=True)
    pretrained = Classifier(Backbone(), 8)
    opt = torch.optim.SGD(
        pretrained.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4
    )
    run_steps(pretrained, source, opt, args.steps // 3, tag="pretrain")
    backbone_weights = copy.deepcopy(pretrained.backbone.state_dict())

    # target task, few pictures
    tgt_x, tgt_y = textures(700, 5, gen, flavour=1.0)
    train_set, val_set, test_set = random_split(
        TensorDataset(tgt_x, tgt_y),
        [240, 160, 300],
        generator=torch.Generator().manual_seed(args.seed),
    )
    train_loader = DataLoader(train_set, batch_size=24, shuffle=True)
    val_loader, test_loader = DataLoader(val_set, batch_size=100), DataLoader(
        test_set, batch_size=100
    )

    backbone = Backbone()
    backbone.load_state_dict(backbone_weights)
    model = Classifier(backbone, 5)

    # stage 1: head only
    model.freeze(backbone)
    n1 = args.steps // 3
    opt = torch.optim.Adam(trainable(model), lr=1e-2)
    print("stage 1 trains", sum(p.numel() for p in trainable(model)), "parameters")
    run_steps(model, train_loader, opt, n1, tag="head")
    print(f"after stage 1: val acc {accuracy(model, val_loader):.3f}")
    stage1 = {k: v.clone() for k, v in model.state_dict().items()}

    # stage 2: last block joins, a fresh optimizer with discriminative rates
    model.freeze(backbone.block1, backbone.block2)
    n2 = args.steps - 2 * (args.steps // 3)
    opt = torch.optim.AdamW(
        [
            {"params": backbone.block3.parameters(), "lr": 1e-3},
            {"params": model.head.parameters(), "lr": 3e-3},
        ],
        weight_decay=1e-2,
    )
    sched = torch.optim.lr_scheduler.LinearLR(
        opt, start_factor=1.0, end_factor=0.05, total_iters=n2
    )
    print("stage 2 trains", sum(p.numel() for p in trainable(model)), "parameters")
    run_steps(model, train_loader, opt, n2, sched, tag="block3+head")
    print(f"after stage 2: val acc {accuracy(model, val_loader):.3f}")

    for k, v in model.state_dict().items():
        if k.startswith(("backbone.block1", "backbone.block2")):
            assert torch.equal(v, stage1[k]), k
    print(f"test acc {accuracy(model, test_loader):.3f}")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=240)
    p.add_argument("--seed", type=int, default=3)
    main(p.parse_args())
