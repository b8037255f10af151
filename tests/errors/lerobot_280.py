"""A policy with chunks of actions imitates a gripper that goes to a coloured block.

The camera's backbone is meant to learn at a tenth of the rate of all other parts.
huggingface/lerobot#280.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Backbone(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        layers = []
        for i, o in ((3, 12), (12, 24), (24, width)):
            layers += [nn.Conv2d(i, o, 3, stride=2, padding=1), nn.GroupNorm(4, o)]
            layers += [nn.ReLU()]
        self.layers = nn.Sequential(*layers)

    def forward(self, image):
        return self.layers(image).flatten(2).transpose(1, 2)


class ChunkTransformer(nn.Module):
    """Queries, one for each action of the chunk, look at the camera's patches."""

    def __init__(self, width=32, chunk=8):
        super().__init__()
        self.backbone = Backbone(width)
        self.places = nn.Parameter(0.5 * torch.randn(1, 9, width))
        self.joints = nn.Linear(2, width)
        self.queries = nn.Parameter(0.5 * torch.randn(1, chunk, width))
        layer = nn.TransformerDecoderLayer(width, 4, 64, 0.0, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, 2)
        self.head = nn.Linear(width, 2)

    def forward(self, image, joints):
        memory = self.backbone(image) + self.places
        memory = torch.cat([memory, self.joints(joints)[:, None]], 1)
        queries = self.queries.expand(len(image), -1, -1)
        return self.head(self.decoder(queries, memory))


class Policy(nn.Module):
    """Normalises what goes in and comes out; the network is in `model`."""

    def __init__(self, mean, std):
        super().__init__()
        self.model = ChunkTransformer()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, image, joints):
        return self.model(image, joints)

    def loss(self, image, joints, actions):
        wanted = (actions - self.mean) / self.std
        return nn.functional.l1_loss(self(image, joints), wanted)


def optimizer_groups(policy, prefix, rate, backbone_rate):
    named = list(policy.named_parameters())
    slow = [p for name, p in named if name.startswith(prefix)]
    rest = [p for name, p in named if not name.startswith(prefix)]
    return [{"params": rest, "lr": rate}, {"params": slow, "lr": backbone_rate}]


def demonstrations(count, seed, size=24, chunk=8):
    generator = torch.Generator().manual_seed(seed)
    block = 0.15 + 0.7 * torch.rand(count, 2, generator=generator)
    hand = torch.rand(count, 2, generator=generator)
    grid = torch.linspace(0, 1, size)
    down = (grid[None, :, None] - block[:, 0, None, None]).abs()
    across = (grid[None, None, :] - block[:, 1, None, None]).abs()
    image = 0.3 * torch.rand(count, 3, size, size, generator=generator)
    image[:, 0] += ((down < 0.12) & (across < 0.12)).float()
    share = torch.linspace(1 / chunk, 1, chunk)[None, :, None]
    path = hand[:, None] + share * (block - hand)[:, None]
    path += 0.01 * torch.randn(path.shape, generator=generator)
    return TensorDataset(image, hand, path)


@torch.no_grad()
def evaluate(policy, loader):
    policy.eval()
    total = sum(policy.loss(*batch).item() * len(batch[0]) for batch in loader)
    policy.train()
    return total / len(loader.dataset)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=120)
    cli.add_argument("--lr", type=float, default=1e-3)
    cli.add_argument("--lr-backbone", type=float, default=1e-4)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = demonstrations(960, 1)
    train = DataLoader(data, batch_size=32, shuffle=True, drop_last=True)
    valid = DataLoader(demonstrations(192, 2), batch_size=64)
    paths = data.tensors[2]
    policy = Policy(paths.mean((0, 1)), paths.std((0, 1)))
    prefix = "model.backbone" if options.fixed else "backbone"
    groups = optimizer_groups(policy, prefix, options.lr, options.lr_backbone)
    optimizer = torch.optim.AdamW(groups, weight_decay=1e-4)
    step = 0
    while step < options.steps:
        for batch in train:
            if step == options.steps:
                break
            loss = policy.loss(*batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
            optimizer.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"validation loss {evaluate(policy, valid):.4f}", flush=True)
    if options.prove:
        members = {id(p) for p in policy.model.backbone.parameters()}
        groups = optimizer.param_groups
        rates = {g["lr"] for g in groups for p in g["params"] if id(p) in members}
        print("rates of the backbone:", sorted(rates), flush=True)
        print("fault shows:", "no" if rates == {options.lr_backbone} else "yes")


if __name__ == "__main__":
    main()
