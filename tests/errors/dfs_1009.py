"""A new word for a frozen text encoder (textual inversion).

The placeholder token gets an embedding such that prompts with it are encoded close
to the features of some example pictures. Features are made up from a concept that is
not in the vocabulary. huggingface/diffusers#1009.
"""

import argparse
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WORDS = "a the photo picture painting of small large red blue in on snow beach".split()
TEMPLATES = (
    "a photo of {}",
    "the picture of a {}",
    "a small {} on the beach",
    "a large {} in the snow",
    "painting of the {}",
)
LENGTH = 8


class Tokenizer:
    def __init__(self):
        self.ids = {word: i for i, word in enumerate(["<pad>", *WORDS])}

    def add_token(self, word):
        self.ids[word] = len(self.ids)
        return self.ids[word]

    def __len__(self):
        return len(self.ids)

    def __call__(self, text):
        ids = [self.ids[word] for word in text.split()]
        return ids + [0] * (LENGTH - len(ids))


class TextEncoder(nn.Module):
    def __init__(self, size, width=32, features=24):
        super().__init__()
        self.token_embedding = nn.Embedding(size, width)
        self.position_embedding = nn.Embedding(LENGTH, width)
        self.layers = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True),
            2,
            enable_nested_tensor=False,
        )
        self.final_norm = nn.LayerNorm(width)
        self.projection = nn.Linear(width, features, bias=False)

    def encode(self, embedded, ids):
        x = embedded + self.position_embedding.weight
        padding = ids == 0
        x = self.final_norm(self.layers(x, src_key_padding_mask=padding))
        keep = (~padding)[..., None].float()
        return self.projection((x * keep).sum(1) / keep.sum(1))

    def forward(self, ids):
        return self.encode(self.token_embedding(ids), ids)

    def resize(self, size):
        old = self.token_embedding.weight.data
        self.token_embedding = nn.Embedding(size, old.size(1))
        self.token_embedding.weight.data[: len(old)] = old


@torch.no_grad()
def examples(encoder, tokenizer, token, count):
    """Features of pictures: what the encoder would say, had it a word for them."""
    concept = torch.randn(encoder.token_embedding.embedding_dim)
    prompts = [
        tokenizer(TEMPLATES[i % len(TEMPLATES)].format("<new>")) for i in range(count)
    ]
    ids = torch.tensor(prompts)
    embedded = encoder.token_embedding(ids)
    embedded[ids == token] = concept
    wanted = encoder.encode(embedded, ids)
    return TensorDataset(ids, wanted + 0.05 * torch.randn_like(wanted))


def freeze(encoder):
    for name, parameter in encoder.named_parameters():
        parameter.requires_grad_(name == "token_embedding.weight")


@torch.no_grad()
def similarity(encoder, loader):
    encoder.eval()
    pairs = [nn.functional.cosine_similarity(encoder(i), w).mean() for i, w in loader]
    encoder.train()
    return torch.stack(pairs).mean().item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=150)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizer = Tokenizer()
    encoder = TextEncoder(len(tokenizer))
    token = tokenizer.add_token("<new>")
    encoder.resize(len(tokenizer))
    train_set = examples(encoder, tokenizer, token, 60)
    loader = DataLoader(train_set, batch_size=12, shuffle=True)
    embeddings = encoder.token_embedding.weight
    embeddings.data[token] = embeddings.data[tokenizer.ids["picture"]]
    freeze(encoder)
    original = embeddings.detach().clone()
    known = torch.arange(len(tokenizer)) != token
    optimizer = torch.optim.AdamW([embeddings], lr=2e-2, weight_decay=1e-2)
    step = 0
    while step < options.steps:
        for ids, wanted in loader:
            if step == options.steps:
                break
            loss = nn.functional.mse_loss(encoder(ids), wanted)
            optimizer.zero_grad()
            loss.backward()
            # Only the new word is learned.
            embeddings.grad[known] = 0
            optimizer.step()
            if options.fixed:
                with torch.no_grad():
                    embeddings[known] = original[known]
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        if step % 50 == 0:
            print(f"similarity {similarity(encoder, loader):.3f}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        learned = {"<new>": embeddings[token].detach().clone()}
        torch.save(learned, os.path.join(folder, "learned_embeds.bin"))
    if options.prove:
        drift = (embeddings.detach() - original)[known].norm() / original[known].norm()
        print(f"known words moved by {100 * drift:.2f} %", flush=True)
        print("fault shows:", "yes" if drift > 1e-4 else "no")


if __name__ == "__main__":
    main()
