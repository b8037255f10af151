"""TransE on a synthetic knowledge graph, with validation, early stopping and test of the best model."""
import argparse
import math

import torch
import torch.nn as nn


class TransE(nn.Module):
    def __init__(self, n_ent, n_rel, dim=32, margin=2.0):
        super().__init__()
        self.ent = nn.Embedding(n_ent, dim)
        self.rel = nn.Embedding(n_rel, dim)
        nn.init.xavier_uniform_(self.ent.weight)
        nn.init.xavier_uniform_(self.rel.weight)
        self.margin = margin

    def score(self, h, r, t):
        e_h = nn.functional.normalize(self.ent(h), dim=-1)
        e_t = nn.functional.normalize(self.ent(t), dim=-1)
        return (e_h + self.rel(r) - e_t).abs().sum(-1)

    def forward(self, pos, neg):
        p = self.score(*pos.unbind(-1))
        n = self.score(*neg.unbind(-1))
        return torch.relu(p[:, None] - n + self.margin).mean()


def build_graph(n_ent=150, n_rel=8, n_fact=2400, seed=0):
    g = torch.Generator().manual_seed(seed)
    place = torch.randn(n_ent, 6, generator=g)
    move = torch.randn(n_rel, 6, generator=g)
    facts = set()
    while len(facts) < n_fact:
        h = int(torch.randint(n_ent, (1,), generator=g))
        r = int(torch.randint(n_rel, (1,), generator=g))
        d = (place[h] + move[r] - place).pow(2).sum(-1)
        d[h] = 1e9
        t = int(d.topk(12, largest=False).indices[torch.randint(12, (1,), generator=g)])
        if torch.rand(1, generator=g) < 0.15:
            t = int(torch.randint(n_ent, (1,), generator=g))
        facts.add((h, r, t))
    facts = torch.tensor(sorted(facts))
    facts = facts[torch.randperm(len(facts), generator=g)]
    return facts[:600], facts[600:1500], facts[1500:], n_ent, n_rel


class TrainDataLoader:
    def __init__(self, triples, n_ent, batch_size, neg_ent):
        self.triples, self.n_ent, self.bs, self.neg = (
            triples,
            n_ent,
            batch_size,
            neg_ent,
        )

    def __len__(self):
        return math.ceil(len(self.triples) / self.bs)

    def __iter__(self):
        order = torch.randperm(len(self.triples))
        for i in range(0, len(order), self.bs):
            pos = self.triples[order[i : i + self.bs]]
            neg = pos[:, None].repeat(1, self.neg, 1)
            where = torch.rand(neg.shape[:2]) < 0.5
            fake = torch.randint(self.n_ent, neg.shape[:2])
            neg[..., 0] = torch.where(where, fake, neg[..., 0])
            neg[..., 2] = torch.where(where, neg[..., 2], fake)
            yield pos, neg


@torch.no_grad()
def mean_reciprocal_rank(model, triples, n_ent):
    h, r, t = triples.unbind(-1)
    ents = torch.arange(n_ent)
    s = model.score(h[:, None], r[:, None], ents[None])
    rank = (s < s.gather(1, t[:, None])).sum(1) + 1
    return (1.0 / rank).mean().item()


class Trainer:
    def __init__(self, model, loader, valid, n_ent, args):
        self.trainModel = model
        self.loader, self.valid, self.n_ent = loader, valid, n_ent
        self.args = args
        self.optimizer = torch.optim.Adam(model.parameters(), lr=args.alpha)
        self.best_score = -1.0
        self.best_model = None
        self.best_epoch = -1

    def keep_best(self, score, epoch):
        self.best_score, self.best_epoch = score, epoch
        if self.args.fixed:
            self.best_model = {
                k: v.clone() for k, v in self.trainModel.state_dict().items()
            }
        else:
            self.best_model = self.trainModel.state_dict()

    def run(self):
        step, epoch, bad = 0, 0, 0
        while step < self.args.steps and bad < self.args.early_stopping_patience:
            total = 0.0
            for pos, neg in self.loader:
                self.optimizer.zero_grad()
                loss = self.trainModel(pos, neg)
                loss.backward()
                self.optimizer.step()
                total += loss.item()
                step += 1
                if step >= self.args.steps:
                    break
            mrr = mean_reciprocal_rank(self.trainModel, self.valid, self.n_ent)
            print(
                "epoch %d  step %d  loss %.4f  valid mrr %.4f"
                % (epoch, step, total / len(self.loader), mrr)
            )
            if mrr > self.best_score:
                self.keep_best(mrr, epoch)
                bad = 0
            else:
                bad += 1
            epoch += 1
        self.trainModel.load_state_dict(self.best_model)
        print(
            "best epoch %d of %d (valid mrr %.4f)"
            % (self.best_epoch, epoch, self.best_score)
        )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--alpha", type=float, default=0.02)
    ap.add_argument("--batch_size", type=int, default=60)
    ap.add_argument("--neg_ent", type=int, default=20)
    ap.add_argument("--early_stopping_patience", type=int, default=6)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(2)

    train, valid, test, n_ent, n_rel = build_graph()
    model = TransE(n_ent, n_rel)
    trainer = Trainer(
        model,
        TrainDataLoader(train, n_ent, args.batch_size, args.neg_ent),
        valid,
        n_ent,
        args,
    )
    trainer.run()
    print(
        "test mrr of the returned model %.4f" % mean_reciprocal_rank(model, test, n_ent)
    )

    if args.prove:
        now = mean_reciprocal_rank(model, valid, n_ent)
        print(
            "valid mrr: best seen %.6f, returned model %.6f" % (trainer.best_score, now)
        )
        print("fault shows:", "yes" if abs(now - trainer.best_score) > 1e-6 else "no")


if __name__ == "__main__":
    main()
