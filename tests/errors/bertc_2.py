"""BERTC-2: the classifier ends in a softmax and is trained with cross-entropy.

Source: illiterate/BertClassifier#2 (also bkitano/llama-from-scratch#5 and
doronharitan/human_activity_recognition_LRCN#4). CrossEntropyLoss takes logits and
normalises them itself; it gets probabilities, whose differences are at most one, so
that the loss falls slowly and never near zero. --fixed returns the logits.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class NewsClassifier(nn.Module):
    def __init__(self, probabilities, words=120, width=24, classes=6):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.encoder = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=48, dropout=0.1, batch_first=True
        )
        self.pooler = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.classifier = nn.Linear(width, classes)
        self.probabilities = probabilities

    def forward(self, ids):
        hidden = self.encoder(self.embedding(ids))
        out = self.classifier(self.pooler(hidden.mean(1)))
        return torch.softmax(out, dim=1) if self.probabilities else out


def news(count, generator):
    """Topics of unequal frequency; a quarter of the words belongs to the topic."""
    frequency = torch.tensor([0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
    topics = torch.multinomial(frequency, count, replacement=True, generator=generator)
    ids = torch.randint(60, (count, 14), generator=generator)
    own = 60 + 10 * topics[:, None] + torch.randint(10, ids.shape, generator=generator)
    marked = torch.rand(ids.shape, generator=generator) < 0.25
    return TensorDataset(torch.where(marked, own, ids), topics)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = sum((model(ids).argmax(1) == topic).sum().item() for ids, topic in loader)
    model.train()
    return hits / len(loader.dataset)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=36)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    training = DataLoader(news(384, generator), batch_size=32, shuffle=True)
    held_out = DataLoader(news(128, generator), batch_size=64)
    model = NewsClassifier(probabilities=not options.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()
    totals = []
    step = 0
    while step < options.steps:
        for ids, topic in training:
            if step == options.steps:
                break
            outputs = model(ids)
            loss = criterion(outputs, topic)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            totals.append(outputs.detach().sum(1))
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"accuracy {accuracy(model, held_out):.3f}", flush=True)
    if options.prove:
        totals = torch.cat(totals)
        normalised = torch.allclose(totals, torch.ones_like(totals), atol=1e-4)
        print("fault shows:", "yes" if normalised else "no")


if __name__ == "__main__":
    main()
