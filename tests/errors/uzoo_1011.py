"""Small trainer with periodic evaluation, early stopping and best-checkpoint restore,
used to fine-tune a character-level model on a few short documents."""
import argparse
import copy
import math
from dataclasses import dataclass
from typing import Optional

import torch
import torch.nn as nn
import torch.nn.functional as F

ALPHABET = "abcdefghijklmnopqrstuvwxyz "


@dataclass
class TrainingConfig:
    max_steps: int = 160
    batch_size: int = 16
    learning_rate: float = 4e-3
    eval_steps: int = 16
    logging_steps: int = 16
    early_stopping_patience: int = 4
    load_best_model_at_end: bool = True
    metric_for_best_model: str = "eval_perplexity"
    greater_is_better: Optional[bool] = None
    seed: int = 0
    fixed: bool = False


class CharLM(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.embed = nn.Embedding(len(ALPHABET), hidden)
        self.lstm = nn.LSTM(hidden, hidden, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(hidden, len(ALPHABET))

    def forward(self, ids, labels=None):
        logits = self.out(self.drop(self.lstm(self.embed(ids))[0]))
        if labels is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def write_documents(n_docs, words_per_doc, seed):
    g = torch.Generator().manual_seed(seed)
    gw = torch.Generator().manual_seed(404)
    lexicon = [
        "".join(
            ALPHABET[int(c)]
            for c in torch.randint(
                26, (int(torch.randint(2, 7, (1,), generator=gw)),), generator=gw
            )
        )
        for _ in range(30)
    ]
    follow = torch.randint(30, (30, 3), generator=gw)
    docs = []
    for _ in range(n_docs):
        w, out = int(torch.randint(30, (1,), generator=g)), []
        for _ in range(words_per_doc):
            out.append(lexicon[w])
            w = int(follow[w, int(torch.randint(3, (1,), generator=g))])
        docs.append(" ".join(out))
    return docs


def encode(docs, block=32):
    text = " ".join(docs)
    ids = torch.tensor([ALPHABET.index(c) for c in text])
    n = (len(ids) - 1) // block
    return ids[: n * block].view(n, block), ids[1 : n * block + 1].view(n, block)


class Trainer:
    def __init__(self, model, config, train_set, eval_set):
        self.model, self.config = model, config
        self.train_set, self.eval_set = train_set, eval_set
        self.greater_is_better = self.resolve_direction()
        self.history = []
        self.best = None
        self.best_step = None
        self.best_weights = None
        self.waited = 0

    def resolve_direction(self):
        c = self.config
        if c.greater_is_better is not None:
            return c.greater_is_better
        suffixes = ("loss", "perplexity") if c.fixed else ("loss",)
        return not c.metric_for_best_model.endswith(suffixes)

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        loss = self.model(*self.eval_set).item()
        self.model.train()
        return {"eval_loss": loss, "eval_perplexity": math.exp(loss)}

    def on_evaluate(self, step, metrics):
        c = self.config
        value = metrics[c.metric_for_best_model]
        self.history.append((step, value))
        improved = self.best is None or (
            value > self.best if self.greater_is_better else value < self.best
        )
        if improved:
            self.best, self.best_step, self.waited = value, step, 0
            self.best_weights = copy.deepcopy(self.model.state_dict())
        else:
            self.waited += 1
        return self.waited >= c.early_stopping_patience

    def train(self):
        c = self.config
        g = torch.Generator().manual_seed(c.seed)
        opt = torch.optim.AdamW(
            self.model.parameters(), lr=c.learning_rate, weight_decay=0.01
        )
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(
            opt, c.max_steps, eta_min=c.learning_rate * 0.05
        )
        inputs, labels = self.train_set
        self.model.train()
        step, stop = 0, False
        while step < c.max_steps and not stop:
            for chunk in torch.randperm(len(inputs), generator=g).split(c.batch_size):
                loss = self.model(inputs[chunk], labels[chunk])
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                opt.step()
                sched.step()
                step += 1
                if step % c.logging_steps == 0:
                    print(f"{{'loss': {loss.item():.4f}, 'step': {step}}}")
                if step % c.eval_steps == 0:
                    metrics = self.evaluate()
                    print("  " + str({k: round(v, 4) for k, v in metrics.items()}))
                    stop = self.on_evaluate(step, metrics)
                if stop or step >= c.max_steps:
                    break
        if not self.history:
            self.on_evaluate(step, self.evaluate())
        if stop:
            print(f"early stopping at step {step}")
        if c.load_best_model_at_end and self.best_weights is not None:
            self.model.load_state_dict(self.best_weights)
            print(
                f"restored the checkpoint of step {self.best_step} "
                f"({c.metric_for_best_model} {self.best:.4f})"
            )
        return step


def complete(model, prompt, n=40):
    model.eval()
    text = prompt
    with torch.no_grad():
        for _ in range(n):
            ids = torch.tensor([[ALPHABET.index(c) for c in text]])
            text += ALPHABET[int(model(ids)[0, -1].argmax())]
    return text


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=TrainingConfig.max_steps)
    ap.add_argument(
        "--patience", type=int, default=TrainingConfig.early_stopping_patience
    )
    ap.add_argument(
        "--metric", default="eval_perplexity", choices=["eval_loss", "eval_perplexity"]
    )
    ap.add_argument("--seed", type=int, default=2)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    config = TrainingConfig(
        max_steps=args.steps,
        early_stopping_patience=args.patience,
        seed=args.seed,
        metric_for_best_model=args.metric,
        fixed=args.fixed,
    )
    train_set = encode(write_documents(24, 40, args.seed))
    eval_set = encode(write_documents(6, 40, args.seed + 1))
    trainer = Trainer(CharLM(), config, train_set, eval_set)
    done = trainer.train()
    final = trainer.evaluate()
    print(
        f"finished after {done} steps: eval perplexity {final['eval_perplexity']:.3f}"
    )
    print("sample:", complete(trainer.model, "a"))

    if args.prove:
        lowest = min(v for _, v in trainer.history)
        print(
            f"value of the restored checkpoint {trainer.best:.4f}, lowest seen {lowest:.4f}"
        )
        print("fault shows: " + ("yes" if trainer.best > lowest + 1e-9 else "no"))


if __name__ == "__main__":
    main()
