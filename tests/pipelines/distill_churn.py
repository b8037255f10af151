"""Knowledge distillation on a table of customers: a wide teacher is trained, frozen,
and gives soft targets to a small student. The student stops early, when the
validation loss has not improved for some epochs, and goes back to its best weights.

    python distill_churn.py --steps 800
"""

import argparse
import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CARDINALITIES = [4, 12, 7]
NUMERIC = 6
OUTCOMES = 3  # stays, leaves, buys more


class TabularNet(nn.Module):
    def __init__(self, sizes, embedding_dim, dropout=0.0):
        super().__init__()
        self.embeddings = nn.ModuleList(
            [nn.Embedding(c, embedding_dim) for c in CARDINALITIES]
        )
        self.bn = nn.BatchNorm1d(NUMERIC)
        layers, width = [], embedding_dim * len(CARDINALITIES) + NUMERIC
        for size in sizes:
            layers += [nn.Linear(width, size), nn.Mish(), nn.Dropout(dropout)]
            width = size
        self.mlp = nn.Sequential(*layers, nn.Linear(width, OUTCOMES))

    def forward(self, categories, numbers):
        parts = [e(categories[:, i]) for i, e in enumerate(self.embeddings)]
        return self.mlp(torch.cat([*parts, self.bn(numbers)], dim=1))


def customers(n, generator):
    world = torch.Generator().manual_seed(100)
    effects = [torch.randn(c, OUTCOMES, generator=world) for c in CARDINALITIES]
    slope = torch.randn(NUMERIC, OUTCOMES, generator=world)
    categories = torch.stack(
        [torch.randint(0, c, (n,), generator=generator) for c in CARDINALITIES], dim=1
    )
    numbers = torch.randn(n, NUMERIC, generator=generator) * 2 + 1
    score = sum(e[categories[:, i]] for i, e in enumerate(effects))
    score = score + torch.tanh(numbers) @ slope + numbers[:, :1] * effects[0][:1]
    gumbel = -torch.log(-torch.log(torch.rand(score.shape, generator=generator)))
    return TensorDataset(categories, numbers, (2 * score + gumbel).argmax(1))


def distillation_loss(logits, teacher_logits, labels, temperature=3.0, alpha=0.7):
    soft = F.kl_div(
        F.log_softmax(logits / temperature, dim=1),
        F.log_softmax(teacher_logits / temperature, dim=1),
        log_target=True,
        reduction="batchmean",
    )
    hard = F.cross_entropy(logits, labels)
    return alpha * temperature**2 * soft + (1 - alpha) * hard


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss = right = 0
    for categories, numbers, labels in loader:
        logits = model(categories, numbers)
        loss += F.cross_entropy(logits, labels, reduction="sum").item()
        right += (logits.argmax(1) == labels).sum().item()
    return loss / len(loader.dataset), right / len(loader.dataset)


def fit(model, loaders, loss_fn, lr, steps, patience, label):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    best_loss, best_state, bad, step, epoch = float("inf"), None, 0, 0, 0
    while step < steps and bad < patience:
        model.train()
        for batch in loaders["train"]:
            optimizer.zero_grad()
            loss = loss_fn(model, *batch)
            loss.backward()
            optimizer.step()
            step += 1
            if step == steps:
                break
        val_loss, accuracy = evaluate(model, loaders["val"])
        print(
            f"{label} epoch {epoch} loss {loss.item():.6f} val {val_loss:.6f} "
            f"accuracy {accuracy:.4f}",
            flush=True,
        )
        if val_loss < best_loss - 1e-4:
            best_loss, best_state, bad = val_loss, copy.deepcopy(model.state_dict()), 0
        else:
            bad += 1
        epoch += 1
    model.load_state_dict(best_state)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=800, help="at most, of each")
    parser.add_argument("--patience", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(15)
    g = torch.Generator().manual_seed(16)
    sets = {"train": customers(2400, g), "val": customers(800, g)}
    loaders = {k: DataLoader(s, 64, shuffle=k == "train") for k, s in sets.items()}

    def supervised(model, categories, numbers, labels):
        return F.cross_entropy(model(categories, numbers), labels)

    teacher = TabularNet([96, 96], embedding_dim=8, dropout=0.2)
    fit(teacher, loaders, supervised, 2e-3, args.steps, args.patience, "teacher")
    teacher.eval().requires_grad_(False)

    def distilled(model, categories, numbers, labels):
        targets = teacher(categories, numbers)
        return distillation_loss(model(categories, numbers), targets, labels)

    student = TabularNet([16], embedding_dim=3)
    fit(student, loaders, distilled, 4e-3, args.steps, args.patience, "student")
    print("student's best: loss {:.6f} accuracy {:.4f}".format(*evaluate(student, loaders["val"])))  # fmt: skip


if __name__ == "__main__":
    main()
