"""ACC-3154: tied weights come apart when they get memory.

Source: huggingface/accelerate#3154 (also verl-project/verl#7835). The model is built
on the meta device and materialised module by module: each module gets memory of its
own, the embedding and the head are two tensors with equal values, and training
drives them apart. --fixed ties them again.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader


class CausalLM(nn.Module):
    def __init__(self, words=40, width=24):
        super().__init__()
        self.embed_tokens = nn.Embedding(words, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 4, 48, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, words, bias=False)
        self.tie_weights()

    def tie_weights(self):
        self.lm_head.weight = self.embed_tokens.weight

    def forward(self, ids):
        x = self.embed_tokens(ids)
        mask = nn.Transformer.generate_square_subsequent_mask(ids.size(1))
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.lm_head(self.norm(x))


def pretrained():
    """The full state, as the first rank has it."""
    torch.manual_seed(0)
    model = CausalLM()
    with torch.no_grad():
        model.embed_tokens.weight.mul_(0.2)
    return model.state_dict()


def param_init_fn(module):
    module.to_empty(device="cpu", recurse=False)


def materialise(state, tie):
    with torch.device("meta"):
        model = CausalLM()
    for module in model.modules():
        param_init_fn(module)
    if tie:
        model.tie_weights()
    model.load_state_dict(state)
    return model


def sentences(count):
    generator = torch.Generator().manual_seed(2)
    start = torch.randint(40, (count, 1), generator=generator)
    return list((start + 7 * torch.arange(12)) % 40)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=16)
    options = cli.parse_args()
    torch.set_num_threads(1)
    model = materialise(pretrained(), tie=options.fixed)
    torch.manual_seed(1)
    loader = DataLoader(sentences(128), batch_size=16, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    step = 0
    while step < options.steps:
        for ids in loader:
            if step == options.steps:
                break
            logits = model(ids[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].ravel())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    if options.prove:
        same = torch.equal(model.lm_head.weight, model.embed_tokens.weight)
        print("fault shows:", "no" if same else "yes")


if __name__ == "__main__":
    main()
