import argparse

import torch
from torch import nn
from torch.nn import functional as F


def build_corpus(n, flip, noise, seed, vocab=60, length=16):
    """Sentences whose class words decide the label; topic words go along with it most of the time."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (n,), generator=g)
    attr = torch.where(torch.rand(n, generator=g) < flip, 1 - y, y)
    x = torch.randint(20, vocab, (n, length), generator=g)
    for i in range(n):
        spots = torch.randperm(length - 1, generator=g)[:5] + 1
        cue = 4 + 4 * y[i] + torch.randint(4, (2,), generator=g)
        topic = 12 + 4 * attr[i] + torch.randint(4, (3,), generator=g)
        x[i, spots] = torch.cat([cue, topic])
    x[:, 0] = 1
    wrong = torch.rand(n, generator=g) < noise
    return x, torch.where(wrong, 1 - y, y), 2 * y + attr


class SelfAttention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
        self.dense = nn.Linear(hidden, hidden)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            f(x).view(b, t, self.heads, -1).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        )
        return self.dense(
            F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        )


class Layer(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.attention = SelfAttention(hidden, heads)
        self.intermediate = nn.Linear(hidden, 4 * hidden)
        self.output = nn.Linear(4 * hidden, hidden)
        self.LayerNorm = nn.ModuleList([nn.LayerNorm(hidden), nn.LayerNorm(hidden)])

    def forward(self, x):
        x = self.LayerNorm[0](x + self.attention(x))
        return self.LayerNorm[1](x + self.output(F.gelu(self.intermediate(x))))


class MiniBert(nn.Module):
    def __init__(self, vocab=60, length=16, hidden=48, depth=2, heads=4, classes=2):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab, hidden)
        self.position_embeddings = nn.Embedding(length, hidden)
        self.layer = nn.ModuleList([Layer(hidden, heads) for _ in range(depth)])
        self.pooler = nn.Linear(hidden, hidden)
        self.classifier = nn.Linear(hidden, classes)

    def forward(self, x):
        h = self.word_embeddings(x) + self.position_embeddings.weight
        for layer in self.layer:
            h = layer(h)
        return self.classifier(torch.tanh(self.pooler(h[:, 0])))


def get_bert_optim(network, lr, weight_decay, fixed):
    names = ["bias", "LayerNorm"]
    decay_params, nodecay_params = [], []
    for n, p in network.named_parameters():
        hit = any(k in n for k in names)
        if hit != fixed:
            decay_params.append(p)
        else:
            nodecay_params.append(p)
    return torch.optim.AdamW(
        [
            {"params": decay_params, "weight_decay": weight_decay},
            {"params": nodecay_params, "weight_decay": 0.0},
        ],
        lr=lr,
    )


class ERM(nn.Module):
    def __init__(self, hp):
        super().__init__()
        torch.manual_seed(hp.seed)
        self.hp = hp
        self.network = MiniBert()
        self.optimizer = get_bert_optim(self.network, hp.lr, hp.weight_decay, hp.fixed)
        self.lr_scheduler = torch.optim.lr_scheduler.LinearLR(
            self.optimizer, 1.0, 0.05, hp.steps
        )

    def update(self, x, y):
        loss = F.cross_entropy(self.network(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        self.lr_scheduler.step()
        return loss.item()

    @torch.no_grad()
    def accuracy(self, x, y, g):
        self.network.eval()
        ok = (self.network(x).argmax(1) == y).float()
        self.network.train()
        per_group = [ok[g == k].mean().item() for k in range(4)]
        return ok.mean().item(), min(per_group)


def shrink_rates(hp):
    """One optimizer step with all gradients at zero, on a fresh copy of the network."""
    net = MiniBert()
    for p in net.parameters():
        nn.init.ones_(p)
        p.grad = torch.zeros_like(p)
    get_bert_optim(net, hp.lr, hp.weight_decay, hp.fixed).step()
    matrix = [1 - p.mean().item() for p in net.parameters() if p.dim() > 1]
    vector = [1 - p.mean().item() for p in net.parameters() if p.dim() == 1]
    return sum(matrix) / len(matrix), sum(vector) / len(vector)


def main():
    parser = argparse.ArgumentParser(description="ERM on text groups")
    parser.add_argument("--steps", type=int, default=260)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--weight_decay", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    hp = parser.parse_args()

    x, y, g = build_corpus(700, flip=0.1, noise=0.12, seed=1)
    test = build_corpus(800, flip=0.5, noise=0.0, seed=2)
    model = ERM(hp)
    gen = torch.Generator().manual_seed(hp.seed)
    order, at = torch.randperm(len(x), generator=gen), 0
    for step in range(hp.steps):
        if at + hp.batch_size > len(order):
            order, at = torch.randperm(len(x), generator=gen), 0
        idx = order[at : at + hp.batch_size]
        at += hp.batch_size
        loss = model.update(x[idx], y[idx])
        if step % 65 == 0 or step == hp.steps - 1:
            mean, worst = model.accuracy(*test)
            print(
                f"{{'step': {step}, 'loss': {loss:.4f}, 'test_avg': {mean:.3f}, 'test_worst_group': {worst:.3f}}}"
            )
    total = (
        sum(p.norm().item() ** 2 for p in model.network.parameters() if p.dim() > 1)
        ** 0.5
    )
    print(f"norm of weight matrices: {total:.2f}")
    if hp.prove:
        m, v = shrink_rates(hp)
        print(
            f"shrinkage per step without gradient: matrices {m:.2e}, biases and norms {v:.2e} "
            f"(lr * weight_decay = {hp.lr * hp.weight_decay:.2e})"
        )
        print("fault shows:", "yes" if m < 1e-7 < v else "no")


if __name__ == "__main__":
    main()
