"""Train a bi-encoder for question -> passage retrieval with hardest in-batch negatives.

Large batches are needed to find hard negatives, so the passages are encoded first without a
graph and the loss then walks over the batch in slices.
"""
import argparse

import torch
import torch.nn.functional as F
from torch import nn

TOPICS, ASPECTS, SYNONYMS, NOISE_WORDS = 24, 12, 2, 40
VOCAB = 1 + (TOPICS + ASPECTS) * SYNONYMS * 2 + NOISE_WORDS


def word(kind, idx, synonym, side):
    base = 1 + (0 if kind == "topic" else TOPICS * SYNONYMS * 2)
    return base + idx * SYNONYMS * 2 + side * SYNONYMS + synonym


class QADataset:
    """A question has a topic and two aspects; its passage says the same with other words."""

    def __init__(self, size, seed):
        g = torch.Generator().manual_seed(seed)
        r = lambda hi: int(torch.randint(0, hi, (1,), generator=g))
        self.pairs, facts = [], set()
        while len(self.pairs) < size:
            fact = (r(TOPICS), *sorted((r(ASPECTS), r(ASPECTS))))
            if fact in facts:
                continue
            facts.add(fact)
            texts = []
            for side, extra in ((0, 1), (1, 3)):
                ids = [word("topic", fact[0], r(SYNONYMS), side)]
                ids += [word("aspect", a, r(SYNONYMS), side) for a in fact[1:]]
                ids += [VOCAB - 1 - r(NOISE_WORDS) for _ in range(extra)]
                texts.append(torch.tensor(ids)[torch.randperm(len(ids), generator=g)])
            self.pairs.append(tuple(texts))

    def __len__(self):
        return len(self.pairs)

    def collate(self, indices):
        anchors = torch.stack([self.pairs[i][0] for i in indices])
        positives = torch.stack([self.pairs[i][1] for i in indices])
        return {"input_ids": anchors}, {"input_ids": positives}


class Encoder(nn.Module):
    def __init__(self, width=64, out=48):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width, padding_idx=0)
        self.attn = nn.Linear(width, 1)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, out)
        )

    def forward(self, features):
        x = self.embed(features["input_ids"])
        weight = self.attn(x).softmax(1)
        return F.normalize(self.mlp((weight * x).sum(1)), dim=-1)


class MegaBatchLoss(nn.Module):
    """Anchor and positive closer than `positive_margin`, hardest negative below `negative_margin`."""

    def __init__(
        self,
        model,
        mini_batch_size,
        positive_margin=0.8,
        negative_margin=0.3,
        use_anchor_count=False,
    ):
        super().__init__()
        self.model = model
        self.mini_batch_size = mini_batch_size
        self.positive_margin, self.negative_margin = positive_margin, negative_margin
        self.use_anchor_count = use_anchor_count

    def margins(self, anchor, positive, negative):
        pos = (anchor * positive).sum(-1)
        neg = (anchor * negative).sum(-1)
        return (
            F.relu(self.positive_margin - pos) + F.relu(neg - self.negative_margin)
        ).mean()

    def forward(self, anchors, positives):
        total = len(anchors["input_ids"])
        with torch.no_grad():
            self.model.eval()
            all_positive = self.model(positives)
            self.model.train()
        diagonal = torch.eye(total)
        for start in range(0, total, self.mini_batch_size):
            end = start + self.mini_batch_size
            anchor_emb = self.model({k: v[start:end] for k, v in anchors.items()})
            with torch.no_grad():
                scores = anchor_emb @ all_positive.T
                hardest = (scores - 2 * diagonal[start:end]).argmax(1)
            positive_emb = self.model({k: v[start:end] for k, v in positives.items()})
            negative_emb = self.model({k: v[hardest] for k, v in positives.items()})
            loss = self.margins(anchor_emb, positive_emb, negative_emb)
            rows = total if self.use_anchor_count else len(scores)
            if end < rows:
                loss.backward()
        return loss

    def forward_whole(self, anchors, positives):
        """Same objective without slices: needs the graph of the full batch."""
        a, p = self.model(anchors), self.model(positives)
        hardest = (a @ p.T - 2 * torch.eye(len(a))).argmax(1)
        return self.margins(a, p, p[hardest])


@torch.no_grad()
def recall(model, data, k=(1, 10)):
    model.eval()
    a, p = data.collate(range(len(data)))
    ranking = (model(a) @ model(p).T).argsort(1, descending=True)
    position = (ranking == torch.arange(len(data))[:, None]).float().argmax(1)
    model.train()
    return [(position < n).float().mean().item() for n in k]


def flat_gradient(model, loss):
    model.zero_grad()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def gradient_gap(model, criterion, batch):
    """Relative distance between the sliced gradient and the one of the whole batch."""
    slices = -(-len(batch[0]["input_ids"]) // criterion.mini_batch_size)
    whole = flat_gradient(model, criterion.forward_whole(*batch))
    model.zero_grad()
    criterion(*batch).backward()
    sliced = torch.cat([p.grad.flatten() for p in model.parameters()]) / slices
    return ((sliced - whole).norm() / whole.norm()).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--mini-batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    train, test = QADataset(1500, 1), QADataset(300, 2)
    model = Encoder()
    criterion = MegaBatchLoss(model, args.mini_batch_size, use_anchor_count=args.fixed)
    gap = (
        gradient_gap(model, criterion, train.collate(range(args.batch_size)))
        if args.prove
        else None
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LinearLR(
        optimizer, 1.0, 0.05, total_iters=args.steps
    )

    order = torch.Generator().manual_seed(5)
    for step in range(args.steps):
        picked = torch.randperm(len(train), generator=order)[: args.batch_size].tolist()
        optimizer.zero_grad()
        loss = criterion(*train.collate(picked))
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 40 == 0 or step == args.steps - 1:
            r1, r10 = recall(model, test)
            print(
                f"step {step:4d}  loss {loss.item():.4f}  recall@1 {r1:.3f}  recall@10 {r10:.3f}"
            )

    if args.prove:
        print(
            f"gradient of the untrained model, sliced against whole batch: off by {gap:.4f}"
        )
        print("fault shows:", "yes" if gap > 0.01 else "no")


if __name__ == "__main__":
    main()
