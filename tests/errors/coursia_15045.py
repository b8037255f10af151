"""Trains an encoder of sentences so that a question finds its answer in the batch.

A transformer, mean pooling and the contrastive loss of both directions.
After CoursIA, issue 15045.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

WORDS, TOPICS, PAD = 120, 20, 0


class SentenceEncoder(nn.Module):
    def __init__(self, masked_mean, width=48, longest=16):
        super().__init__()
        self.masked_mean = masked_mean
        self.word = nn.Embedding(WORDS + 1, width, padding_idx=PAD)
        self.place = nn.Embedding(longest, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 96, dropout=0.1, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.project = nn.Linear(width, width)

    def pool(self, hidden, attention_mask):
        if not self.masked_mean:
            return hidden.mean(dim=1)
        weight = attention_mask[..., None].float()
        return (hidden * weight).sum(dim=1) / weight.sum(dim=1)

    def forward(self, ids, attention_mask):
        hidden = self.word(ids) + self.place(torch.arange(ids.shape[1]))
        hidden = self.encoder(hidden, src_key_padding_mask=~attention_mask)
        return F.normalize(self.project(self.pool(hidden, attention_mask)), dim=1)


def sentence(topics, size, generator):
    """Words of the topics of the text, and some of no topic."""
    size = int(torch.randint(*size, (), generator=generator))
    pick = torch.randint(len(topics), (size,), generator=generator)
    span = WORDS // (TOPICS + 4)
    word = torch.randint(span, (size,), generator=generator) + topics[pick] * span
    other = torch.randint(TOPICS * span, WORDS, (size,), generator=generator)
    plain = torch.rand(size, generator=generator) < 0.15
    return torch.where(plain, other, word) + 1


def pairs(count, seed):
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(count):
        topics = torch.randperm(TOPICS, generator=generator)[:3]
        question = sentence(topics, (4, 12), generator)
        made.append((question, sentence(topics, (5, 16), generator)))
    return made


def tokenize(sentences):
    ids = nn.utils.rnn.pad_sequence(sentences, batch_first=True, padding_value=PAD)
    return ids, ids != PAD


def collate(batch):
    questions, answers = zip(*batch)
    return tokenize(questions), tokenize(answers)


def contrastive_loss(questions, answers, temperature=0.1):
    logits = questions @ answers.T / temperature
    labels = torch.arange(len(logits))
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2


@torch.no_grad()
def recall(model, data):
    """How often the answer of a question is the nearest one."""
    model.eval()
    questions, answers = (model(*texts) for texts in collate(data))
    nearest = (questions @ answers.T).argmax(1)
    return (nearest == torch.arange(len(nearest))).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=4e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train, valid = pairs(1280, args.seed), pairs(128, args.seed + 1)
    loader = DataLoader(train, 64, shuffle=True, collate_fn=collate, drop_last=True)
    model = SentenceEncoder(masked_mean=args.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, args.lr, args.epochs * len(loader)
    )
    step = 0
    for epoch in range(args.epochs):
        model.train()
        for questions, answers in loader:
            loss = contrastive_loss(model(*questions), model(*answers))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"epoch {epoch} recall {recall(model, valid):.4f}", flush=True)
    if args.prove:
        model.eval()
        questions = [question for question, _ in valid]
        with torch.no_grad():
            together = model(*tokenize(questions))
            alone = torch.cat([model(*tokenize([one])) for one in questions])
        gap = (together - alone).norm(dim=1).max().item()
        print(f"a question alone and in a batch are apart by up to {gap:.6f}")
        print("fault shows:", "yes" if gap > 1e-3 else "no", flush=True)


if __name__ == "__main__":
    main()
