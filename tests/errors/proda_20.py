"""Distils a classifier of star spectra into a smaller one.

After ProDA, issue 20.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

CHANNELS, KINDS = 64, 8


def network(width, depth):
    layers = [nn.Linear(CHANNELS, width), nn.GELU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.LayerNorm(width), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(width, KINDS))


def spectra(count, seed):
    """Kinds lie on a line: neighbours are alike, and some labels are wrong."""
    lines = torch.randn(KINDS + 1, CHANNELS, generator=torch.Generator().manual_seed(7))
    generator = torch.Generator().manual_seed(seed)
    heat = KINDS * torch.rand(count, 1, generator=generator)
    kind = heat.long()[:, 0]
    share = heat - kind[:, None]
    spectrum = (1 - share) * lines[kind] + share * lines[kind + 1]
    spectrum += 0.5 * torch.randn(count, CHANNELS, generator=generator)
    return TensorDataset(spectrum, kind)


def distillation(student, teacher, fixed, temperature=1.0):
    targets = F.softmax(teacher / temperature, dim=1)
    if fixed:
        guesses = F.log_softmax(student / temperature, dim=1)
    else:
        guesses = F.softmax(student / temperature, dim=1)
    return temperature**2 * F.kl_div(guesses, targets, reduction="batchmean")


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    spectrum, kind = data.tensors
    logits = model(spectrum)
    right = (logits.argmax(1) == kind).float().mean().item()
    return f"loss {F.cross_entropy(logits, kind).item():.4f} accuracy {right:.4f}"


def update(loss, optimizer, step):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}", flush=True)
    return step + 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--teacher-epochs", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    data, valid = spectra(2048, args.seed), spectra(512, args.seed + 1)
    teacher, student = network(128, 2), network(24, 0)
    optimizer = torch.optim.AdamW(teacher.parameters(), lr=2e-3)
    step = 0
    for epoch in range(args.teacher_epochs):
        for spectrum, kind in DataLoader(data, 64, shuffle=True):
            loss = F.cross_entropy(teacher(spectrum), kind)
            step = update(loss, optimizer, step)
    teacher.requires_grad_(False)
    print(f"teacher {evaluate(teacher, valid)}", flush=True)
    optimizer = torch.optim.AdamW(student.parameters(), lr=4e-3)
    for epoch in range(args.epochs):
        student.train()
        for spectrum, kind in DataLoader(data, 64, shuffle=True):
            with torch.no_grad():
                taught = teacher(spectrum)
            logits = student(spectrum)
            loss = F.cross_entropy(logits, kind)
            loss = loss + 0.5 * distillation(logits, taught, args.fixed)
            step = update(loss, optimizer, step)
        print(f"epoch {epoch} {evaluate(student, valid)}", flush=True)
    if args.prove:
        taught = teacher(valid.tensors[0])
        same = taught.clone().requires_grad_()
        distillation(same, taught, args.fixed).backward()
        slope = same.grad.norm(dim=1).sum().item()
        print(f"the slope of the loss at the teacher's own logits is {slope:.6f}")
        print("fault shows:", "yes" if slope > 1e-3 else "no", flush=True)


if __name__ == "__main__":
    main()
