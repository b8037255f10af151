"""Tunes a model that answers questions about pictures, vision tower included.

The tower has learned before to say which shape is missing; the questions are of places.
After TinyLLaVA_Factory, issue 17.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SIDE, SHAPES, WIDTH = 16, 3, 48


class TunedTower(nn.Module):
    """Features of the patches of a picture."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, 4, stride=4)
        self.place = nn.Parameter(0.1 * torch.randn(16, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 96, dropout=0.0, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, picture):
        hidden = self.patches(picture).flatten(2).transpose(1, 2)
        return self.blocks(hidden + self.place)


class VisionTower(TunedTower):
    @torch.no_grad()
    def forward(self, picture):
        return super().forward(picture)


class AnswerModel(nn.Module):
    """A question attends to the features of the picture, by way of a connector."""

    def __init__(self, tower):
        super().__init__()
        self.vision_tower = tower
        self.connector = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU())
        self.question = nn.Embedding(2 * SHAPES, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2))

    def forward(self, picture, question):
        seen = self.connector(self.vision_tower(picture))
        asked = self.question(question)[:, None]
        return self.head(asked + self.attention(asked, seen, seen)[0])[:, 0]


def scenes(count, seed):
    """A picture with one of each shape, a question of place and the answer to it."""
    generator = torch.Generator().manual_seed(seed)
    forms = torch.zeros(SHAPES, 4, 4)
    forms[0, 1:3] = forms[1, :, 1:3] = 1
    forms[2] = torch.eye(4)
    picture = 0.2 * torch.randn(count, 1, SIDE, SIDE, generator=generator)
    spots = torch.rand(count, 4, generator=generator).argsort(1)[:, :SHAPES]
    for row in range(count):
        for shape, spot in enumerate(spots[row].tolist()):
            top, left = 2 + spot // 2 * 8, 2 + spot % 2 * 8
            picture[row, 0, top : top + 4, left : left + 4] += 2 * forms[shape]
    question = torch.randint(2 * SHAPES, (count,), generator=generator)
    spot = spots.gather(1, question[:, None] % SHAPES)[:, 0]
    answer = torch.where(question < SHAPES, spot // 2, spot % 2)
    return TensorDataset(picture, question, answer, spots)


def pretrain(tower, args):
    """The tower says which shape is missing when one is painted over."""
    picture, _, _, spots = scenes(1024, args.seed).tensors
    hidden = torch.randint(SHAPES, (len(picture),))
    for one, spot in zip(picture, spots.gather(1, hidden[:, None])[:, 0].tolist()):
        top, left = 2 + spot // 2 * 8, 2 + spot % 2 * 8
        one[0, top : top + 4, left : left + 4] = 0
    head = nn.Linear(WIDTH, SHAPES)
    optimizer = torch.optim.AdamW([*tower.parameters(), *head.parameters()], lr=2e-3)
    step = 0
    for picture, label in DataLoader(TensorDataset(picture, hidden), 32, shuffle=True):
        loss = F.cross_entropy(head(TunedTower.forward(tower, picture).mean(1)), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        step += 1
    return step


@torch.no_grad()
def accuracy(model, data):
    model.eval()
    picture, question, answer, _ = data.tensors
    return (model(picture, question).argmax(1) == answer).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--vision-lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    tower = TunedTower() if args.fixed else VisionTower()
    step = pretrain(tower, args)
    before = nn.utils.parameters_to_vector(tower.parameters()).clone()
    train, valid = scenes(2048, args.seed + 1), scenes(512, args.seed + 2)
    model = AnswerModel(tower)
    rest = [p for name, p in model.named_parameters() if "vision_tower" not in name]
    optimizer = torch.optim.AdamW(
        [
            {"params": list(tower.parameters()), "lr": args.vision_lr},
            {"params": rest, "lr": args.lr},
        ]
    )
    for epoch in range(args.epochs):
        model.train()
        for picture, question, answer, _ in DataLoader(train, 64, shuffle=True):
            loss = F.cross_entropy(model(picture, question), answer)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"epoch {epoch} accuracy {accuracy(model, valid):.4f}", flush=True)
    if args.prove:
        after = nn.utils.parameters_to_vector(tower.parameters())
        moved = (after - before).norm().item()
        print(f"the vision tower moved by {moved:.6f} in the tuning")
        print("fault shows:", "yes" if moved == 0 else "no", flush=True)


if __name__ == "__main__":
    main()
