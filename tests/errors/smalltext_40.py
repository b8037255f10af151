"""Active learning of topics: a transformer classifier, fitted on a labelled pool.

The classifier validates several times in an epoch, keeps the best validation loss in
view and gives its uncertainty for the pool at the end. After small-text, issue 40.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

VOCABULARY, LENGTH, TOPICS = 200, 20, 4


def texts(count, generator):
    """Each topic has words of its own, which are rare among the others."""
    topic = torch.randint(TOPICS, (count,), generator=generator)
    words = torch.randint(TOPICS * 10, VOCABULARY, (count, LENGTH), generator=generator)
    own = torch.randint(0, 10, (count, LENGTH), generator=generator)
    own = own + 10 * topic[:, None]
    pick = torch.rand(count, LENGTH, generator=generator) < 0.12
    wrong = torch.rand(count, generator=generator) < 0.15
    noise = torch.randint(TOPICS, (count,), generator=generator)
    return torch.where(pick, own, words), torch.where(wrong, noise, topic)


class Encoder(nn.Module):
    def __init__(self, width=64, dropout=0.3):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.dropout = nn.Dropout(dropout)
        self.layer = nn.TransformerEncoderLayer(
            width, 4, 128, dropout=dropout, batch_first=True
        )
        self.out = nn.Linear(width, TOPICS)

    def forward(self, words):
        hidden = self.layer(self.dropout(self.embedding(words)))
        return self.out(self.dropout(hidden.mean(1)))


class TransformerClassification:
    def __init__(self, args):
        self.args = args
        self.model = Encoder()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.best, self.step, self.in_eval = float("inf"), 0, 0

    def fit(self, train, valid, epochs):
        loader = DataLoader(train, batch_size=16, shuffle=True, drop_last=True)
        every = max(1, len(loader) // self.args.validations_per_epoch)
        for epoch in range(epochs):
            self._train_epoch(loader, valid, every)
            loss, accuracy = self.validate(valid)
            print(f"epoch {epoch} valid loss {loss:.4f} accuracy {accuracy:.3f}")
        return self

    def _train_epoch(self, loader, valid, every):
        self.model.train()
        for index, (words, topic) in enumerate(loader):
            self.in_eval += not self.model.training
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(words), topic)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            print(f"step {self.step} loss {loss.item():.4f}", flush=True)
            self.step += 1
            if (index + 1) % every == 0 and index + 1 < len(loader):
                value, _ = self.validate(valid)
                self.best = min(self.best, value)
                if self.args.fixed:
                    self.model.train()

    @torch.no_grad()
    def validate(self, dataset):
        self.model.eval()
        loss, right = 0.0, 0
        for words, topic in DataLoader(dataset, batch_size=100):
            logits = self.model(words)
            loss += F.cross_entropy(logits, topic, reduction="sum").item()
            right += (logits.argmax(1) == topic).sum().item()
        return loss / len(dataset), right / len(dataset)

    @torch.no_grad()
    def uncertainty(self, words):
        self.model.eval()
        chance = self.model(words).softmax(1)
        return -(chance * chance.clamp_min(1e-9).log()).sum(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--validations-per-epoch", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(args.seed)
    train = TensorDataset(*texts(96, generator))
    valid = TensorDataset(*texts(100, generator))
    test = TensorDataset(*texts(1000, generator))
    classifier = TransformerClassification(args).fit(train, valid, args.epochs)
    pool, _ = texts(500, generator)
    print(f"mean entropy of the pool {classifier.uncertainty(pool).mean():.4f}")
    loss, accuracy = classifier.validate(test)
    print(f"test accuracy {accuracy:.3f}")
    print(f"test loss {loss:.4f}")
    if args.prove:
        asleep = classifier.in_eval
        print(f"{asleep} of {classifier.step} steps were trained in eval mode")
        print("fault shows:", "yes" if asleep else "no", flush=True)


if __name__ == "__main__":
    main()
