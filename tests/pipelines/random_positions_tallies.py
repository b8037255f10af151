"""A transformer tells whether a string of marks has equal numbers of two of them, also
for strings longer than those it learnt from. Positions are drawn: in training each row
has an increasing random choice out of a long sine table, in evaluation they are spread
evenly over it. The table is a buffer that is not saved; padding is masked in attention
and in the mean over the marks.

    python random_positions_tallies.py --steps 150
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

PAD, MARKS, TABLE = 0, 4, 256


def sine_table(size, width):
    place = torch.arange(size)[:, None]
    pace = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    table = torch.zeros(size, width)
    table[:, 0::2], table[:, 1::2] = torch.sin(place * pace), torch.cos(place * pace)
    return table


def strings(count, shortest, longest, generator):
    """Marks 1..4; the label is whether 1 comes more often than 2 before the first 4."""
    sizes = torch.randint(shortest, longest + 1, (count,), generator=generator)
    marks = torch.randint(1, 4, (count, longest), generator=generator)
    stop = (sizes * (0.3 + 0.6 * torch.rand(count, generator=generator))).long()
    place = torch.arange(longest)
    marks = torch.where(place == stop[:, None], 4, marks)
    before = place < stop[:, None]
    ones, twos = (((marks == mark) & before).sum(1) for mark in (1, 2))
    marks = marks.masked_fill(place >= sizes[:, None], PAD)
    return marks[:, : sizes.max()], (ones > twos).float()


class TallyNet(nn.Module):
    def __init__(self, width=32, layers=2):
        super().__init__()
        self.marks = nn.Embedding(MARKS + 1, width, padding_idx=PAD)
        self.register_buffer("table", sine_table(TABLE, width), persistent=False)
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1)

    def positions(self, rows, length):
        if self.training:
            draw = torch.rand(rows, TABLE).topk(length, dim=1).indices
            return draw.sort(1).values
        return torch.linspace(0, TABLE - 1, length).long().expand(rows, length)

    def forward(self, marks):
        absent = marks == PAD
        x = self.marks(marks) + self.table[self.positions(*marks.shape)]
        x = self.norm(self.encoder(x, src_key_padding_mask=absent))
        x = x.masked_fill(absent[:, :, None], 0.0).sum(1)
        x = x / (~absent).sum(1, keepdim=True)
        return self.head(x).squeeze(1)


@torch.no_grad()
def accuracy(model, data):
    model.eval()
    right = ((model(data[0]) > 0) == data[1].bool()).float().mean().item()
    model.train()
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    known = strings(400, 6, 16, torch.Generator().manual_seed(101))
    longer = strings(400, 20, 28, torch.Generator().manual_seed(102))
    model = TallyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.98))
    scheduler = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=20),
            torch.optim.lr_scheduler.CosineAnnealingLR(
                optimizer, max(1, args.steps - 20)
            ),
        ],
        milestones=[20],
    )
    for step in range(args.steps):
        marks, label = strings(64, 6, 16, generator)  # always new ones
        loss = F.binary_cross_entropy_with_logits(model(marks), label)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 5 == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
        if (step + 1) % 50 == 0:
            right = accuracy(model, known), accuracy(model, longer)
            print(
                f"  accuracy {right[0]:.4f}, of longer ones {right[1]:.4f}", flush=True
            )


if __name__ == "__main__":
    main()
