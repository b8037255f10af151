import argparse

import numpy as np
import torch
from torch import nn

NA = "__MISSING__"
COLUMNS = ["age", "city", "income", "plan", "visits", "channel", "tenure", "device"]
TEXT = {
    "city": ["Lyon", "Oslo", "Porto", "Turin", "Ghent"],
    "plan": ["basic", "plus", "family", "pro"],
    "channel": ["web", "shop", "phone"],
    "device": ["ios", "android", "desktop"],
}


def make_table(n, seed, missing=0.25):
    """customers and whether they renew; some of the text cells are empty"""
    rng = np.random.default_rng(seed)
    t = {
        "age": rng.normal(45, 14, n),
        "income": rng.lognormal(3.4, 0.4, n),
        "visits": rng.poisson(5, n).astype(float),
        "tenure": rng.gamma(2.0, 2.0, n),
    }
    for name, values in TEXT.items():
        t[name] = rng.integers(len(values), size=n)
    score = (
        0.06 * (t["age"] - 45)
        + 1.4 * np.log(t["income"] / 30)
        + 0.35 * (t["visits"] - 5)
        + 0.3 * (t["tenure"] - 4)
        + np.array([0.9, -0.6, 0.2, -0.9, 0.4])[t["city"]]
        + np.array([-1.2, 0.1, 0.5, 1.0])[t["plan"]]
        + np.array([0.5, -0.5, 0.0])[t["channel"]]
        * np.where(t["device"] == 2, 2.0, -1.0)
    )
    y = (score + rng.logistic(size=n) * 0.6 > 0).astype(np.int64)
    table = np.empty((n, len(COLUMNS)), dtype=object)
    for j, name in enumerate(COLUMNS):
        if name in TEXT:
            col = np.array(TEXT[name], dtype=object)[t[name]]
            col[rng.random(n) < missing] = None
        else:
            col = t[name].astype(object)
        table[:, j] = col
    return table, y


class OrdinalColumns:
    """Text columns become integer codes, the other ones pass through."""

    def fit(self, table):
        self.text_ix = [
            j
            for j in range(table.shape[1])
            if any(isinstance(v, str) for v in table[:, j])
        ]
        self.rest_ix = [j for j in range(table.shape[1]) if j not in self.text_ix]
        self.codes = {
            j: {v: k for k, v in enumerate(sorted(set(table[:, j])))}
            for j in self.text_ix
        }
        return self

    def transform(self, table):
        left = [
            np.array([self.codes[j].get(v, -1) for v in table[:, j]], dtype=np.float64)
            for j in self.text_ix
        ]
        right = [table[:, j].astype(np.float64) for j in self.rest_ix]
        return np.stack(left + right, axis=1)


def process_text_na(table, encoder, fixed, fit=False):
    filled = table.copy()
    empty = np.array([[v is None for v in row] for row in filled])
    filled[empty] = NA
    text_ix = [
        j
        for j in range(filled.shape[1])
        if any(isinstance(v, str) for v in filled[:, j])
    ]
    placeholder = filled[:, text_ix] == NA
    if fit:
        encoder.fit(filled)
    encoded = encoder.transform(filled)
    where = [encoder.text_ix.index(j) for j in text_ix] if fixed else text_ix
    block = encoded[:, where]
    block[placeholder] = np.nan
    encoded[:, where] = block
    return encoded


class Preprocessor:
    def __init__(self, fixed):
        self.fixed, self.encoder = fixed, OrdinalColumns()

    def __call__(self, table, fit=False):
        x = process_text_na(table, self.encoder, self.fixed, fit)
        if fit:
            self.fill, self.spread = np.nanmean(x, 0), np.nanstd(x, 0) + 1e-9
            self.n_text = len(self.encoder.text_ix)
            self.cards = [len(self.encoder.codes[j]) + 1 for j in self.encoder.text_ix]
        gaps = np.isnan(x)
        cats = np.where(
            gaps[:, : self.n_text], np.array(self.cards) - 1, x[:, : self.n_text]
        ).astype(np.int64)
        nums = np.where(gaps, self.fill, x)[:, self.n_text :]
        nums = (nums - self.fill[self.n_text :]) / self.spread[self.n_text :]
        return torch.tensor(cats), torch.tensor(nums, dtype=torch.float32)


class TableNet(nn.Module):
    def __init__(self, cards, n_num, dim=6, width=64):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(c, dim) for c in cards])
        self.body = nn.Sequential(
            nn.Linear(dim * len(cards) + n_num, width),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 2),
        )

    def forward(self, cats, nums):
        parts = [t(cats[:, k]) for k, t in enumerate(self.tables)]
        return self.body(torch.cat(parts + [nums], 1))


@torch.no_grad()
def score(model, cats, nums, y):
    model.eval()
    logits = model(cats, nums)
    model.train()
    return (
        nn.functional.cross_entropy(logits, y).item(),
        (logits.argmax(1) == y).float().mean().item(),
    )


def count_wrong_cells(table, preprocessor):
    encoded = process_text_na(table, preprocessor.encoder, preprocessor.fixed)
    order = preprocessor.encoder.text_ix + preprocessor.encoder.rest_ix
    expected = np.array(
        [[table[i, j] is None for j in order] for i in range(len(table))]
    )
    got = np.isnan(encoded)
    return (
        int((got & ~expected).sum()),
        int((expected & ~got).sum()),
        int(expected.sum()),
    )


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=12)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    a = p.parse_args()
    torch.manual_seed(a.seed)

    train_table, train_y = make_table(1500, 1)
    valid_table, valid_y = make_table(500, 2)
    prep = Preprocessor(a.fixed)
    train_cats, train_nums = prep(train_table, fit=True)
    valid_cats, valid_nums = prep(valid_table)
    train_y, valid_y = torch.tensor(train_y), torch.tensor(valid_y)

    model = TableNet(prep.cards, train_nums.shape[1])
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr, weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, a.epochs)
    best = 0.0
    for epoch in range(a.epochs):
        total, n = 0.0, 0
        for idx in torch.randperm(len(train_y)).split(a.batch):
            loss = nn.functional.cross_entropy(
                model(train_cats[idx], train_nums[idx]), train_y[idx]
            )
            opt.zero_grad()
            loss.backward()
            opt.step()
            total, n = total + loss.item() * len(idx), n + len(idx)
        sched.step()
        v_loss, v_acc = score(model, valid_cats, valid_nums, valid_y)
        best = max(best, v_acc)
        if epoch % 2 == 1:
            print(
                f"epoch {epoch + 1:3d}: train loss {total / n:.4f}, valid loss {v_loss:.4f}, valid accuracy {v_acc:.3f}"
            )
    print(f"best valid accuracy {best:.3f}")

    if a.prove:
        blanked, kept, true_gaps = count_wrong_cells(train_table, prep)
        print(
            f"training table: {true_gaps} empty cells; {blanked} full cells taken as empty, {kept} empty cells taken as full"
        )
        print("fault shows:", "yes" if blanked + kept > 0 else "no")


if __name__ == "__main__":
    main()
