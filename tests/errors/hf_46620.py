"""Ticket classification with few labels.

Word vectors are computed from a large unlabelled set (PPMI + SVD), written as a
checkpoint, loaded with `from_pretrained`, and the classifier is trained on top.
"""
import argparse
import os
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F


@dataclass
class TicketConfig:
    vocab_size: int = 900
    hidden_size: int = 48
    num_labels: int = 6
    dropout: float = 0.1
    initializer_range: float = 0.02


class PreTrainedBase(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config

    def _init_weights(self, module):
        raise NotImplementedError

    def initialize_weights(self, names=None):
        """Initialises every module, or those that own one of the given parameters."""
        for prefix, module in self.named_modules():
            own = [f"{prefix}.{n}" for n, _ in module.named_parameters(recurse=False)]
            if own and (names is None or any(n in names for n in own)):
                self._init_weights(module)

    @classmethod
    def from_pretrained(cls, path, config, fixed=False):
        model = cls(config)
        state = torch.load(path)
        info = model.load_state_dict(state, strict=False)
        if fixed:
            model.initialize_weights(info.missing_keys)
        else:
            model.initialize_weights()
        print(
            f"loaded {len(state)} tensors, missing {info.missing_keys}, unexpected {info.unexpected_keys}"
        )
        return model


class Encoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, ids, mask):
        x = self.embeddings(ids)
        x = x + torch.tanh(self.dense(x))
        m = mask.unsqueeze(-1)
        return (x * m).sum(1) / m.sum(1)


class TicketClassifier(PreTrainedBase):
    def __init__(self, config):
        super().__init__(config)
        self.encoder = Encoder(config)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def _init_weights(self, module):
        std = self.config.initializer_range
        if isinstance(module, nn.Linear):
            module.weight.data.normal_(mean=0.0, std=std)
            if module.bias is not None:
                module.bias.data.zero_()
        elif isinstance(module, nn.Embedding):
            module.weight.data.normal_(mean=0.0, std=std)

    def forward(self, ids, mask, labels=None):
        logits = self.classifier(self.dropout(self.encoder(ids, mask)))
        loss = F.cross_entropy(logits, labels) if labels is not None else None
        return loss, logits


class TicketCorpus:
    def __init__(self, config, seed):
        self.config = config
        self.rng = np.random.RandomState(seed)
        words = self.rng.permutation(config.vocab_size)
        per_label = 110
        self.topic = [
            words[i * per_label : (i + 1) * per_label] for i in range(config.num_labels)
        ]
        self.common = words[config.num_labels * per_label :]

    def draw(self, n, length=14):
        labels = self.rng.randint(self.config.num_labels, size=n)
        ids = self.rng.choice(self.common, size=(n, length))
        mask = np.zeros((n, length), dtype=np.float32)
        for i, y in enumerate(labels):
            k = self.rng.randint(8, length + 1)
            mask[i, :k] = 1.0
            on_topic = self.rng.rand(length) < 0.4
            source = (
                self.topic[y]
                if self.rng.rand() > 0.05
                else self.topic[self.rng.randint(len(self.topic))]
            )
            ids[i] = np.where(on_topic, self.rng.choice(source, size=length), ids[i])
        return torch.as_tensor(ids), torch.as_tensor(mask), torch.as_tensor(labels)


def word_vectors(corpus, config, n=6000):
    ids, mask, _ = corpus.draw(n)
    bow = np.zeros((n, config.vocab_size), dtype=np.float32)
    rows, cols = np.nonzero(mask.numpy())
    bow[rows, ids.numpy()[rows, cols]] = 1.0
    counts = bow.T @ bow
    np.fill_diagonal(counts, 0.0)
    total = counts.sum()
    freq = counts.sum(1) + 1e-6
    pmi = np.log(np.maximum(counts * total, 1e-6) / np.outer(freq, freq))
    u, s, _ = np.linalg.svd(np.maximum(pmi, 0.0), hermitian=True)
    vec = u[:, : config.hidden_size] * np.sqrt(s[: config.hidden_size])
    return torch.as_tensor(vec / vec.std(), dtype=torch.float32)


def write_checkpoint(path, corpus, config):
    vectors = word_vectors(corpus, config)
    h = config.hidden_size
    torch.save(
        {
            "encoder.embeddings.weight": vectors,
            "encoder.dense.weight": 0.5 * torch.eye(h),
            "encoder.dense.bias": torch.zeros(h),
        },
        path,
    )


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    loss, logits = model(*data)
    model.train()
    return loss.item(), (logits.argmax(-1) == data[2]).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--train-size", type=int, default=96)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=13)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    config = TicketConfig()
    corpus = TicketCorpus(config, args.seed)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "encoder.pt")
        write_checkpoint(path, corpus, config)
        model = TicketClassifier.from_pretrained(path, config, fixed=args.fixed)
        stored = torch.load(path)
    now = model.state_dict()
    kept = sum(torch.equal(now[k], v) for k, v in stored.items())

    train, test = corpus.draw(args.train_size), corpus.draw(600)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    total = args.epochs * (args.train_size // args.batch_size)
    scheduler = torch.optim.lr_scheduler.LinearLR(
        optimizer, 1.0, 0.1, total_iters=max(total, 1)
    )
    g = torch.Generator().manual_seed(args.seed)
    for epoch in range(args.epochs):
        order, losses = torch.randperm(args.train_size, generator=g), []
        for chunk in order.split(args.batch_size):
            loss, _ = model(*(t[chunk] for t in train))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        val_loss, acc = evaluate(model, test)
        print(
            f"epoch {epoch + 1:2d} train {np.mean(losses):.4f} test {val_loss:.4f} acc {acc:.3f}"
        )

    if args.prove:
        print(
            f"checkpoint tensors found unchanged in the model before training: {kept} of {len(stored)}"
        )
        print("fault shows: " + ("no" if kept == len(stored) else "yes"))


if __name__ == "__main__":
    main()
