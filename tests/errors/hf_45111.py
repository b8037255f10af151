"""HF-45111: the router's balance loss takes the softmax twice.

Source: huggingface/transformers#45111. The router returns probabilities under the
name of logits, and the balance loss applies its own softmax to them: what it sees is
close to uniform whatever the router does, and it balances nothing. --fixed returns
the logits.
"""

import argparse

import torch
from torch import nn


class TopKRouter(nn.Module):
    def __init__(self, width, experts, top_k, raw):
        super().__init__()
        self.weight = nn.Parameter(0.5 * torch.randn(experts, width))
        self.top_k = top_k
        self.raw = raw

    def forward(self, tokens):
        router_logits = nn.functional.linear(tokens, self.weight)
        probabilities = router_logits.softmax(-1)
        if not self.raw:
            router_logits = probabilities
        weights, chosen = probabilities.topk(self.top_k, dim=-1)
        return router_logits, weights / weights.sum(-1, keepdim=True), chosen


class SparseBlock(nn.Module):
    def __init__(self, width, experts, top_k, raw):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.router = TopKRouter(width, experts, top_k, raw)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 32), nn.SiLU(), nn.Linear(32, width))
            for _ in range(experts)
        )

    def forward(self, x):
        tokens = self.norm(x).flatten(0, 1)
        router_logits, weights, chosen = self.router(tokens)
        mixed = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, places = (chosen == number).nonzero(as_tuple=True)
            part = weights[rows, places, None] * expert(tokens[rows])
            mixed = mixed.index_add(0, rows, part)
        return x + mixed.view_as(x), router_logits


class SparseLM(nn.Module):
    def __init__(self, raw, words=30, width=16, layers=2, experts=4, top_k=2):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.mixer = nn.GRU(width, width, batch_first=True)
        self.blocks = nn.ModuleList(
            SparseBlock(width, experts, top_k, raw) for _ in range(layers)
        )
        self.head = nn.Linear(width, words)
        self.top_k = top_k

    def forward(self, ids):
        x = self.mixer(self.embed(ids))[0]
        gates = []
        for block in self.blocks:
            x, router_logits = block(x)
            gates.append(router_logits)
        return self.head(x), torch.cat(gates)


def load_balancing_loss(gate_logits, top_k):
    weights = gate_logits.softmax(-1)
    chosen = weights.topk(top_k, dim=-1).indices
    share = nn.functional.one_hot(chosen, weights.size(-1)).float().mean((0, 1))
    return weights.size(-1) * (share * weights.mean(0)).sum()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=16)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = SparseLM(raw=options.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for step in range(options.steps):
        ids = (torch.randint(30, (8, 1)) + 7 * torch.arange(13)) % 30
        logits, gates = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].ravel())
        loss = loss + 0.05 * load_balancing_loss(gates, model.top_k)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove:
        sums = gates.sum(-1)
        normalised = torch.allclose(sums, torch.ones_like(sums), atol=1e-4)
        print("fault shows:", "yes" if normalised else "no")


if __name__ == "__main__":
    main()
