"""
Linear evaluation: take a convolutional backbone trained on one picture domain, freeze it,
and train only a new fully connected layer on another domain with other classes.
"""
import argparse
import logging

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(message)s")
logger = logging.getLogger(__name__)

parser = argparse.ArgumentParser(
    description="Pretrain, then linear classification on frozen features."
)
parser.add_argument(
    "--steps",
    type=int,
    default=150,
    help="a third is for pretraining, the rest for the linear layer",
)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
parser.add_argument("--batch-size", type=int, default=32)


def textures(n, num_classes, seed, brightness=0.0, contrast=1.0):
    """Stripes whose direction and frequency depend on the class."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, num_classes, (n,), generator=g)
    yy, xx = torch.meshgrid(torch.arange(24.0), torch.arange(24.0), indexing="ij")
    angle = y.float() * 3.14159 / num_classes
    freq = 0.5 + 0.25 * (y % 3).float()
    phase = 6.28 * torch.rand(n, generator=g)
    arg = freq.view(-1, 1, 1) * (
        xx * angle.cos().view(-1, 1, 1) + yy * angle.sin().view(-1, 1, 1)
    ) + phase.view(-1, 1, 1)
    base = torch.sin(arg).unsqueeze(1).repeat(1, 3, 1, 1)
    noise = 0.7 * torch.randn(n, 3, 24, 24, generator=g)
    return TensorDataset(contrast * (base + noise) + brightness, y)


def cycle(loader):
    while True:
        for batch in loader:
            yield batch


class Backbone(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        layers, c = [], 3
        for i in range(3):
            out = width * 2**i
            layers += [
                nn.Conv2d(c, out, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(out),
                nn.ReLU(inplace=True),
            ]
            c = out
        self.cnn = nn.Sequential(*layers)
        self.feature_size = c

    def forward(self, x):
        return self.cnn(x).mean(dim=(2, 3))


def pretrain(backbone, num_steps, args):
    dataset = textures(1024, 6, seed=1)
    loader = DataLoader(dataset, args.batch_size, shuffle=True, drop_last=True)
    model = nn.Sequential(backbone, nn.Linear(backbone.feature_size, 6)).train()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    stream = cycle(loader)
    for it in range(num_steps):
        images, labels = next(stream)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if it % 20 == 0:
            logger.info("pretrain iter %d  loss %.3f", it, loss.item())


@torch.no_grad()
def accuracy(model, dataset):
    model.eval()
    images, labels = dataset.tensors
    return (model(images).argmax(1) == labels).float().mean().item()


def main():
    args = parser.parse_args()
    torch.manual_seed(0)
    backbone = Backbone()
    pretrain_steps = args.steps // 3
    pretrain(backbone, pretrain_steps, args)

    # everything frozen but the new layer
    for p in backbone.parameters():
        p.requires_grad = False
    model = nn.Sequential(backbone, nn.Linear(backbone.feature_size, 8))
    nn.init.normal_(model[1].weight, std=0.01)
    nn.init.zeros_(model[1].bias)
    before = {k: v.clone() for k, v in backbone.state_dict().items()}

    train_dataset = textures(1024, 8, seed=2, brightness=0.8, contrast=1.6)
    val_dataset = textures(512, 8, seed=3, brightness=0.8, contrast=1.6)
    loader = DataLoader(train_dataset, args.batch_size, shuffle=True, drop_last=True)
    num_steps = args.steps - pretrain_steps
    optimizer = optim.SGD(
        [p for p in model.parameters() if p.requires_grad], lr=0.3, momentum=0.9
    )
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, num_steps)

    model.train()
    if args.fixed:
        backbone.eval()
    stream = cycle(loader)
    for it in range(num_steps):
        images, labels = next(stream)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if it % 20 == 0 or it == num_steps - 1:
            logger.info(
                "linear iter %d  loss %.3f  lr %.4f",
                it,
                loss.item(),
                scheduler.get_last_lr()[0],
            )

    print(
        f"top-1 accuracy of the linear layer: {100 * accuracy(model, val_dataset):.1f}%"
    )
    if args.prove:
        moved = [
            k for k, v in backbone.state_dict().items() if not torch.equal(v, before[k])
        ]
        print("entries of the backbone that changed:", len(moved), moved[:3])
        print("fault shows:", "yes" if moved else "no")


if __name__ == "__main__":
    main()
