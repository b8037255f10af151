"""Image-text matching for shop articles (CLIP-style), toy data.

usage: python shop_image_text_match.py [--steps N]
"""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

COLOURS, SHAPES, SIZES = 6, 5, 3
WORDS = 1 + COLOURS + SHAPES + SIZES + 20  # 0 is padding, the last 20 are filler
CAPTION = 8


class Articles(Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.palette = torch.tensor(
            [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1]]
        ).float()
        self.colour = torch.randint(0, COLOURS, (count,), generator=g)
        self.shape = torch.randint(0, SHAPES, (count,), generator=g)
        self.size = torch.randint(0, SIZES, (count,), generator=g)
        self.images = torch.stack([self.draw(i, g) for i in range(count)])
        self.captions = torch.stack([self.write(i, g) for i in range(count)])

    def draw(self, i, g):
        img = 0.15 * torch.randn(3, 20, 20, generator=g)
        s = 3 + 2 * self.size[i].item()
        yy, xx = torch.meshgrid(
            torch.arange(20) - 10, torch.arange(20) - 10, indexing="ij"
        )
        kind = self.shape[i].item()
        mask = [
            (yy.abs() <= s) & (xx.abs() <= s),
            yy**2 + xx**2 <= s * s,
            (yy.abs() <= 1) & (xx.abs() <= s) | (xx.abs() <= 1) & (yy.abs() <= s),
            (yy.abs() <= s) & (xx.abs() <= 1),
            yy.abs() + xx.abs() <= s,
        ][kind]
        return img + self.palette[self.colour[i]].view(3, 1, 1) * mask.float()

    def write(self, i, g):
        words = [
            1 + self.colour[i].item(),
            1 + COLOURS + self.shape[i].item(),
            1 + COLOURS + SHAPES + self.size[i].item(),
        ]
        extra = int(torch.randint(0, CAPTION - 3, (1,), generator=g))
        words += (torch.randint(0, 20, (extra,), generator=g) + WORDS - 20).tolist()
        order = torch.randperm(len(words), generator=g).tolist()
        return torch.tensor([words[k] for k in order] + [0] * (CAPTION - len(words)))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.captions[i]


class ImageTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 25, dim),
        )

    def forward(self, x):
        return self.net(x)


class TextTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.bag = nn.EmbeddingBag(WORDS, 64, mode="mean", padding_idx=0)
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, dim))

    def forward(self, ids):
        return self.net(self.bag(ids))


class Matcher(nn.Module):
    def __init__(self, args, dim=32):
        super().__init__()
        self.image_tower = ImageTower(dim)
        self.text_tower = TextTower(dim)
        # log of the inverse temperature, learned together with the towers
        init = torch.tensor(math.log(1 / 0.5))
        if args.fixed:
            self.logit_scale = nn.Parameter(init)
        else:
            self.logit_scale = init.requires_grad_()

    def forward(self, images, captions):
        a = F.normalize(self.image_tower(images), dim=-1)
        b = F.normalize(self.text_tower(captions), dim=-1)
        return self.logit_scale.exp() * a @ b.t()


def clip_loss(logits):
    target = torch.arange(len(logits))
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2


@torch.no_grad()
def recall_at_5(model, data):
    model.eval()
    top = model(data.images, data.captions).topk(5, dim=1).indices
    right = (
        (data.colour[top] == data.colour[:, None])
        & (data.shape[top] == data.shape[:, None])
        & (data.size[top] == data.size[:, None])
    )
    model.train()
    return right.float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(3)

    train_data, test_data = Articles(2048, 1), Articles(256, 2)
    loader = DataLoader(train_data, batch_size=64, shuffle=True, drop_last=True)
    model = Matcher(args)
    start_scale = model.logit_scale.item()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)

    step = 0
    while step < args.steps:
        for images, captions in loader:
            loss = clip_loss(model(images, captions))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if step % 40 == 0:
                print(
                    f"step {step} loss {loss.item():.4f} scale {model.logit_scale.exp().item():.3f} "
                    f"precision@5 {recall_at_5(model, test_data):.3f}"
                )
            if step >= args.steps:
                break

    if args.prove:
        print(
            f"log scale at the start {start_scale:.4f}, at the end {model.logit_scale.item():.4f}"
        )
        print(
            "fault shows:", "yes" if model.logit_scale.item() == start_scale else "no"
        )


if __name__ == "__main__":
    main()
