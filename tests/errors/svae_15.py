"""Trains a small variational autoencoder of sentences with recurrent layers.

The sentences are made up: each has a topic, and its words follow each other by that
topic's rule. The weight of the divergence rises slowly.
"""

import argparse
import math

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class SentenceVAE(nn.Module):
    def __init__(self, words=40, embed=16, hidden=32, latent=8, flat_view=True):
        super().__init__()
        self.hidden_size = hidden
        self.hidden_factor = 2
        self.flat_view = flat_view
        self.embedding = nn.Embedding(words, embed, padding_idx=0)
        self.dropout = nn.Dropout(0.1)
        self.encoder_rnn = nn.GRU(embed, hidden, batch_first=True, bidirectional=True)
        self.decoder_rnn = nn.GRU(embed, hidden, batch_first=True)
        self.hidden2mean = nn.Linear(hidden * self.hidden_factor, latent)
        self.hidden2logv = nn.Linear(hidden * self.hidden_factor, latent)
        self.latent2hidden = nn.Linear(latent, hidden)
        self.outputs2vocab = nn.Linear(hidden, words)

    def encode(self, embedded, lengths):
        packed = pack_padded_sequence(embedded, lengths, batch_first=True)
        _, hidden = self.encoder_rnn(packed)
        if self.flat_view:
            hidden = hidden.view(-1, self.hidden_size * self.hidden_factor)
        else:
            hidden = torch.cat([hidden[0], hidden[1]], dim=1)
        return self.hidden2mean(hidden), self.hidden2logv(hidden)

    def forward(self, ids, lengths):
        embedded = self.embedding(ids)
        mean, logv = self.encode(embedded, lengths)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * logv)
        first = self.latent2hidden(z)[None]
        packed = pack_padded_sequence(self.dropout(embedded), lengths, batch_first=True)
        outputs, _ = self.decoder_rnn(packed, first)
        outputs, _ = pad_packed_sequence(outputs, batch_first=True)
        return self.outputs2vocab(outputs), mean, logv


def sentences(count, generator, words=40, longest=12):
    """Word ids with a start word and padding, the longest first."""
    lengths = 5 + torch.randint(longest - 5, (count,), generator=generator)
    lengths = lengths.sort(descending=True).values
    topic = 1 + torch.randint(5, (count,), generator=generator)
    ids = torch.zeros(count, int(lengths.max()) + 1, dtype=torch.long)
    ids[:, 0] = 1
    word = 2 + torch.randint(words - 2, (count,), generator=generator)
    for t in range(1, ids.shape[1]):
        ids[:, t] = torch.where(t <= lengths, word, 0)
        noise = torch.randint(2, (count,), generator=generator)
        word = 2 + (word + 5 * topic + noise) % (words - 2)
    return ids, lengths


def loss_of(model, ids, lengths, step):
    logits, mean, logv = model(ids[:, :-1], lengths)
    target = ids[:, 1:]
    nll = nn.functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=0, reduction="sum"
    )
    divergence = -0.5 * (1 + logv - mean.square() - logv.exp()).sum()
    weight = 1 / (1 + math.exp(-0.1 * (step - 60)))
    return (nll + weight * divergence) / len(ids)


def mixes_rows(model, ids, lengths):
    """Whether the code of the first sentence depends on other sentences."""
    embedded = model.embedding(ids[:, :-1]).detach().requires_grad_()
    mean, _ = model.encode(embedded, lengths)
    (grad,) = torch.autograd.grad(mean[0].sum(), embedded)
    return grad[1:].abs().max().item() > 0


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=50)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = SentenceVAE(flat_view=not options.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    generator = torch.Generator().manual_seed(2)
    for step in range(options.steps):
        ids, lengths = sentences(32, generator)
        loss = loss_of(model, ids, lengths, step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove:
        mixed = mixes_rows(model, *sentences(32, generator))
        print("fault shows:", "yes" if mixed else "no")


if __name__ == "__main__":
    main()
