"""Distil a bigger CNN into a small one. Teacher logits are computed once per run, since the
teacher does not change, and are then reused in every epoch."""
import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Params:
    alpha: float = 0.9
    temperature: float = 4.0
    batch_size: int = 64
    teacher_steps: int = 90
    lr: float = 2e-3
    num_classes: int = 8
    save_summary_steps: int = 20


def make_images(n, seed, num_classes):
    """16x16 colour pictures, a class is a coloured bar at an angle plus a lot of noise"""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, num_classes, (n,), generator=g)
    yy, xx = torch.meshgrid(
        torch.linspace(-1, 1, 16), torch.linspace(-1, 1, 16), indexing="ij"
    )
    angle = labels.float() * 3.1416 / num_classes + 0.08 * torch.randn(n, generator=g)
    shift = 0.3 * torch.randn(n, generator=g)
    dist = (
        xx * torch.cos(angle).view(-1, 1, 1)
        + yy * torch.sin(angle).view(-1, 1, 1)
        - shift.view(-1, 1, 1)
    )
    bar = torch.exp(-((dist / 0.2) ** 2)).unsqueeze(1)
    colour = torch.rand(n, 3, 1, 1, generator=g)
    img = bar * colour + 0.35 * torch.randn(n, 3, 16, 16, generator=g)
    return img, labels


def conv_block(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)
    )


class Net(nn.Module):
    def __init__(self, width, num_classes):
        super().__init__()
        self.features = nn.Sequential(
            conv_block(3, width),
            conv_block(width, width * 2),
            conv_block(width * 2, width * 2),
        )
        self.dropout = nn.Dropout(0.1)
        self.fc = nn.Linear(width * 2 * 4, num_classes)

    def forward(self, x):
        return self.fc(self.dropout(self.features(x).flatten(1)))


def loss_fn_kd(outputs, labels, teacher_outputs, params):
    T, alpha = params.temperature, params.alpha
    kd = F.kl_div(
        F.log_softmax(outputs / T, dim=1),
        F.softmax(teacher_outputs / T, dim=1),
        reduction="batchmean",
    )
    return kd * (alpha * T * T) + F.cross_entropy(outputs, labels) * (1.0 - alpha)


def fetch_teacher_outputs(teacher_model, dataloader):
    teacher_model.eval()
    teacher_outputs = []
    with torch.no_grad():
        for data_batch, labels_batch in dataloader:
            teacher_outputs.append(teacher_model(data_batch))
    return teacher_outputs


def accuracy(model, images, labels):
    model.eval()
    with torch.no_grad():
        acc = (model(images).argmax(1) == labels).float().mean().item()
    model.train()
    return acc


def train_teacher(loader, params):
    teacher = Net(20, params.num_classes)
    opt = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    done = 0
    while done < params.teacher_steps:
        for x, y in loader:
            loss = F.cross_entropy(teacher(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            done += 1
            if done >= params.teacher_steps:
                break
    for w in teacher.parameters():
        w.requires_grad_(False)
    return teacher.eval()


def train_and_evaluate_kd(student, teacher, loader, val, params, args):
    optimizer = torch.optim.Adam(student.parameters(), lr=params.lr)
    student.train()
    teacher_outputs = fetch_teacher_outputs(teacher, loader)
    print(f"teacher outputs ready, {len(teacher_outputs)} batches")
    step, epoch = 0, 0
    agree, seen = 0.0, 0
    while step < args.steps:
        for i, (x, y) in enumerate(loader):
            if args.fixed:
                with torch.no_grad():
                    t_out = teacher(x)
            else:
                t_out = teacher_outputs[i]
            loss = loss_fn_kd(student(x), y, t_out, params)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            agree += (t_out.argmax(1) == y).float().sum().item()
            seen += len(y)
            if step % params.save_summary_steps == 0:
                print(f"epoch {epoch} step {step} kd loss {loss.item():.4f}")
            step += 1
            if step >= args.steps:
                break
        epoch += 1
        print(f"epoch {epoch} val accuracy {accuracy(student, *val):.4f}")
    return agree / seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    params = Params()
    torch.manual_seed(230)
    images, labels = make_images(1920, 1, params.num_classes)
    val = make_images(600, 2, params.num_classes)
    train_dl = DataLoader(
        TensorDataset(images, labels),
        batch_size=params.batch_size,
        shuffle=True,
        drop_last=True,
    )

    teacher = train_teacher(train_dl, params)
    t_acc, t_train = accuracy(teacher, *val), accuracy(teacher, images, labels)
    teacher.eval()
    print(f"teacher val accuracy {t_acc:.4f}")

    student = Net(6, params.num_classes)
    match = train_and_evaluate_kd(student, teacher, train_dl, val, params, args)
    print(f"student val accuracy {accuracy(student, *val):.4f}")
    if args.prove:
        print(
            f"teacher answers that fit the labels they were paired with: {match:.3f}, "
            f"teacher train accuracy {t_train:.3f}"
        )
        print("fault shows:", "yes" if match < t_train - 0.2 else "no")


if __name__ == "__main__":
    main()
