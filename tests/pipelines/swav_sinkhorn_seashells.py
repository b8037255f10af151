"""Self-supervision on drawn spiral shells (conv2d), SwAV; then a linear probe.

Four crops of two sizes in a batch; codes by Sinkhorn-Knopp without gradient. Prototypes
are normalised in place before each step, and held still in the first steps, in which
their gradient is set to None. The rate falls by a cosine that is written into the
group. The probe learns on features that were computed once in evaluation mode.
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=8)

torch.manual_seed(3)
SIZE, CLASSES, PROTOS, TEMP = 24, 4, 16, 0.1
BATCH, EPOCHS, FREEZE = 64, parser.parse_args().epochs, 8


def shells(n):
    """Spirals at random angles, with noise; the winding is that of the class."""
    label = torch.randint(0, CLASSES, (n,))
    axis = torch.linspace(-1, 1, SIZE)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    r, phi = (xx**2 + yy**2).sqrt() + 1e-3, torch.atan2(yy, xx)
    turn = torch.tensor([0.0, 4.0, 9.0, 16.0])[label].view(-1, 1, 1)
    arms = torch.tensor([5.0, 3.0, 2.0, 1.0])[label].view(-1, 1, 1)
    img = torch.cos(arms * phi + turn * r + 2 * math.pi * torch.rand(n, 1, 1))
    return (img + 0.3 * torch.randn(n, SIZE, SIZE)).unsqueeze(1), label


def crop(x, size):
    i, j = torch.randint(0, SIZE - size + 1, (2,)).tolist()
    v = x[:, :, i : i + size, j : j + size]
    if torch.rand(()) < 0.5:
        v = v.flip(-1)
    gain = 0.7 + 0.6 * torch.rand(len(x), 1, 1, 1)
    return v * gain + 0.1 * torch.randn_like(v)


def block(a, b):
    return nn.Sequential(
        nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU()
    )


class Shellfish(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.encoder = nn.Sequential(
            block(1, 12), nn.MaxPool2d(2), block(12, 32), nn.MaxPool2d(2),
            block(32, 48), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.projector = nn.Sequential(
            nn.Linear(48, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, dim)
        )
        self.prototypes = nn.Linear(dim, PROTOS, bias=False)

    def forward(self, x):
        return self.prototypes(F.normalize(self.projector(self.encoder(x)), dim=1))


@torch.no_grad()
def sinkhorn(scores, eps=0.08, rounds=3):
    q = ((scores - scores.max()) / eps).exp().t()
    q /= q.sum()
    k, b = q.shape
    for _ in range(rounds):
        q /= q.sum(1, keepdim=True) * k
        q /= q.sum(0, keepdim=True) * b
    return (q * b).t()


def swapped_loss(scores):
    """Each view tells the codes of the first two, but not its own."""
    loss = 0.0
    for s in (0, 1):
        q = sinkhorn(scores[s].detach())
        others = [scores[t] for t in range(len(scores)) if t != s]
        terms = [(q * F.log_softmax(o / TEMP, 1)).sum(1).mean() for o in others]
        loss = loss - sum(terms) / len(terms)
    return loss / 2


train_x, train_y = shells(384)
test_x, test_y = shells(256)
net = Shellfish()
opt = torch.optim.SGD(net.parameters(), lr=0.15, momentum=0.9, weight_decay=1e-5)
total = EPOCHS * (len(train_x) // BATCH)
step = 0
for epoch in range(EPOCHS):
    net.train()
    seen = []
    for idx in torch.randperm(len(train_x)).split(BATCH):
        for group in opt.param_groups:
            group["lr"] = 0.15 * 0.5 * (1 + math.cos(math.pi * step / total))
        with torch.no_grad():
            net.prototypes.weight.copy_(F.normalize(net.prototypes.weight, dim=1))
        x = train_x[idx]
        views = [crop(x, 20), crop(x, 20), crop(x, 14), crop(x, 14)]
        loss = swapped_loss([net(v) for v in views])
        opt.zero_grad()
        loss.backward()
        if step < FREEZE:
            net.prototypes.weight.grad = None
        opt.step()
        step += 1
        seen.append(loss.item())
    rate = opt.param_groups[0]["lr"]
    print(f"epoch {epoch} swav loss {sum(seen) / len(seen):.4f} lr {rate:.4f}")

net.eval()
with torch.no_grad():
    ftr, fte = net.encoder(train_x), net.encoder(test_x)
mu, sd = ftr.mean(0), ftr.std(0) + 1e-6
ftr, fte = (ftr - mu) / sd, (fte - mu) / sd
probe = nn.Linear(48, CLASSES)
popt = torch.optim.Adam(probe.parameters(), lr=0.01)
for epoch in range(10):
    for idx in torch.randperm(len(ftr)).split(BATCH):
        ploss = F.cross_entropy(probe(ftr[idx]), train_y[idx])
        popt.zero_grad()
        ploss.backward()
        popt.step()
with torch.no_grad():
    acc = (probe(fte).argmax(1) == test_y).float().mean()
print(f"probe loss {ploss.item():.3f} test accuracy {acc:.3f}")
