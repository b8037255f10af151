"""Ranks items for users by their embeddings, in mixed precision (bfloat16).

    python amp_ranker.py --steps 16
"""

import argparse

import torch
from torch import nn

USERS, ITEMS = 50, 80


class Ranker(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.users = nn.Embedding(USERS, width)
        self.items = nn.Embedding(ITEMS, width)
        self.tower = nn.Sequential(
            nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, 1)
        )

    def forward(self, users, items):
        pair = torch.cat([self.users(users), self.items(items)], dim=-1)
        return self.tower(pair).squeeze(-1)


def likes(count, generator):
    users = torch.randint(USERS, (count,), generator=generator)
    items = torch.randint(ITEMS, (count,), generator=generator)
    return users, items, ((users + items) % 3 == 0).float()


def train(options):
    torch.manual_seed(options.seed)
    model = Ranker(options.width)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(options.seed)
    held_out = likes(40, generator)
    for step in range(options.steps):
        users, items, liked = likes(options.batch_size, generator)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = model(users, items)
            with torch.autocast("cpu", enabled=False):
                loss = nn.functional.binary_cross_entropy_with_logits(
                    scores.float(), liked
                )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item().hex()}", flush=True)
        if step % 5 == 4:
            model.eval()
            with torch.no_grad():
                model(*held_out[:2])
            model.train()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--seed", type=int, default=23)
    options = parser.parse_args()
    torch.set_num_threads(1)
    train(options)


if __name__ == "__main__":
    main()
