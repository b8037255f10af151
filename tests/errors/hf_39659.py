import argparse
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class TrainingArguments:
    num_train_epochs: int = 10
    per_device_train_batch_size: int = 16
    gradient_accumulation_steps: int = 4
    learning_rate: float = 0.5
    momentum: float = 0.9
    warmup_ratio: float = 0.1
    max_grad_norm: float = 10.0
    logging_steps: int = 6
    seed: int = 42
    fixed: bool = False
    prove: bool = False


class SpanDataset(Dataset):
    """Sequence tagging: a token opens a span that lasts until a closing token of the same family."""

    def __init__(self, n, length=16, n_families=3, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randint(0, 8 + 2 * n_families, (n, length), generator=g)
        self.y = torch.zeros(n, length, dtype=torch.long)
        for i in range(n):
            state = 0
            for j in range(length):
                tok = self.x[i, j].item() - 8
                if tok >= 0 and tok % 2 == 0 and state == 0:
                    state = tok // 2 + 1
                self.y[i, j] = state
                if tok >= 0 and tok % 2 == 1 and tok // 2 + 1 == state:
                    state = 0

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"input_ids": self.x[i], "labels": self.y[i]}


class Tagger(nn.Module):
    def __init__(self, vocab=14, dim=40, n_labels=4):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.cls = nn.Linear(dim, n_labels)

    def forward(self, input_ids, labels=None):
        h, _ = self.rnn(self.emb(input_ids))
        logits = self.cls(h)
        if labels is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Trainer:
    def __init__(self, model, args, train_dataset, eval_dataset):
        self.model, self.args = model, args
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        self.loader = DataLoader(
            train_dataset,
            batch_size=args.per_device_train_batch_size,
            shuffle=True,
            generator=torch.Generator().manual_seed(args.seed),
        )
        self.updates_per_epoch = math.ceil(
            len(self.loader) / args.gradient_accumulation_steps
        )
        self.max_steps = self.updates_per_epoch * args.num_train_epochs
        self.optimizer = torch.optim.SGD(
            model.parameters(), lr=args.learning_rate, momentum=args.momentum
        )
        warm = max(1, int(args.warmup_ratio * self.max_steps))
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer,
            lambda s: min(
                (s + 1) / warm,
                max(0.0, (self.max_steps - s) / max(1, self.max_steps - warm)),
            ),
        )
        self.current_accumulation = args.gradient_accumulation_steps
        self.global_step = 0
        self.checks = []

    def get_batch_samples(self, iterator, count):
        samples = []
        for _ in range(count):
            try:
                samples.append(next(iterator))
            except StopIteration:
                break
        return samples

    def training_step(self, inputs):
        loss = self.model(**inputs)
        if self.args.fixed:
            loss = loss / self.current_accumulation
        else:
            loss = loss / self.args.gradient_accumulation_steps
        loss.backward()
        return loss.detach()

    def reference_norm(self, samples):
        params = list(self.model.parameters())
        mean_loss = sum(self.model(**s) for s in samples) / len(samples)
        return (
            torch.stack([x.norm() for x in torch.autograd.grad(mean_loss, params)])
            .norm()
            .item()
        )

    def train(self):
        args = self.args
        window = args.gradient_accumulation_steps
        logged, since = 0.0, 0
        self.model.train()
        for epoch in range(args.num_train_epochs):
            iterator = iter(self.loader)
            for _ in range(self.updates_per_epoch):
                samples = self.get_batch_samples(iterator, window)
                self.current_accumulation = len(samples)
                self.optimizer.zero_grad()
                reference = self.reference_norm(samples) if args.prove else None
                step_loss = sum(self.training_step(s) for s in samples)
                grad_norm = nn.utils.clip_grad_norm_(
                    self.model.parameters(), args.max_grad_norm
                )
                if args.prove:
                    self.checks.append(
                        (self.global_step, len(samples), grad_norm.item() / reference)
                    )
                self.optimizer.step()
                self.lr_scheduler.step()
                self.global_step += 1
                logged, since = logged + step_loss.item(), since + 1
                if self.global_step % args.logging_steps == 0:
                    print(
                        {
                            "loss": round(logged / since, 4),
                            "grad_norm": round(grad_norm.item(), 4),
                            "learning_rate": round(
                                self.lr_scheduler.get_last_lr()[0], 5
                            ),
                            "epoch": round(epoch + 1.0, 2),
                        }
                    )
                    logged, since = 0.0, 0
        return self.evaluate()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        x, y = self.eval_dataset.x, self.eval_dataset.y
        logits = self.model(x)
        out = {
            "eval_loss": F.cross_entropy(logits.flatten(0, 1), y.flatten()).item(),
            "eval_accuracy": (logits.argmax(-1) == y).float().mean().item(),
        }
        print({k: round(v, 4) for k, v in out.items()})
        return out


def main():
    defaults = TrainingArguments()
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=defaults.num_train_epochs)
    parser.add_argument(
        "--accumulation", type=int, default=defaults.gradient_accumulation_steps
    )
    parser.add_argument("--lr", type=float, default=defaults.learning_rate)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    ns = parser.parse_args()
    args = TrainingArguments(
        num_train_epochs=ns.epochs,
        gradient_accumulation_steps=ns.accumulation,
        learning_rate=ns.lr,
        fixed=ns.fixed,
        prove=ns.prove,
    )
    torch.manual_seed(args.seed)
    trainer = Trainer(
        Tagger(), args, SpanDataset(336, seed=1), SpanDataset(128, seed=2)
    )
    print(
        f"{len(trainer.loader)} batches per epoch, {trainer.updates_per_epoch} updates per epoch, {trainer.max_steps} in all"
    )
    trainer.train()

    if args.prove:
        worst = min(trainer.checks, key=lambda c: c[2])
        print(
            f"update {worst[0]}: {worst[1]} batches, gradient norm is {worst[2]:.3f} of the gradient of their mean loss"
        )
        off = [c[0] for c in trainer.checks if abs(c[2] - 1.0) > 1e-2]
        print(
            f"updates with a wrong gradient: {len(off)} of {len(trainer.checks)}, first {off[0] if off else '-'}"
        )
        print("fault shows:", "yes" if off else "no")


if __name__ == "__main__":
    main()
