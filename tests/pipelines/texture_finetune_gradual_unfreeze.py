"""Pretrain a small residual net on many textures, then fine-tune on a small target set.

Stage A: pretraining on 8 texture classes.
Stage B: new head only, backbone frozen (its batch norm kept in eval mode).
Stage C: the last block is unfrozen as well, with a smaller learning rate.
"""
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIZE = 20


def textures(n, kinds, rng):
    yy, xx = np.mgrid[:SIZE, :SIZE]
    xs, ys = [], []
    for _ in range(n):
        label = int(rng.integers(len(kinds)))
        freq, angle = kinds[label]
        f = freq * rng.uniform(0.92, 1.08)
        a = angle + rng.normal(0, 0.06)
        wave = np.sin(f * (xx * np.cos(a) + yy * np.sin(a)) + rng.uniform(0, 2 * np.pi))
        xs.append(wave * rng.uniform(0.6, 1.2) + rng.normal(0, 0.5, (SIZE, SIZE)))
        ys.append(label)
    x = torch.tensor(np.stack(xs)[:, None], dtype=torch.float32)
    return TensorDataset(x, torch.tensor(ys))


class ResBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.short = nn.Sequential(
            nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)
        )

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.short(x))


class Net(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU()
        )
        self.layer1 = ResBlock(12, 16, 2)
        self.layer2 = ResBlock(16, 32, 2)
        self.fc = nn.Linear(32, n_classes)

    def forward(self, x):
        x = self.layer2(self.layer1(self.stem(x)))
        return self.fc(x.mean((2, 3)))


def freeze(module):
    for p in module.parameters():
        p.requires_grad = False


def unfreeze(module):
    for p in module.parameters():
        p.requires_grad = True


def set_train_mode(model, frozen):
    """train() for the model, but frozen parts keep their running statistics."""
    model.train()
    for m in frozen:
        m.eval()


def accuracy(model, loader):
    model.eval()
    hits = n = 0
    with torch.no_grad():
        for x, y in loader:
            hits += (model(x).argmax(dim=1) == y).sum().item()
            n += len(y)
    return hits / n


def run_stage(
    name, model, optimizer, loader, val_loader, steps, frozen=(), scheduler=None
):
    criterion = nn.CrossEntropyLoss()
    done, epoch = 0, 0
    while done < steps:
        set_train_mode(model, frozen)
        total, count = 0.0, 0
        for x, y in loader:
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            total += loss.item() * x.size(0)
            count += x.size(0)
            done += 1
            if done == steps:
                break
        epoch += 1
        print(
            f"[{name}] epoch {epoch} step {done} loss {total / count:.3f} val acc {accuracy(model, val_loader):.3f}"
        )


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=200, help="all the stages together")
    p.add_argument("--seed", type=int, default=11)
    return p.parse_args()


def make_loaders(rng):
    source = [(f, a) for f in (0.6, 1.2) for a in (0.0, 0.8, 1.6, 2.4)]
    target = [(0.9, 0.4), (0.9, 1.2), (0.9, 2.0), (1.5, 0.4), (1.5, 2.0)]
    src_train = DataLoader(textures(1600, source, rng), batch_size=32, shuffle=True)
    src_val = DataLoader(textures(320, source, rng), batch_size=128)
    tgt_train = DataLoader(textures(320, target, rng), batch_size=32, shuffle=True)
    tgt_val = DataLoader(textures(400, target, rng), batch_size=128)
    return source, target, src_train, src_val, tgt_train, tgt_val


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)

    source, target, src_train, src_val, tgt_train, tgt_val = make_loaders(rng)

    steps_a = args.steps // 2
    steps_b = max(1, args.steps // 5)
    steps_c = max(1, args.steps - steps_a - steps_b)

    # --- A: pretraining
    model = Net(len(source))
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    run_stage("pretrain", model, opt, src_train, src_val, steps_a)
    backbone_state = {
        k: v.clone() for k, v in model.state_dict().items() if not k.startswith("fc.")
    }

    # --- B: new model, pretrained backbone, train the head
    model = Net(len(target))
    missing, unexpected = model.load_state_dict(backbone_state, strict=False)
    assert set(missing) == {"fc.weight", "fc.bias"} and not unexpected
    backbone = [model.stem, model.layer1, model.layer2]
    for m in backbone:
        freeze(m)
    print("trainable:", [n for n, q in model.named_parameters() if q.requires_grad])
    opt = torch.optim.Adam(model.fc.parameters(), lr=1e-2)
    before = model.layer1.conv1.weight.clone()
    run_stage("head", model, opt, tgt_train, tgt_val, steps_b, frozen=backbone)
    assert torch.equal(before, model.layer1.conv1.weight)

    # --- C: open the last block; the optimizer gets it as a second group
    unfreeze(model.layer2)
    opt.param_groups[0]["lr"] = 3e-3
    opt.add_param_group({"params": list(model.layer2.parameters()), "lr": 1e-3})
    sched = torch.optim.lr_scheduler.LinearLR(
        opt, start_factor=1.0, end_factor=0.05, total_iters=steps_c
    )
    print(
        "trainable:",
        sum(q.numel() for q in model.parameters() if q.requires_grad),
        "numbers",
    )
    run_stage(
        "last block",
        model,
        opt,
        tgt_train,
        tgt_val,
        steps_c,
        frozen=[model.stem, model.layer1],
        scheduler=sched,
    )
    print("learning rates at the end:", [f"{g['lr']:.1e}" for g in opt.param_groups])
    print(f"final accuracy {accuracy(model, tgt_val):.3f}")


if __name__ == "__main__":
    main()
