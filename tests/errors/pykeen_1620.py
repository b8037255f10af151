"""DistMult on a small knowledge graph, evaluated as a classifier of triples."""

import argparse
import logging
import pathlib
import tempfile
from collections import defaultdict

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

logger = logging.getLogger(__name__)

COL_HEAD, COL_REL, COL_TAIL = 0, 1, 2


class TriplesFactory:
    """ID-mapped triples with a train and a test part."""

    def __init__(self, mapped_triples, num_entities, num_relations):
        self.mapped_triples = mapped_triples
        self.num_entities = num_entities
        self.num_relations = num_relations

    @classmethod
    def generate(cls, num_entities=60, num_relations=6, rank=5, seed=0):
        rng = np.random.default_rng(seed)
        e = rng.normal(size=(num_entities, rank))
        r = rng.normal(size=(num_relations, rank))
        scores = np.einsum("hd,rd,td->hrt", e, r, e)
        cut = np.quantile(scores, 0.90, axis=(0, 2), keepdims=True)
        triples = torch.tensor(np.argwhere(scores > cut))
        keep = torch.tensor(rng.random(len(triples)) < 0.9)
        return cls(triples[keep], num_entities, num_relations)

    def split(self, ratio, seed):
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(self.mapped_triples), generator=generator)
        cut = int(len(order) * ratio)
        return [
            TriplesFactory(
                self.mapped_triples[part], self.num_entities, self.num_relations
            )
            for part in (order[:cut], order[cut:])
        ]


class DistMult(nn.Module):
    def __init__(self, factory, dim=32):
        super().__init__()
        self.entity = nn.Embedding(factory.num_entities, dim)
        self.relation = nn.Embedding(factory.num_relations, dim)
        nn.init.normal_(self.entity.weight, std=0.3)
        nn.init.normal_(self.relation.weight, std=0.6)

    def score_hrt(self, hrt):
        h, t = self.entity(hrt[..., COL_HEAD]), self.entity(hrt[..., COL_TAIL])
        return (h * self.relation(hrt[..., COL_REL]) * t).sum(-1)

    def score_t(self, hr):
        query = self.entity(hr[:, 0]) * self.relation(hr[:, 1])
        return query @ self.entity.weight.t()


class BasicNegativeSampler:
    def __init__(self, factory, num_negs, generator):
        self.factory, self.num_negs, self.generator = factory, num_negs, generator

    def sample(self, positives):
        negatives = positives.repeat_interleave(self.num_negs, 0)
        cut = len(negatives) // 2
        for column, rows in ((COL_HEAD, slice(0, cut)), (COL_TAIL, slice(cut, None))):
            negatives[rows, column] = torch.randint(
                self.factory.num_entities,
                (len(negatives[rows]),),
                generator=self.generator,
            )
        return negatives


class LCWAEvaluationDataset(Dataset):
    """Groups triples by (head, relation); each item lists its true tails."""

    def __init__(self, factory):
        tails = defaultdict(list)
        for h, r, t in factory.mapped_triples.tolist():
            tails[h, r].append(t)
        self.pairs = sorted(tails)
        self.tails = [tails[pair] for pair in self.pairs]

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, item):
        return self.pairs[item], self.tails[item]

    @staticmethod
    def collate(items):
        batch = torch.tensor([pair for pair, _ in items])
        rows = [
            (batch_id, entity_id)
            for batch_id, (_, tails) in enumerate(items)
            for entity_id in tails
        ]
        return batch, torch.tensor(rows)


class ClassificationEvaluator:
    """Collects dense scores and masks, and computes metrics over all of them."""

    def __init__(self):
        self.scores, self.positives = [], []

    def process_scores(self, scores, dense_positive_mask):
        self.scores.append(scores.flatten())
        self.positives.append(dense_positive_mask.flatten())

    def finalize(self):
        scores = torch.cat(self.scores)
        positives = torch.cat(self.positives)
        order = scores.argsort(descending=True)
        hits = positives[order].double()
        precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1)
        count = hits.sum()
        ranks = torch.empty(len(scores), dtype=torch.double)
        ranks[order.flip(0)] = torch.arange(1, len(scores) + 1, dtype=torch.double)
        negatives = len(scores) - count
        auc = (ranks[positives].sum() - count * (count + 1) / 2) / (count * negatives)
        return {
            "accuracy": ((scores > 0) == positives).double().mean().item(),
            "average_precision": ((precision * hits).sum() / count).item(),
            "roc_auc": auc.item(),
        }


class LCWAEvaluationLoop:
    def __init__(self, model, factory, batch_size=32, fixed=False):
        self.model, self.factory, self.fixed = model, factory, fixed
        dataset = LCWAEvaluationDataset(factory)
        self.loader = DataLoader(dataset, batch_size, collate_fn=dataset.collate)

    @torch.inference_mode()
    def evaluate(self):
        self.model.eval()
        evaluator = ClassificationEvaluator()
        for batch, filter_batch in self.loader:
            scores = self.model.score_t(batch)
            mask = torch.zeros_like(scores, dtype=torch.bool)
            if self.fixed:
                mask[filter_batch[:, 0], filter_batch[:, 1]] = True
            else:
                mask[filter_batch[:, 0], filter_batch[:, 0]] = True
            evaluator.process_scores(scores, mask)
        self.model.train()
        return evaluator.finalize()


class EarlyStopper:
    def __init__(self, metric, patience, path):
        self.metric, self.patience, self.path = metric, patience, path
        self.best, self.remaining, self.best_epoch = float("-inf"), patience, 0

    def should_stop(self, model, results, epoch):
        value = results[self.metric]
        if value > self.best:
            self.best, self.remaining, self.best_epoch = value, self.patience, epoch
            torch.save(model.state_dict(), self.path)
            return False
        self.remaining -= 1
        return self.remaining <= 0


class SLCWATrainingLoop:
    def __init__(self, model, factory, sampler, args):
        self.model, self.sampler, self.args = model, sampler, args
        generator = torch.Generator().manual_seed(args.seed)
        self.loader = DataLoader(
            factory.mapped_triples, args.batch_size, shuffle=True, generator=generator
        )
        self.optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
        self.steps = 0

    def train_epoch(self):
        total = 0.0
        for positives in self.loader:
            negatives = self.sampler.sample(positives)
            pos, neg = self.model.score_hrt(positives), self.model.score_hrt(negatives)
            loss = F.softplus(-pos).mean() + F.softplus(neg).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.steps += 1
            total += loss.item()
        return total / len(self.loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--num-negs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--frequency", type=int, default=4)
    parser.add_argument("--patience", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(args.seed)

    factory = TriplesFactory.generate(seed=args.seed)
    training, validation = factory.split(0.85, args.seed)
    model = DistMult(factory)
    generator = torch.Generator().manual_seed(args.seed + 1)
    sampler = BasicNegativeSampler(training, args.num_negs, generator)
    loop = SLCWATrainingLoop(model, training, sampler, args)
    evaluation = LCWAEvaluationLoop(model, validation, fixed=args.fixed)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "best.pt")
        stopper = EarlyStopper("roc_auc", args.patience, path)
        for epoch in range(1, args.epochs + 1):
            loss = loop.train_epoch()
            if epoch % args.frequency:
                continue
            results = evaluation.evaluate()
            text = "  ".join(f"{k} {v:.4f}" for k, v in results.items())
            logger.info("epoch %2d  loss %.4f  %s", epoch, loss, text)
            if stopper.should_stop(model, results, epoch):
                logger.info("stopping early after epoch %d", epoch)
                break
        model.load_state_dict(torch.load(path))
    with torch.no_grad():
        held_out = F.softplus(-model.score_hrt(validation.mapped_triples)).mean()
    logger.info(
        "steps %d  best epoch %d  best %s %.4f  held-out positive loss %.4f",
        loop.steps,
        stopper.best_epoch,
        stopper.metric,
        stopper.best,
        held_out.item(),
    )


if __name__ == "__main__":
    main()
