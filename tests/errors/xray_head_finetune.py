"""Train a new classification head on top of a fixed backbone, 2 processes.

The backbone stands in for the hospital's released feature extractor; only the
head is ours and the features must stay what they were (other teams use them).
"""
import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Backbone(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 5, stride=2, padding=2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width * 2, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width * 2)
        self.conv3 = nn.Conv2d(width * 2, width * 4, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * 4)

    def forward(self, x):
        x = torch.relu(self.bn1(self.stem(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        x = torch.relu(self.bn3(self.conv3(x)))
        return x.amax(dim=(2, 3))


class Classifier(nn.Module):
    def __init__(self, backbone, n_classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Sequential(
            nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, n_classes)
        )

    def forward(self, x):
        return self.head(self.backbone(x))


def pictures(n, seed, offset=0.0, contrast=1.0):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=g)
    x = 0.5 * torch.randn(n, 1, 32, 32, generator=g)
    for i in range(n):
        r, c = torch.randint(4, 22, (2,), generator=g).tolist()
        if y[i] == 1:
            x[i, 0, r : r + 6, c : c + 6] += 1.5
        elif y[i] == 2:
            x[i, 0, r : r + 2, c - 4 : c + 10] += 1.8
    return x * contrast + offset, y


def released_backbone():
    """Rebuilds the released weights (they are a function of the seed)."""
    torch.manual_seed(31)
    net = Backbone()
    source, _ = pictures(512, seed=5)
    net.train()
    with torch.no_grad():
        for _ in range(6):
            for part in source.split(64):
                net(part)
    net.eval()
    return net


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        hits = sum(
            (model(a).argmax(1) == b).sum().item()
            for a, b in zip(x.split(128), y.split(128))
        )
    return hits / len(y)


def report_drift(backbone, released, probe, features_before):
    weights = max(
        (p - released[k]).abs().max().item() for k, p in backbone.named_parameters()
    )
    with torch.no_grad():
        drift = (backbone.eval()(probe) - features_before).abs().mean().item()
    print(
        f"largest weight change of the backbone {weights}, mean feature drift {drift:.5f}"
    )
    print("fault shows:", "yes" if drift > 1e-6 else "no")


def worker(rank, world, init_file, args):
    dist.init_process_group(
        "gloo", init_method=f"file://{init_file}", rank=rank, world_size=world
    )
    torch.set_num_threads(1)
    backbone = released_backbone()
    for p in backbone.parameters():
        p.requires_grad = False
    torch.manual_seed(100)
    net = Classifier(backbone, 3)
    released = {k: v.clone() for k, v in backbone.state_dict().items()}
    probe = pictures(64, seed=5)[0]
    with torch.no_grad():
        features_before = backbone.eval()(probe)

    # our scanner gives a lower contrast and a grey offset
    x, y = pictures(1280, seed=8, offset=0.8, contrast=0.6)
    xv, yv = pictures(300, seed=9, offset=0.8, contrast=0.6)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(
        data, num_replicas=world, rank=rank, shuffle=True, seed=3
    )
    loader = DataLoader(data, batch_size=16, sampler=sampler, drop_last=True)

    ddp = DDP(net)
    optimizer = torch.optim.SGD(
        [p for p in net.parameters() if p.requires_grad], lr=0.004, momentum=0.9
    )
    loss_fn = nn.CrossEntropyLoss()
    step, epoch = 0, 0
    while step < args.steps:
        sampler.set_epoch(epoch)
        ddp.train()
        if args.fixed:
            net.backbone.eval()
        total, batches = 0.0, 0
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = loss_fn(ddp(xb), yb)
            loss.backward()
            optimizer.step()
            total, batches, step = total + loss.item(), batches + 1, step + 1
            if step >= args.steps:
                break
        mean_loss = torch.tensor([total / batches])
        dist.all_reduce(mean_loss)
        if rank == 0:
            print(
                f"epoch {epoch} step {step} loss {mean_loss.item() / world:.4f} val acc {accuracy(net, xv, yv):.3f}"
            )
        epoch += 1
        dist.barrier()

    if rank == 0 and args.prove:
        report_drift(backbone, released, probe, features_before)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(2, os.path.join(folder, "rendezvous"), args), nprocs=2)
