"""Which allergens does a dish contain?  From the words of a canteen menu.

A bag of word vectors, weighted by a learnt importance of each word, goes through a small
network; every allergen is a yes-or-no question of its own.
"""

import argparse
import os
import random
import tempfile

import torch
from torch import nn
from torch.nn import functional as F

ALLERGENS = ("gluten", "milk", "egg", "nuts", "fish", "celery", "soy", "mustard")

CARRIERS = {
    "gluten": ["pasta", "bread", "couscous", "pastry", "dumpling", "noodle", "seitan"],
    "milk": ["butter", "cream", "cheddar", "yoghurt", "ricotta", "latte", "feta"],
    "egg": ["omelette", "mayonnaise", "meringue", "frittata", "pasta", "pastry"],
    "nuts": ["almond", "hazelnut", "praline", "pesto", "marzipan", "cashew"],
    "fish": ["trout", "salmon", "anchovy", "cod", "bouillabaisse", "worcester"],
    "celery": ["celeriac", "broth", "ragout", "waldorf", "bouillabaisse", "stew"],
    "soy": ["tofu", "tempeh", "miso", "teriyaki", "edamame", "noodle"],
    "mustard": ["vinaigrette", "dijon", "mayonnaise", "remoulade", "piccalilli"],
}
NEUTRAL = (
    "rice potato carrot tomato pepper basil parsley roast grilled steamed fresh garden "
    "season spicy mild baked warm cold salad soup bowl plate apple pear plum beetroot "
    "spinach lemon herb olive onion leek cabbage pumpkin fennel mushroom lentil bean"
).split()


def build_vocabulary():
    words = set(NEUTRAL) | {"vegan", "free"}
    for carriers in CARRIERS.values():
        words.update(carriers)
    return {word: number for number, word in enumerate(sorted(words), start=1)}


def write_dish(rng):
    words = rng.sample(NEUTRAL, rng.randint(3, 8))
    marks = [0.0] * len(ALLERGENS)
    vegan = rng.random() < 0.25
    for allergen in rng.sample(ALLERGENS, rng.choice([0, 1, 1, 2, 2, 3])):
        words.append(rng.choice(CARRIERS[allergen]))
    for number, allergen in enumerate(ALLERGENS):
        if any(word in CARRIERS[allergen] for word in words):
            marks[number] = 1.0
    if vegan:
        words.append("vegan")
        for allergen in ("milk", "egg", "fish"):
            marks[ALLERGENS.index(allergen)] = 0.0
    marks = [1 - mark if rng.random() < 0.02 else mark for mark in marks]
    rng.shuffle(words)
    return words, marks


class Menus:
    def __init__(self, count, vocabulary, seed):
        rng = random.Random(seed)
        dishes = [write_dish(rng) for _ in range(count)]
        self.words = [[vocabulary[w] for w in words] for words, _ in dishes]
        self.marks = torch.tensor([marks for _, marks in dishes])

    def bags(self, rows):
        """Flat word numbers and the offset of each dish, as EmbeddingBag wants them."""
        flat, offsets = [], []
        for row in rows:
            offsets.append(len(flat))
            flat.extend(self.words[row])
        return torch.tensor(flat), torch.tensor(offsets), self.marks[rows]

    def epoch(self, size, rng=None):
        rows = list(range(len(self.words)))
        if rng is not None:
            rng.shuffle(rows)
        for start in range(0, len(rows), size):
            yield self.bags(rows[start : start + size])


class AllergenNet(nn.Module):
    def __init__(self, words, args):
        super().__init__()
        self.args = args
        self.bag = nn.EmbeddingBag(words + 1, args.width, mode="sum")
        self.importance = nn.Embedding(words + 1, 1)
        self.hidden = nn.Linear(args.width, args.hidden)
        self.answers = nn.Linear(args.hidden, len(ALLERGENS))
        nn.init.normal_(self.bag.weight, std=0.2)
        nn.init.zeros_(self.importance.weight)

    def drop(self, h):
        if self.args.fixed:
            return F.dropout(h, self.args.dropout, training=self.training)
        return F.dropout(h, self.args.dropout)

    def forward(self, flat, offsets):
        weights = torch.sigmoid(self.importance(flat)).squeeze(1) * 2
        h = self.bag(flat, offsets, per_sample_weights=weights)
        h = self.drop(F.relu(self.hidden(self.drop(h))))
        return self.answers(h)


def evaluate(model, menus):
    model.eval()
    logits, marks = [], []
    with torch.no_grad():
        for flat, offsets, answers in menus.epoch(200):
            logits.append(model(flat, offsets))
            marks.append(answers)
    logits, marks = torch.cat(logits), torch.cat(marks)
    guess = (logits > 0).float()
    hits = (guess * marks).sum(0)
    f1 = 2 * hits / (guess.sum(0) + marks.sum(0)).clamp(min=1)
    whole = (guess == marks).all(1).float().mean().item()
    loss = F.binary_cross_entropy_with_logits(logits, marks).item()
    return loss, f1, whole


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--lr", type=float, default=5e-3)
    p.add_argument("--width", type=int, default=48)
    p.add_argument("--hidden", type=int, default=64)
    p.add_argument("--dropout", type=float, default=0.4)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--fixed", action="store_true")
    args = p.parse_args()
    torch.manual_seed(args.seed)

    vocabulary = build_vocabulary()
    train_menus = Menus(2000, vocabulary, f"train {args.seed}")
    valid_menus = Menus(600, vocabulary, f"valid {args.seed}")
    model = AllergenNet(len(vocabulary), args)
    optimizer = torch.optim.NAdam(model.parameters(), lr=args.lr)
    order = random.Random(args.seed)
    best, chosen = -1.0, None
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(1, args.epochs + 1):
            model.train()
            losses = []
            for flat, offsets, answers in train_menus.epoch(args.batch, order):
                logits = model(flat, offsets)
                loss = F.binary_cross_entropy_with_logits(logits, answers)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            valid_loss, f1, whole = evaluate(model, valid_menus)
            print(
                f"epoch {epoch:2d} | train {sum(losses) / len(losses):.4f} | "
                f"valid {valid_loss:.4f} | F1 {f1.mean():.4f} | whole dish {whole:.3f}"
            )
            if f1.mean() > best:
                best, chosen = f1.mean().item(), epoch
                torch.save(model.state_dict(), os.path.join(folder, "best.pt"))
        model.load_state_dict(torch.load(os.path.join(folder, "best.pt")))
    _, f1, whole = evaluate(model, valid_menus)
    print(f"epoch {chosen} kept, whole dish right {whole:.3f}")
    for allergen, value in zip(ALLERGENS, f1.tolist()):
        print(f"  {allergen:8s} F1 {value:.3f}")


if __name__ == "__main__":
    main()
