"""Sentence embeddings by contrast, with a head that detects replaced tokens.

After voidism/DiffCSE, issue 25.
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PAD, VOCAB, TOPICS = 0, 60, 6


class Sentences(Dataset):
    """Each sentence has a topic; a topic prefers ten neighbouring words."""

    def __init__(self, count, seed):
        gen = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(count):
            topic = int(torch.randint(TOPICS, (1,), generator=gen))
            long = torch.rand(1, generator=gen) < 0.25
            low, high = (16, 28) if long else (4, 9)
            length = int(torch.randint(low, high, (1,), generator=gen))
            words = 1 + topic * 9 + torch.randint(10, (length,), generator=gen)
            self.items.append((words, topic))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate(batch, width=None):
    width = width or max(len(words) for words, _ in batch)
    ids = torch.full((len(batch), width), PAD)
    for row, (words, _) in enumerate(batch):
        ids[row, : len(words)] = words
    return ids, (ids != PAD).long(), torch.tensor([topic for _, topic in batch])


class Encoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.layer = nn.TransformerEncoderLayer(
            dim, 4, dim * 2, dropout=0.1, batch_first=True
        )

    def forward(self, ids, mask, condition=None):
        x = self.embed(ids)
        if condition is not None:
            x = x + condition[:, None]
        return self.layer(x, src_key_padding_mask=mask == 0)


class DiffCSE(nn.Module):
    def __init__(self, dim=32, temperature=0.1):
        super().__init__()
        self.encoder = Encoder(dim)
        self.discriminator = Encoder(dim)
        self.rtd_head = nn.Linear(dim, 2)
        self.temperature = temperature

    def embed(self, ids, mask):
        hidden = self.encoder(ids, mask)
        weight = mask[..., None].float()
        return (hidden * weight).sum(1) / weight.sum(1)

    def rtd_loss(self, scores, replaced, mask):
        labels = replaced.long()
        accuracy = ((scores.argmax(-1) == labels) * mask).sum() / mask.sum()
        return F.cross_entropy(scores.view(-1, 2), labels.view(-1)), accuracy

    def forward(self, ids, mask, generated):
        one, two = self.embed(ids, mask), self.embed(ids, mask)
        similarity = F.cosine_similarity(one[:, None], two[None], dim=-1)
        contrastive = F.cross_entropy(
            similarity / self.temperature, torch.arange(len(ids))
        )
        replaced = (generated != ids) * mask
        scores = self.rtd_head(self.discriminator(generated * mask, mask, one))
        rtd, accuracy = self.rtd_loss(scores, replaced, mask)
        return contrastive, rtd, accuracy


class MaskedDiffCSE(DiffCSE):
    def rtd_loss(self, scores, replaced, mask):
        labels = replaced.long()
        accuracy = ((scores.argmax(-1) == labels) * mask).sum() / mask.sum()
        labels = labels.masked_fill(mask == 0, -100)
        return F.cross_entropy(scores.view(-1, 2), labels.view(-1)), accuracy


def generate(ids, mask, ratio=0.3):
    """Stands for the frozen generator: replaces part of the words."""
    chosen = (torch.rand(ids.shape) < ratio) & (mask == 1)
    return torch.where(chosen, torch.randint(1, VOCAB, ids.shape), ids)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    vectors, topics = [], []
    for ids, mask, topic in loader:
        vectors.append(F.normalize(model.embed(ids, mask), dim=-1))
        topics.append(topic)
    model.train()
    vectors, topics = torch.cat(vectors), torch.cat(topics)
    near = (vectors @ vectors.T - 2 * torch.eye(len(vectors))).argmax(1)
    return (topics[near] == topics).float().mean().item()


def train(args, model):
    data = DataLoader(
        Sentences(512, 1),
        args.batch_size,
        shuffle=True,
        collate_fn=collate,
        drop_last=True,
    )
    held = DataLoader(Sentences(128, 2), 64, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    step = 0
    while step < args.steps:
        for ids, mask, _ in data:
            contrastive, rtd, accuracy = model(ids, mask, generate(ids, mask))
            loss = contrastive + args.lambda_weight * rtd
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(
                    f"step {step} contrastive {contrastive.item():.3f} "
                    f"rtd {rtd.item():.3f} accuracy {accuracy.item():.3f}",
                    flush=True,
                )
            step += 1
            if step == args.steps:
                break
    print(f"neighbour accuracy {evaluate(model, held):.3f}", flush=True)


def change_by_padding(model):
    """Of the detection's gradient, where batches are padded to 16 instead of 8."""
    model.eval()
    items = [(words[:8], topic) for words, topic in Sentences(32, 3).items]
    ids, mask, _ = collate(items, 8)
    generated, grads = generate(ids, mask), []
    for width in (8, 16):
        wide = [F.pad(part, (0, width - 8)) for part in (ids, mask, generated)]
        model.zero_grad()
        model(*wide)[1].backward()
        grads.append(model.rtd_head.weight.grad.clone())
    return ((grads[0] - grads[1]).norm() / grads[0].norm()).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--lambda-weight", type=float, default=0.5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = MaskedDiffCSE() if args.fixed else DiffCSE()
    train(args, model)
    if args.prove:
        change = change_by_padding(model)
        print(f"padding to 16 instead of 8 changes the gradient by {change:.4f}")
        print("fault shows:", "yes" if change > 0.01 else "no", flush=True)


if __name__ == "__main__":
    main()
