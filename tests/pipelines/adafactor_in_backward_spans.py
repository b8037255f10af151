"""Span corruption (encoder and decoder) on the announcements of a tram, T5 fashion.

Each parameter has an Adafactor of its own that steps in a hook as soon as its gradient is
complete, so that no more than one gradient is alive at a time: after backward() there is
none left, and there is no step in the loop. Lengths are chosen so that nothing is padded.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

LENGTH, SPANS, SPAN = 24, 2, 3
START, END, SENTINEL, STOP = 0, 1, 2, 2 + SPANS  # ids; stops follow the sentinels
STOPS = 10
VOCAB = STOP + STOPS


def routes(n, gen):
    """Each tram starts somewhere, skips 1 to 4 stops at a time, and turns round at the ends."""
    period = 2 * (STOPS - 1)
    at = torch.randint(0, period, (n, 1), generator=gen)
    stride = torch.randint(1, 5, (n, 1), generator=gen)
    place = (at + stride * torch.arange(LENGTH)) % period
    return torch.where(place < STOPS, place, period - place) + STOP


def corrupt(text, gen):
    """-> what the encoder reads (n, 20) and what the decoder must say (n, 9)"""
    sources, targets = [], []
    half = LENGTH // SPANS
    starts = torch.randint(1, half - SPAN, (len(text), SPANS), generator=gen)
    starts = (starts + half * torch.arange(SPANS)).tolist()
    for row, begins in zip(text.tolist(), starts):
        source, target, last = [], [], 0
        for k, s in enumerate(begins):
            source += row[last:s] + [SENTINEL + k]
            target += [SENTINEL + k] + row[s : s + SPAN]
            last = s + SPAN
        sources.append(source + row[last:])
        targets.append(target + [END])
    return torch.tensor(sources), torch.tensor(targets)


class SpanModel(nn.Module):
    def __init__(self, dim=64, heads=4, layers=2):
        super().__init__()
        self.dim = dim
        self.shared = nn.Embedding(
            VOCAB, dim
        )  # read by the encoder, the decoder and the output
        self.place = nn.Parameter(torch.randn(LENGTH, dim))
        shape = dict(
            d_model=dim,
            nhead=heads,
            dim_feedforward=2 * dim,
            dropout=0.0,
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**shape),
            layers,
            norm=nn.LayerNorm(dim),
            enable_nested_tensor=False,
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(**shape), layers, norm=nn.LayerNorm(dim)
        )

    def embed(self, ids):
        return self.shared(ids) + self.place[: ids.size(1)]

    def encode(self, source):
        return self.encoder(self.embed(source))

    def decode(self, said, memory):
        causal = nn.Transformer.generate_square_subsequent_mask(said.size(1))
        h = self.decoder(self.embed(said), memory, tgt_mask=causal, tgt_is_causal=True)
        return F.linear(h * self.dim**-0.5, self.shared.weight)

    def forward(self, source, target):
        said = F.pad(target[:, :-1], (1, 0), value=START)  # teacher forcing
        return self.decode(said, self.encode(source))


def step_in_backward(model, lr):
    """One optimizer a parameter. A tied weight fires once, when all its uses have been summed."""
    optimizers = {}
    for p in model.parameters():
        optimizers[p] = torch.optim.Adafactor([p], lr=lr, weight_decay=0.0)

    def hook(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    return list(optimizers.values())


@torch.no_grad()
def evaluate(model, source, target):
    model.eval()
    loss = F.cross_entropy(model(source, target).flatten(0, 1), target.flatten())
    memory = model.encode(source)
    said = torch.full((len(source), 1), START)
    for _ in range(target.size(1)):
        said = torch.cat([said, model.decode(said, memory)[:, -1:].argmax(-1)], 1)
    model.train()
    return loss.item(), (said[:, 1:] == target).float().mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=80)
    p.add_argument("--batch", type=int, default=48)
    p.add_argument("--lr", type=float, default=0.04)
    args = p.parse_args()
    torch.manual_seed(8)
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(80)
    held_out = torch.Generator().manual_seed(81)
    valid = corrupt(routes(128, held_out), held_out)
    model = SpanModel()
    optimizers = step_in_backward(model, args.lr)
    for step in range(1, args.steps + 1):
        rate = args.lr * min(
            step / 10, (10 / step) ** 0.5
        )  # set before backward, which uses it
        for opt in optimizers:
            opt.param_groups[0]["lr"] = rate
        source, target = corrupt(routes(args.batch, gen), gen)
        loss = F.cross_entropy(model(source, target).flatten(0, 1), target.flatten())
        loss.backward()  # updates the weights too
        if step % 10 == 0:
            val, acc = evaluate(model, *valid)
            print(
                f"step {step} lr {rate:.4f} loss {loss.item():.4f} valid {val:.4f} generated {acc:.3f}"
            )


if __name__ == "__main__":
    main()
