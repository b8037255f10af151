"""Fine-tunes an encoder of table rows: the head first, then the encoder, too.

The encoder has learned to fill in hidden columns of rows without a label.
After detectron2, issue 2486.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

COLUMNS, FACTORS = 20, 5


class Encoder(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2 * COLUMNS, width), nn.LayerNorm(width), nn.GELU(),
            nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(),
        )  # fmt: skip

    def forward(self, rows, known):
        return self.layers(torch.cat([rows * known, known], 1))


class RiskModel(nn.Module):
    def __init__(self, encoder, width=64):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(width, 2)

    def forward(self, rows):
        return self.head(self.encoder(rows, torch.ones_like(rows)))


def table(count, seed):
    """Columns that hang on a few factors; the label needs two of these together."""
    rules = torch.Generator().manual_seed(11)
    mixing = torch.randn(FACTORS, COLUMNS, generator=rules) / FACTORS**0.5
    generator = torch.Generator().manual_seed(seed)
    factors = torch.randn(count, FACTORS, generator=generator)
    rows = factors @ mixing + 0.2 * torch.randn(count, COLUMNS, generator=generator)
    score = factors[:, 0] * factors[:, 1] + 0.5 * factors[:, 2]
    score = score + 0.1 * torch.randn(count, generator=generator)
    return TensorDataset(rows, (score > 0).long())


def batches(data, size, count):
    """That many batches, of as many passes as are needed."""
    loader = DataLoader(data, batch_size=size, shuffle=True, drop_last=True)
    made = 0
    while True:
        for batch in loader:
            if made == count:
                return
            yield batch
            made += 1


def update(loss, optimizer, parameters, step):
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}", flush=True)
    return step + 1


def pretrain(encoder, args):
    decoder = nn.Linear(64, COLUMNS)
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-3)
    step = 0
    for rows, _ in batches(table(4096, args.seed), 128, args.pretrain_steps):
        known = (torch.rand(rows.shape) > 0.3).float()
        off = (decoder(encoder(rows, known)) - rows) ** 2
        loss = (off * (1 - known)).sum() / (1 - known).sum()
        step = update(loss, optimizer, parameters, step)
    return step


@torch.no_grad()
def accuracy(model, data):
    model.eval()
    rows, label = data.tensors
    return (model(rows).argmax(1) == label).float().mean().item()


def finetune(model, args, step):
    model.encoder.requires_grad_(False)
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=5e-3
    )
    thaw = step + args.head_steps
    valid = table(1000, args.seed + 2)
    data = batches(table(1536, args.seed + 1), 64, args.head_steps + args.full_steps)
    for rows, label in data:
        if step == thaw:
            print(f"head alone accuracy {accuracy(model, valid):.4f}", flush=True)
            before = nn.utils.parameters_to_vector(model.encoder.parameters()).clone()
            model.encoder.requires_grad_(True)
            if args.fixed:
                encoder = list(model.encoder.parameters())
                optimizer.add_param_group({"params": encoder, "lr": 2e-3})
        model.train()
        loss = F.cross_entropy(model(rows), label)
        step = update(loss, optimizer, list(model.parameters()), step)
    print(f"accuracy {accuracy(model, valid):.4f}", flush=True)
    after = nn.utils.parameters_to_vector(model.encoder.parameters())
    return (after - before).norm().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pretrain-steps", type=int, default=60)
    parser.add_argument("--head-steps", type=int, default=30)
    parser.add_argument("--full-steps", type=int, default=120)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    encoder = Encoder()
    step = pretrain(encoder, args)
    moved = finetune(RiskModel(encoder), args, step)
    if args.prove:
        print(f"the encoder moved by {moved:.6f} after it was released")
        print("fault shows:", "yes" if moved == 0 else "no", flush=True)


if __name__ == "__main__":
    main()
