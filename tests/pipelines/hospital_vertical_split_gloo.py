"""Vertical split learning between a pharmacy and a hospital (two gloo ranks, no DDP).

Rank 0 (pharmacy) has its own columns and a lower net, but neither labels nor a loss: it sends
activations and gets their gradient back. Rank 1 (hospital) has other columns, the labels and the
upper net. The two models differ, so nothing is averaged. Both draw the same patients in the same
order from a random generator of a common seed; no raw column ever leaves its owner.
"""
import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

PATIENTS, TRAIN, BATCH, WIDTH, EPOCHS = 4500, 4000, 100, 12, 6
PHARMACY, HOSPITAL = 0, 1


def table():
    g = torch.Generator().manual_seed(40)
    a, b = torch.randn(PATIENTS, 6, generator=g), torch.randn(PATIENTS, 8, generator=g)
    # neither side can tell alone: the drugs of the one change the meaning of the other's values
    score = 1.5 * a[:, 0].sign() * b[:, 0] + a[:, 1] - b[:, 1]
    score = score + 0.2 * torch.randn(PATIENTS, generator=g)
    return a, b, (score > 0).float()


def batches(epoch):
    """The same order on both sides."""
    g = torch.Generator().manual_seed(1000 + epoch)
    return torch.randperm(TRAIN, generator=g).split(BATCH)


def body(columns, width):
    return nn.Sequential(nn.Linear(columns, 32), nn.ReLU(), nn.Linear(32, width))


def pharmacy(epochs):
    a, _, _ = table()
    torch.manual_seed(PHARMACY)
    lower = body(a.shape[1], WIDTH)
    opt = torch.optim.Adam(lower.parameters(), lr=4e-3)

    def serve_evaluation():
        lower.eval()
        with torch.no_grad():
            dist.send(lower(a[TRAIN:]), dst=HOSPITAL)
        lower.train()

    before = [p.detach().clone() for p in lower.parameters()]
    serve_evaluation()
    for epoch in range(epochs):
        for rows in batches(epoch):
            out = lower(a[rows])
            dist.send(out.detach(), dst=HOSPITAL)
            grad = torch.empty_like(out)
            dist.recv(grad, src=HOSPITAL)
            assert torch.isfinite(grad).all() and grad.abs().sum() > 0
            opt.zero_grad()
            out.backward(grad)  # no loss here: the gradient came by wire
            opt.step()
        serve_evaluation()
    assert all(not torch.equal(p, q) for p, q in zip(lower.parameters(), before))


class Hospital(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.own = body(columns, WIDTH)
        self.top = nn.Sequential(
            nn.ReLU(), nn.Linear(2 * WIDTH, 48), nn.ReLU(), nn.Linear(48, 1)
        )

    def forward(self, theirs, b):
        return self.top(torch.cat([theirs, self.own(b)], 1)).squeeze(1)


def hospital(epochs):
    _, b, y = table()
    torch.manual_seed(HOSPITAL)
    model = Hospital(b.shape[1])
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)

    def evaluate():
        """Test loss, accuracy, and accuracy with the pharmacy's part dealt to the wrong patients."""
        theirs, labels = torch.empty(PATIENTS - TRAIN, WIDTH), y[TRAIN:] > 0
        dist.recv(theirs, src=PHARMACY)
        model.eval()
        with torch.no_grad():
            logits, mixed = model(theirs, b[TRAIN:]), model(
                theirs.roll(1, 0), b[TRAIN:]
            )
        model.train()
        loss = F.binary_cross_entropy_with_logits(logits, y[TRAIN:]).item()
        return loss, *(
            ((z > 0) == labels).float().mean().item() for z in (logits, mixed)
        )

    start = evaluate()
    print(f"untrained: test loss {start[0]:.3f} accuracy {start[1]:.3f}", flush=True)
    for epoch in range(epochs):
        total = 0.0
        for rows in batches(epoch):
            theirs = torch.empty(len(rows), WIDTH)
            dist.recv(theirs, src=PHARMACY)
            theirs.requires_grad_(True)  # a leaf: its gradient goes back to its owner
            loss = F.binary_cross_entropy_with_logits(model(theirs, b[rows]), y[rows])
            opt.zero_grad()
            loss.backward()
            dist.send(theirs.grad, dst=PHARMACY)
            opt.step()
            total += loss.item() * len(rows)
        end = evaluate()
        print(
            f"epoch {epoch + 1}: train {total / TRAIN:.3f} test {end[0]:.3f} accuracy {end[1]:.3f}",
            flush=True,
        )
    return start, end


def party(rank, epochs, meeting):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=2
    )
    try:
        if rank == PHARMACY:
            pharmacy(epochs)
        else:
            start, end = hospital(epochs)
            print(
                f"accuracy {start[1]:.3f} -> {end[1]:.3f}; with mixed-up patients {end[2]:.3f}",
                flush=True,
            )
            if epochs >= EPOCHS:
                assert end[0] < 0.6 * start[0] and end[1] > end[2] + 0.1
        dist.barrier()
    finally:
        dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=EPOCHS)
    args = ap.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # fork: nothing has run in this process yet, and torch needs no second and third import
        mp.start_processes(
            party,
            args=(args.epochs, os.path.join(folder, "meeting")),
            nprocs=2,
            start_method="fork",
        )


if __name__ == "__main__":
    main()
