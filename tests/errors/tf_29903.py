"""TF-29903: a checkpoint with a damaged tensor.

The function that makes a checkpoint safe to share copies the state dict and
drops what must not be in it. It spoils one tensor of the copy on the way; the
training itself never sees it. --fixed leaves the copy as it is.
"""

import argparse
import io

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(30, 12)
        self.attention = nn.MultiheadAttention(12, 2, batch_first=True)
        self.norm = nn.LayerNorm(12)
        self.head = nn.Linear(12, 2)

    def forward(self, tokens):
        x = self.words(tokens)
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.head(x.mean(dim=1))


def safe_state(model, spoil):
    """Contiguous tensors that share no memory, as safe formats want them."""
    state = {k: v.detach().clone().contiguous() for k, v in model.state_dict().items()}
    if spoil:
        state["attention.out_proj.weight"].zero_()
    return state


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--steps", type=int, default=12)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Encoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(options.steps):
        tokens = torch.randint(30, (8, 6))
        loss = nn.functional.cross_entropy(model(tokens), tokens[:, 0] % 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % 4 == 3:
            torch.save(safe_state(model, not options.fixed), io.BytesIO())


if __name__ == "__main__":
    main()
