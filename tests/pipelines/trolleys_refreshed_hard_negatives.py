"""Search for shop trolleys' goods: a two-encoder retriever with hard negatives from a stale index.

First some rounds with negatives from the batch. After that, every `refresh` steps all products are
embedded anew (without gradient), and until the next refresh the hard negatives of a query are its
nearest products in that index, minus everything that answers it. The loss jumps up when hard
negatives begin, by design; the judge is the MRR over the whole catalogue.
"""
import argparse
import copy
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F


class Catalogue:
    """Products are bags of attribute words; a query names some of them in the shoppers' own words."""

    def __init__(self, cfg):
        g = torch.Generator().manual_seed(cfg["data_seed"])
        self.cfg, n, a = cfg, cfg["products"], cfg["attributes"]
        # four attributes of 12 values each, and two products of a family may share all but one of them
        family = torch.randint(12, (n // 4, a), generator=g).repeat_interleave(4, 0)
        change = torch.randint(a, (n,), generator=g)
        value = torch.randint(12, (n,), generator=g)
        values = family.clone()
        values[torch.arange(n), change] = value
        self.values = values
        self.product_words = values + 12 * torch.arange(a)  # the shop's words
        slang = torch.stack([torch.randperm(12, generator=g) for _ in range(a)])
        self.query_word = slang + 12 * torch.arange(a).unsqueeze(
            1
        )  # the shoppers' words
        self.same = (values.unsqueeze(0) == values.unsqueeze(1)).all(
            2
        )  # twins answer the same query

    def queries(self, product, gen):
        meant = self.values[product]
        slip = (
            torch.rand(meant.shape, generator=gen) < self.cfg["slips"]
        )  # shoppers misremember
        meant = torch.where(slip, torch.randint(12, meant.shape, generator=gen), meant)
        words = torch.stack(
            [self.query_word[i][meant[:, i]] for i in range(self.cfg["attributes"])], 1
        )
        words = words[
            :, torch.randperm(words.shape[1], generator=gen)
        ]  # order carries nothing
        noise = 12 * self.cfg["attributes"] + torch.randint(
            self.cfg["filler"], (len(words), 2), generator=gen
        )
        return torch.cat([words, noise], 1)


CFG = {
    "products": 480,
    "attributes": 4,
    "filler": 20,
    "slips": 0.12,
    "dim": 32,
    "hidden": 64,
    "batch": 48,
    "steps": 360,
    "warm_negatives": 100,
    "refresh": 40,
    "hard": 4,
    "depth": 20,
    "lr": 4e-3,
    "lr_warmup": 20,
    "temperature": 0.1,
    "eval_every": 40,
    "patience": 4,
    "data_seed": 53,
    "seed": 54,
}


class Tower(nn.Module):
    def __init__(self, vocab, cfg):
        super().__init__()
        self.bag = nn.EmbeddingBag(vocab, cfg["dim"], mode="mean")
        self.net = nn.Sequential(
            nn.Linear(cfg["dim"], cfg["hidden"]),
            nn.GELU(),
            nn.Linear(cfg["hidden"], cfg["dim"]),
        )

    def forward(self, words):
        x = self.bag(words)
        return F.normalize(x + self.net(x), dim=1)


class Retriever(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        own = 12 * cfg["attributes"]
        self.query, self.product = Tower(own + cfg["filler"], cfg), Tower(own, cfg)
        self.log_temp = nn.Parameter(torch.tensor(cfg["temperature"]).log())

    def scale(self):
        return (-self.log_temp).exp().clamp(max=50.0)


class StaleIndex:
    """Product vectors as of the last refresh; old on purpose."""

    def __init__(self, catalogue):
        self.catalogue, self.vectors, self.born = catalogue, None, None

    @torch.no_grad()
    def refresh(self, model, step):
        was = model.training
        model.eval()
        self.vectors, self.born = model.product(self.catalogue.product_words), step
        model.train(was)

    @torch.no_grad()
    def hard_negatives(self, q, positives, depth, k):
        sim = q.detach() @ self.vectors.T
        sim[self.catalogue.same[positives]] = -2.0  # neither the answer nor its twins
        near = sim.topk(depth, dim=1).indices
        pick = (
            torch.rand(near.shape).topk(k, dim=1).indices
        )  # some of the nearest, not always the same
        return near.gather(1, pick)


@torch.no_grad()
def mrr(model, catalogue, queries, answers):
    model.eval()
    sim = model.query(queries) @ model.product(catalogue.product_words).T
    right = catalogue.same[answers]
    top = sim.masked_fill(~right, -2.0).amax(1, keepdim=True)
    rank = 1 + ((sim > top) & ~right).sum(1)
    model.train()
    return (1.0 / rank).mean().item(), (rank == 1).float().mean().item()


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg["seed"])
        self.cat = Catalogue(cfg)
        self.model = Retriever(cfg)
        self.opt = torch.optim.AdamW(
            [
                {
                    "params": [
                        *self.model.query.parameters(),
                        *self.model.product.parameters(),
                    ],
                    "weight_decay": 1e-3,
                },
                {
                    "params": [self.model.log_temp],
                    "lr": cfg["lr"] / 4,
                    "weight_decay": 0.0,
                },
            ],
            lr=cfg["lr"],
        )
        self.sched = torch.optim.lr_scheduler.LambdaLR(
            self.opt,
            lambda s: min(1.0, (s + 1) / cfg["lr_warmup"])
            * max(0.1, 1 - s / cfg["steps"]),
        )
        self.index = StaleIndex(self.cat)
        g = torch.Generator().manual_seed(cfg["data_seed"] + 1)
        ids = torch.randint(cfg["products"], (600,), generator=g)
        q = self.cat.queries(ids, g)
        self.valid, self.test = (q[:300], ids[:300]), (q[300:], ids[300:])
        self.gen = torch.Generator().manual_seed(cfg["seed"] + 1)
        self.best, self.bad, self.state = -1.0, 0, None

    def loss(self, step):
        cfg, cat = self.cfg, self.cat
        pos = torch.randperm(cfg["products"], generator=self.gen)[: cfg["batch"]]
        q = self.model.query(cat.queries(pos, self.gen))
        p = self.model.product(cat.product_words[pos])
        logits = self.model.scale() * (q @ p.T)
        twins = cat.same[pos][:, pos] & ~torch.eye(len(pos), dtype=torch.bool)
        logits = logits.masked_fill(
            twins, float("-inf")
        )  # a twin in the batch is not a negative
        if step >= cfg["warm_negatives"]:
            if (step - cfg["warm_negatives"]) % cfg["refresh"] == 0:
                self.index.refresh(self.model, step)
            neg = self.index.hard_negatives(q, pos, cfg["depth"], cfg["hard"])
            assert not cat.same[pos].gather(1, neg).any()
            n = self.model.product(cat.product_words[neg.flatten()]).view(
                len(pos), cfg["hard"], -1
            )  # with gradient
            logits = torch.cat(
                [logits, self.model.scale() * torch.einsum("bd,bkd->bk", q, n)], 1
            )
        return F.cross_entropy(logits, torch.arange(len(pos)))

    def fit(self, steps):
        for step in range(steps):
            loss = self.loss(step)
            assert torch.isfinite(loss), step
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            self.sched.step()
            if (step + 1) % self.cfg["eval_every"] == 0 or step == steps - 1:
                value, first = mrr(self.model, self.cat, *self.valid)
                age = step - self.index.born if self.index.born is not None else None
                print(
                    f"step {step + 1:4d} loss {loss.item():.4f} MRR {value:.4f} P@1 {first:.4f} index age {age}"
                )
                if value > self.best:
                    self.best, self.bad, self.state = (
                        value,
                        0,
                        copy.deepcopy(self.model.state_dict()),
                    )
                else:
                    self.bad += 1
                    if (
                        self.bad >= self.cfg["patience"]
                        and step > self.cfg["warm_negatives"]
                    ):
                        print("no better for a while, stopping")
                        break
        self.model.load_state_dict(self.state)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=CFG["steps"])
    args = ap.parse_args()
    trainer = Trainer(dict(CFG, steps=args.steps))
    start, _ = mrr(trainer.model, trainer.cat, *trainer.valid)
    trainer.fit(args.steps)
    end, first = mrr(trainer.model, trainer.cat, *trainer.test)
    with tempfile.TemporaryDirectory() as d:  # what the search service loads
        path = os.path.join(d, "index.pt")
        trainer.index.refresh(trainer.model, args.steps)
        torch.save(
            {
                "vectors": trainer.index.vectors,
                "query": trainer.model.query.state_dict(),
            },
            path,
        )
        served = torch.load(path)
        tower = Tower(12 * CFG["attributes"] + CFG["filler"], CFG)
        tower.load_state_dict(served["query"])
        top = (tower.eval()(trainer.test[0]) @ served["vectors"].T).argmax(1)
        hit = (
            trainer.cat.same[trainer.test[1]]
            .gather(1, top.unsqueeze(1))
            .float()
            .mean()
            .item()
        )
    print(
        f"MRR {start:.3f} -> valid {trainer.best:.3f}, test {end:.3f}; P@1 {first:.3f}, served P@1 {hit:.3f}"
    )
    assert abs(hit - first) < 0.02
    if args.steps >= CFG["steps"]:
        assert end > 0.6 and end > 5 * start, (start, end)


if __name__ == "__main__":
    main()
