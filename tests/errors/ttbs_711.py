#!/usr/bin/env python
# LoRA tuning of a frozen encoder for three-way review sentiment.
import argparse
import logging
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("lora-sentiment")

WORDS = 150
CLASSES = ["negative", "neutral", "positive"]


def make_reviews(n: int, seed: int, length: int = 18):
    """Polar words carry the label; a negator flips the word that follows it."""
    g = torch.Generator().manual_seed(seed)
    polarity = torch.zeros(WORDS)
    polarity[10:26], polarity[26:42] = 1.0, -1.0
    ids = torch.randint(42, WORDS, (n, length), generator=g)
    polar = torch.rand(n, length, generator=g) < 0.4
    lean = torch.randint(-1, 2, (n, 1), generator=g)
    side = torch.where(torch.rand(n, length, generator=g) < 0.5 + 0.3 * lean, 10, 26)
    ids = torch.where(polar, side + torch.randint(16, (n, length), generator=g), ids)
    negate = torch.rand(n, length, generator=g) < 0.08
    ids = torch.where(negate, torch.full_like(ids, 5), ids)
    sign = torch.ones(n, length)
    sign[:, 1:][ids[:, :-1] == 5] = -1.0
    total = (polarity[ids] * sign).sum(1)
    labels = torch.where(total > 1, 2, torch.where(total < -1, 0, 1))
    return ids, labels


class LoraLinear(nn.Module):
    def __init__(self, linear: nn.Linear, r: int, alpha: int):
        super().__init__()
        self.linear = linear
        for p in self.linear.parameters():
            p.requires_grad = False
        self.lora_A = nn.Parameter(
            torch.randn(r, linear.in_features) / linear.in_features**0.5
        )
        self.lora_B = nn.Parameter(torch.zeros(linear.out_features, r))
        self.scaling = alpha / r

    def forward(self, x):
        return self.linear(x) + (x @ self.lora_A.T @ self.lora_B.T) * self.scaling


class Encoder(nn.Module):
    def __init__(self, dim: int = 64, depth: int = 2):
        super().__init__()
        self.embed = nn.Embedding(WORDS, dim)
        self.mix = nn.ModuleList(nn.Linear(2 * dim, dim) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(depth))
        self.score = nn.Linear(dim, len(CLASSES))

    def forward(self, ids):
        x = self.embed(ids)
        for mix, norm in zip(self.mix, self.norms):
            before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)
            x = x + torch.tanh(mix(torch.cat([norm(x), norm(before)], dim=-1)))
        return self.score(x.mean(1))


def build_model(args):
    model = Encoder()
    for p in model.parameters():
        p.requires_grad = False
    for i, layer in enumerate(model.mix):
        model.mix[i] = LoraLinear(layer, args.rank, args.alpha)
    for p in model.score.parameters():
        p.requires_grad = True
    return model


class Trainer:
    def __init__(self, model, train_set, eval_set, args):
        self.model, self.args = model, args
        self.loader = DataLoader(
            train_set,
            batch_size=args.batch_size,
            shuffle=True,
            drop_last=True,
            generator=torch.Generator().manual_seed(args.seed),
        )
        self.eval_loader = DataLoader(eval_set, batch_size=256)
        self.params = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.params, lr=args.lr, weight_decay=0.01)
        self.criterion = nn.CrossEntropyLoss()
        self.zero_grad = args.fixed
        self.gaps = []

    def optimizer_step(self):
        nn.utils.clip_grad_norm_(self.params, self.args.max_norm)
        self.optimizer.step()
        if self.zero_grad:
            self.optimizer.zero_grad()

    def training_step(self, ids, labels):
        loss = self.criterion(self.model(ids), labels)
        if self.args.prove:
            fresh = torch.autograd.grad(loss, self.params, retain_graph=True)
        loss.backward()
        if self.args.prove:
            a = torch.cat([g.flatten() for g in fresh])
            b = torch.cat([p.grad.flatten() for p in self.params])
            self.gaps.append(((a - b).norm() / a.norm().clamp(min=1e-12)).item())
        self.optimizer_step()
        return loss.item()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        loss = right = seen = 0.0
        for ids, labels in self.eval_loader:
            logits = self.model(ids)
            loss += self.criterion(logits, labels).item() * len(ids)
            right += (logits.argmax(-1) == labels).sum().item()
            seen += len(ids)
        self.model.train()
        return loss / seen, right / seen

    def train(self):
        step, window = 0, []
        self.model.train()
        while step < self.args.steps:
            for ids, labels in self.loader:
                window.append(self.training_step(ids, labels))
                step += 1
                if step % 30 == 0:
                    val_loss, acc = self.evaluate()
                    log.info(
                        "step %d train_loss %.4f val_loss %.4f val_acc %.3f",
                        step,
                        sum(window) / len(window),
                        val_loss,
                        acc,
                    )
                    window.clear()
                if step >= self.args.steps:
                    return


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--alpha", type=int, default=16)
    parser.add_argument("--max-norm", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=8)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stdout,
        format="%(asctime)s %(message)s",
        datefmt="%H:%M:%S",
    )

    torch.manual_seed(args.seed)
    train_set = TensorDataset(*make_reviews(3000, args.seed))
    eval_set = TensorDataset(*make_reviews(800, args.seed + 1))
    model = build_model(args)
    log.info(
        "trainable parameters: %d",
        sum(p.numel() for p in model.parameters() if p.requires_grad),
    )
    trainer = Trainer(model, train_set, eval_set, args)
    trainer.train()
    val_loss, acc = trainer.evaluate()
    print(f"final val_loss {val_loss:.4f} val_acc {acc:.3f}")
    if args.prove:
        worst = max(trainer.gaps)
        print(
            f"gradient handed to the optimizer against that of its own batch: "
            f"largest relative gap {worst:.4f}"
        )
        print("fault shows:", "yes" if worst > 0.01 else "no")


if __name__ == "__main__":
    main()
