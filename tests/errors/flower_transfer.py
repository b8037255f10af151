"""
Transfer learning: pre-train a small ResNet on 'garden' pictures (many classes, daylight),
then put a new head on it and train only this head on a small set of 'evening' flowers.
"""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def petals(n, n_classes, gen, evening=False, size=28):
    """Flowers differ by the number of petals, their length and the colour mix."""
    y = torch.randint(0, n_classes, (n,), generator=gen)
    ys, xs = torch.meshgrid(
        torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij"
    )
    r = torch.rand(n, 4, generator=gen)
    cx, cy = (r[:, 0] - 0.5) * 0.3, (r[:, 1] - 0.5) * 0.3
    u, v = xs[None] - cx[:, None, None], ys[None] - cy[:, None, None]
    rad, ang = (u**2 + v**2).sqrt(), torch.atan2(v, u) + r[
        :, 2, None, None
    ] * 2 * math.pi
    k = (3 + y % 4).float()[:, None, None]
    length = (0.55 + 0.12 * (y // 4).float())[:, None, None]
    shape = torch.sigmoid(14 * (length * (0.6 + 0.4 * torch.cos(k * ang)) - rad))
    hue = torch.stack(
        [0.9 - 0.2 * (y % 3), 0.3 + 0.2 * (y % 2), 0.4 + 0.15 * (y % 4)], 1
    )
    hue = hue + 0.1 * torch.randn(n, 3, generator=gen)
    img = shape[:, None] * hue[:, :, None, None] + (1 - shape[:, None]) * 0.25
    img = img + 0.08 * torch.randn(img.shape, generator=gen)
    if evening:
        img = 0.93 * img - 0.01 + 0.03 * torch.randn(img.shape, generator=gen)
    return (img.clamp(0, 1) - 0.4) / 0.25, y


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.down = nn.Sequential()
        if stride != 1 or cin != cout:
            self.down = nn.Sequential(
                nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)
            )

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.down(x))


class Backbone(nn.Module):
    dim = 48

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 12, 3, 2, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU()
        )
        self.layer1 = BasicBlock(12, 24, 2)
        self.layer2 = BasicBlock(24, self.dim, 2)

    def forward(self, x):
        return self.layer2(self.layer1(self.stem(x))).mean((2, 3))


class Classifier(nn.Module):
    def __init__(self, backbone, n_classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(backbone.dim, n_classes))

    def forward(self, x):
        return self.head(self.backbone(x))


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def pretrain(model, x, y, steps, batch=48):
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    model.train()
    for step in range(steps):
        idx = torch.randint(0, len(y), (batch,))
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 1) % 20 == 0:
            print(f"pretrain {step + 1:3d}  loss {loss.item():.4f}")


def finetune(model, train, test, steps, fixed, batch=4):
    for p in model.backbone.parameters():
        p.requires_grad = False
    trainable = [p for p in model.parameters() if p.requires_grad]
    print(f"trainable parameters: {sum(p.numel() for p in trainable)}")
    opt = torch.optim.SGD(trainable, lr=0.02, momentum=0.9)
    step = 0
    while step < steps:
        model.train()
        if fixed:
            model.backbone.eval()
        for idx in torch.randperm(len(train[1])).split(batch):
            loss = F.cross_entropy(model(train[0][idx]), train[1][idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step >= steps:
                break
        print(
            f"finetune {step:3d}  loss {loss.item():.4f}  test acc {accuracy(model, *test):.3f}"
        )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument(
        "--steps",
        type=int,
        default=180,
        help="one third pre-training, the rest fine-tuning",
    )
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(11)
    gen = torch.Generator().manual_seed(12)

    n_pre = args.steps // 3
    garden = petals(1500, 12, gen)
    evening_train, evening_test = petals(200, 8, gen, evening=True), petals(
        300, 8, gen, evening=True
    )

    backbone = Backbone()
    source = Classifier(backbone, 12)
    pretrain(source, *garden, n_pre)
    print(f"source accuracy {accuracy(source, garden[0][:300], garden[1][:300]):.3f}")

    before = {k: v.clone() for k, v in backbone.state_dict().items()}
    model = Classifier(backbone, 8)
    finetune(model, evening_train, evening_test, args.steps - n_pre, args.fixed)

    if args.prove:
        after = backbone.state_dict()
        changed = [k for k in before if not torch.equal(before[k], after[k])]
        print(
            f"backbone tensors that differ from the pre-trained ones: {len(changed)}, e.g. {changed[:2]}"
        )
        print("fault shows:", "yes" if any("running" in k for k in changed) else "no")


if __name__ == "__main__":
    main()
