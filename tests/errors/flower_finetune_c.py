# Fine-tune a small pretrained conv net on a new set of classes.
# Stage 1 pretrains on the "big" source set, stage 2 swaps the classifier and
# tunes everything on the small target set. All pictures are synthetic.
import argparse
import copy
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import OneCycleLR


@dataclass
class Config:
    steps: int = 150
    pretrain_steps: int = 80
    batch: int = 32
    img: int = 24
    src_classes: int = 10
    tgt_classes: int = 6
    lr: float = 5e-4
    seed: int = 11


class PetalNet(nn.Module):
    def __init__(self, n_classes):
        super().__init__()

        def block(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, padding=1, bias=False),
                nn.BatchNorm2d(o),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(2),
            )

        self.features = nn.Sequential(block(3, 16), block(16, 32), block(32, 48))
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(48 * 9, n_classes)

    def forward(self, x):
        x = self.features(x).flatten(1)
        return self.fc(self.dropout(x))


def flower_batch(n, n_classes, img, gen, petals_from):
    """Draws radial 'flowers'; the class sets number of petals and the colour mix."""
    y = torch.randint(0, n_classes, (n,), generator=gen)
    axis = torch.linspace(-1, 1, img)
    gy, gx = torch.meshgrid(axis, axis, indexing="ij")
    cx = torch.rand(n, 1, 1, generator=gen) * 0.4 - 0.2
    cy = torch.rand(n, 1, 1, generator=gen) * 0.4 - 0.2
    dx, dy = gx - cx, gy - cy
    r = (dx**2 + dy**2).sqrt()
    phase = torch.rand(n, 1, 1, generator=gen) * 6.28
    k = (petals_from + y % 4).view(-1, 1, 1).float()
    shape = torch.sigmoid(
        12 * (0.55 + 0.3 * torch.cos(k * torch.atan2(dy, dx) + phase) - r)
    )
    hue = (y.float() / n_classes).view(-1, 1, 1)
    rgb = torch.stack(
        [shape * (0.4 + 0.6 * hue), shape * (1 - 0.7 * hue), shape * 0.5], 1
    )
    return rgb + 0.25 * torch.randn(n, 3, img, img, generator=gen), y


def pretrain(cfg, gen):
    net = PetalNet(cfg.src_classes)
    opt = AdamW(net.parameters(), lr=2e-3)
    net.train()
    for _ in range(cfg.pretrain_steps):
        x, y = flower_batch(cfg.batch, cfg.src_classes, cfg.img, gen, petals_from=2)
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
    print(f"[pretrain] last loss {loss.item():.4f}")
    return net.state_dict()


class FineTuner:
    def __init__(self, cfg, weights, fixed):
        self.cfg = cfg
        self.model = PetalNet(cfg.src_classes)
        self.model.load_state_dict(weights)
        self.optimizer = AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=0.01)
        # new task, new classifier
        in_features = self.model.fc.in_features
        self.model.fc = nn.Linear(in_features, cfg.tgt_classes)
        if fixed:
            self.optimizer = AdamW(
                self.model.parameters(), lr=cfg.lr, weight_decay=0.01
            )
        self.scheduler = OneCycleLR(
            self.optimizer, max_lr=cfg.lr * 4, total_steps=cfg.steps
        )
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    def fit(self, x, y, x_val, y_val, gen):
        step, epoch = 0, 0
        while step < self.cfg.steps:
            self.model.train()
            order = torch.randperm(len(x), generator=gen)
            for idx in order.split(self.cfg.batch):
                if step == self.cfg.steps:
                    break
                xb = x[idx]
                if torch.rand(1, generator=gen) < 0.5:
                    xb = xb.flip(-1)
                loss = self.criterion(self.model(xb), y[idx])
                self.model.zero_grad(set_to_none=True)
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()
                step += 1
            epoch += 1
            if epoch % 2 == 0:
                acc = self.score(x_val, y_val)
                print(
                    f"[finetune] epoch {epoch} step {step} loss {loss.item():.4f} acc {acc:.3f}"
                )

    @torch.inference_mode()
    def score(self, x, y):
        self.model.eval()
        return (self.model(x).argmax(-1) == y).float().mean().item()


def main():
    p = argparse.ArgumentParser(description="flower fine-tuning")
    p.add_argument("--steps", type=int, default=Config.steps)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()

    cfg = Config(steps=args.steps)
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    gen = torch.Generator().manual_seed(cfg.seed)

    weights = pretrain(cfg, gen)
    x, y = flower_batch(480, cfg.tgt_classes, cfg.img, gen, petals_from=5)
    x_val, y_val = flower_batch(240, cfg.tgt_classes, cfg.img, gen, petals_from=5)

    torch.manual_seed(cfg.seed + 1)
    tuner = FineTuner(cfg, weights, args.fixed)
    head_before = copy.deepcopy(tuner.model.fc.state_dict())
    tuner.fit(x, y, x_val, y_val, gen)
    print(f"final accuracy {tuner.score(x_val, y_val):.3f}")

    if args.prove:
        moved = sum(
            (tuner.model.fc.state_dict()[k] - v).abs().sum().item()
            for k, v in head_before.items()
        )
        print("fault shows:", "yes" if moved == 0 else "no")


if __name__ == "__main__":
    main()
