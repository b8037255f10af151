# Ticket tagging: bag of word vectors + small MLP.
# The first KNOWN rows of the embedding come from the company-wide vectors and are
# shared with the search service, so they have to stay as they are. Only the vectors of
# the new product words are learned here.
import argparse

import torch
import torch.nn as nn

VOCAB, KNOWN, DIM, TAGS = 1200, 1000, 48, 6
TICKETS, LENGTH = 4000, 18


def build_tickets(seed):
    g = torch.Generator().manual_seed(seed)
    topic_words = torch.randint(0, VOCAB, (TAGS, 60), generator=g)
    tags = torch.randint(0, TAGS, (TICKETS,), generator=g)
    noise = torch.randint(0, VOCAB, (TICKETS, LENGTH), generator=g)
    pick = torch.randint(0, 60, (TICKETS, LENGTH), generator=g)
    topical = topic_words[tags].gather(1, pick)
    words = torch.where(torch.rand(TICKETS, LENGTH, generator=g) < 0.35, topical, noise)
    return words, tags


def company_vectors():
    g = torch.Generator().manual_seed(77)
    return torch.randn(KNOWN, DIM, generator=g)


class TicketTagger(nn.Module):
    def __init__(self, vectors):
        super().__init__()
        self.words = nn.Embedding(VOCAB, DIM)
        with torch.no_grad():
            self.words.weight[:KNOWN] = vectors
            self.words.weight[KNOWN:] *= 0.1
        is_new = torch.zeros(VOCAB, 1)
        is_new[KNOWN:] = 1.0
        self.words.weight.register_hook(lambda grad: grad * is_new)
        self.mlp = nn.Sequential(
            nn.LayerNorm(DIM),
            nn.Linear(DIM, 96),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(96, TAGS),
        )

    def forward(self, tokens):
        return self.mlp(self.words(tokens).mean(1))


def make_optimizer(model, args):
    if args.fixed:
        groups = [
            {"params": model.words.parameters(), "weight_decay": 0.0},
            {"params": model.mlp.parameters()},
        ]
    else:
        groups = [
            {"params": model.words.parameters()},
            {"params": model.mlp.parameters()},
        ]
    return torch.optim.AdamW(groups, lr=args.lr, weight_decay=args.weight_decay)


def run_validation(model, words, tags):
    model.eval()
    with torch.inference_mode():
        scores = model(words)
        loss = nn.functional.cross_entropy(scores, tags).item()
        acc = (scores.argmax(-1) == tags).float().mean().item()
    model.train()
    return loss, acc


def main(args):
    torch.manual_seed(args.seed)
    words, tags = build_tickets(args.seed)
    split = int(0.85 * TICKETS)
    model = TicketTagger(company_vectors())
    optimizer = make_optimizer(model, args)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="min", factor=0.5, patience=3
    )
    shuffler = torch.Generator().manual_seed(args.seed)

    step, epoch = 0, 0
    while step < args.steps:
        model.train()
        perm = torch.randperm(split, generator=shuffler)
        for idx in perm.split(args.batch):
            loss = nn.functional.cross_entropy(model(words[idx]), tags[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == args.steps:
                break
        val_loss, val_acc = run_validation(model, words[split:], tags[split:])
        plateau.step(val_loss)
        epoch += 1
        print(
            f"epoch {epoch:2d} step {step:4d} train {loss.item():.3f} val {val_loss:.3f} acc {val_acc:.3f}"
        )

    if args.prove:
        now = model.words.weight.detach()[:KNOWN]
        was = company_vectors()
        diff = (now - was).abs().max().item()
        print(
            "largest change in a shared vector:",
            diff,
            " norm ratio:",
            (now.norm() / was.norm()).item(),
        )
        print("fault shows:", "yes" if diff > 0 else "no")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--weight-decay", type=float, default=0.05)
    p.add_argument("--seed", type=int, default=5)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    main(p.parse_args())
