"""Learns to tell chimes without labels (momentum contrast): keys come from a slowly
following copy of the encoder and wait in a queue as negatives. A linear probe on the
frozen features shows afterwards what was learned.

    python moco_chimes.py --steps 120
"""

import argparse
import copy
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

SAMPLES = 96
BELLS = 6


def chimes(count, seed):
    g = torch.Generator().manual_seed(seed)
    bell = torch.randint(BELLS, (count,), generator=g)
    t = torch.linspace(0, 1, SAMPLES)
    pitch = 4.0 + 2.5 * bell[:, None] + 0.3 * torch.randn(count, 1, generator=g)
    decay = 1.5 + torch.rand(count, 1, generator=g)
    tone = torch.sin(2 * math.pi * pitch * t)
    tone = tone + 0.4 * torch.sin(2 * math.pi * 2.76 * pitch * t)
    sound = tone * torch.exp(-decay * t)
    sound = sound + 0.1 * torch.randn(sound.shape, generator=g)
    return TensorDataset(sound[:, None], bell)


def augment(sound):
    """Shifted, louder or softer, noisier, with a gap."""
    sound = torch.roll(sound, int(torch.randint(-12, 13, ())), dims=-1)
    sound = sound * (0.6 + 0.8 * torch.rand(len(sound), 1, 1))
    sound = sound + 0.1 * torch.randn_like(sound)
    start = int(torch.randint(SAMPLES - 12, ()))
    sound[..., start : start + 12] = 0
    return sound


def make_encoder(features=32, projection=16):
    def stage(cin, cout):
        conv = nn.Conv1d(cin, cout, 7, stride=2, padding=3)
        return nn.Sequential(conv, nn.GroupNorm(4, cout), nn.ReLU())

    backbone = nn.Sequential(
        stage(1, 16),
        stage(16, 32),
        stage(32, features),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
    )
    head = nn.Sequential(
        nn.Linear(features, features), nn.ReLU(), nn.Linear(features, projection)
    )
    return nn.Sequential(backbone, head)


class MoCo(nn.Module):
    def __init__(self, queue_size=256, momentum=0.98, temperature=0.2, projection=16):
        super().__init__()
        self.encoder_q = make_encoder(projection=projection)
        self.encoder_k = copy.deepcopy(self.encoder_q)
        for p in self.encoder_k.parameters():
            p.requires_grad = False
        self.momentum = momentum
        self.temperature = temperature
        queue = F.normalize(torch.randn(queue_size, projection), dim=1)
        self.register_buffer("queue", queue)
        self.register_buffer("queue_ptr", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def follow(self):
        pairs = zip(self.encoder_k.parameters(), self.encoder_q.parameters())
        for k, q in pairs:
            k.lerp_(q, 1 - self.momentum)

    @torch.no_grad()
    def enqueue(self, keys):
        at = int(self.queue_ptr)
        places = (at + torch.arange(len(keys))) % len(self.queue)
        self.queue[places] = keys
        self.queue_ptr.fill_((at + len(keys)) % len(self.queue))

    def forward(self, view_q, view_k):
        q = F.normalize(self.encoder_q(view_q), dim=1)
        with torch.no_grad():
            self.follow()
            k = F.normalize(self.encoder_k(view_k), dim=1)
        positive = (q * k).sum(1, keepdim=True)
        negative = q @ self.queue.clone().T
        logits = torch.cat([positive, negative], dim=1) / self.temperature
        self.enqueue(k)
        return logits, torch.zeros(len(q), dtype=torch.long)


def probe(backbone, train, test, steps):
    """Accuracy of a linear layer on what the backbone gives."""
    backbone.eval().requires_grad_(False)
    linear = nn.Linear(32, BELLS)
    optimizer = torch.optim.LBFGS(linear.parameters(), max_iter=steps)
    sound, bell = train.tensors
    features = backbone(sound)
    mean, std = features.mean(0), features.std(0) + 1e-6

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(linear((features - mean) / std), bell)
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        sound, bell = test.tensors
        guess = linear((backbone(sound) - mean) / std).argmax(1)
    return (guess == bell).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(17)
    train, test = chimes(768, 1), chimes(256, 2)
    loader = DataLoader(train, batch_size=64, shuffle=True, drop_last=True)
    moco = MoCo()
    trained = [p for p in moco.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.06, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

    step = 0
    while step < args.steps:
        for sound, _ in loader:
            logits, target = moco(augment(sound), augment(sound))
            loss = F.cross_entropy(logits, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if step % 12 == 0 or step == 1:
                print(f"step {step} loss {loss.item():.6f}", flush=True)
            if step == args.steps:
                break
    accuracy = probe(moco.encoder_q[0], train, test, steps=20)
    print(f"accuracy of the probe {accuracy:.4f}")


if __name__ == "__main__":
    main()
