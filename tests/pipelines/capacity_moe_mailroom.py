"""To which of ten depots a parcel goes: a switch of experts with a capacity.

Each token goes to one expert, which takes no more than its capacity in training: what
overflows passes by, and an expert may have no gradient in a step. Jitter on the
router's input in training mode only, a balance and a z loss, experts whose last layer
starts at zero. Early stopping, best weights put back.
"""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=7)

hp = dict(
    vocab=40,
    length=8,
    depots=10,
    dim=32,
    experts=6,
    capacity=1.25,
    aux=0.02,
    zloss=1e-3,
    jitter=0.05,
    lr=4e-3,
    epochs=parser.parse_args().epochs,
    batch=64,
    patience=3,
)
torch.manual_seed(17)


def parcels(n):
    """A token for the district, in two spellings, and one that says if it is urgent."""
    body = torch.randint(12, hp["vocab"], (n, hp["length"]))
    district = torch.randint(0, 5, (n,))
    express = torch.randint(0, 2, (n,))
    spot = torch.stack([torch.randperm(hp["length"])[:2] for _ in range(n)])
    rows = torch.arange(n)
    body[rows, spot[:, 0]] = district * 2 + torch.randint(0, 2, (n,))
    body[rows, spot[:, 1]] = 10 + express
    return body, district * 2 + express


class SwitchLayer(nn.Module):
    def __init__(self, d, experts):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.router = nn.Linear(d, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
            for _ in range(experts)
        )
        for e in self.experts:
            nn.init.zeros_(e[-1].weight)
            nn.init.zeros_(e[-1].bias)
        self.aux = None

    def forward(self, x):
        flat = self.norm(x).reshape(-1, x.shape[-1])
        noise = 1.0
        if self.training:
            noise = 1 + hp["jitter"] * (2 * torch.rand_like(flat) - 1)
        logits = self.router(flat * noise)
        probs = logits.softmax(-1)
        gate, choice = probs.max(-1)
        n, k = probs.shape
        limit = int(hp["capacity"] * n / k) if self.training else n
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            mine = (choice == i).nonzero().squeeze(1)[:limit]
            if len(mine):
                out = out.index_add(0, mine, gate[mine, None] * expert(flat[mine]))
        share = F.one_hot(choice, k).float().mean(0)
        balance = hp["aux"] * k * (share * probs.mean(0)).sum()
        self.aux = balance + hp["zloss"] * logits.logsumexp(-1).square().mean()
        self.load = share.detach()
        return x + out.view_as(x)


class Mailroom(nn.Module):
    def __init__(self):
        super().__init__()
        d = hp["dim"]
        self.emb = nn.Embedding(hp["vocab"], d)
        self.n1 = nn.LayerNorm(d)
        self.att = nn.MultiheadAttention(d, 4, batch_first=True)
        self.moe = nn.ModuleList([SwitchLayer(d, hp["experts"]) for _ in range(2)])
        self.out = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, hp["depots"]))

    def forward(self, ids):
        x = self.emb(ids)
        x = self.moe[0](x)
        h = self.n1(x)
        x = x + self.att(h, h, h, need_weights=False)[0]
        x = self.moe[1](x)
        return self.out(x.mean(1)), sum(m.aux for m in self.moe)


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    logits, _ = model(x)
    right = (logits.argmax(1) == y).float().mean().item()
    return F.cross_entropy(logits, y).item(), right


(xt, yt), (xv, yv), (xs, ys) = parcels(768), parcels(256), parcels(256)
model = Mailroom()
opt = torch.optim.Adam(model.parameters(), lr=hp["lr"])
best, kept, waited = float("inf"), None, 0
for epoch in range(hp["epochs"]):
    model.train()
    ce_sum = aux_sum = 0.0
    for idx in torch.randperm(len(xt)).split(hp["batch"]):
        logits, aux = model(xt[idx])
        ce = F.cross_entropy(logits, yt[idx])
        opt.zero_grad(set_to_none=True)
        (ce + aux).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        ce_sum += ce.item() * len(idx)
        aux_sum += aux.item() * len(idx)
    load = " ".join(f"{v:.2f}" for v in model.moe[1].load)
    vl, va = evaluate(model, xv, yv)
    print(
        f"epoch {epoch:2d} ce {ce_sum / len(xt):.3f} aux {aux_sum / len(xt):.3f} "
        f"valid {vl:.3f} acc {va:.3f} load {load}"
    )
    if vl < best:
        best, kept, waited = vl, copy.deepcopy(model.state_dict()), 0
    else:
        waited += 1
        if waited >= hp["patience"]:
            print("stopped early")
            break
model.load_state_dict(kept)
loss, right = evaluate(model, xs, ys)
print(f"test loss {loss:.3f} accuracy {right:.3f} with the best weights")
