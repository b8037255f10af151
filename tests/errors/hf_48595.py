"""Complaints are sorted by urgency: adapters and a new head on a published encoder.

After the first part the adapter is saved and loaded into a fresh base model, is tested,
and is trained on. huggingface/transformers#48595 (huggingface/sentence-transformers#3980).
"""

import argparse
import os
import tempfile

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

WORDS, LENGTH, CLASSES = 60, 12, 4


class Classifier(nn.Module):
    """An encoder of words with a head that was trained for another purpose."""

    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.query = nn.Linear(width, width)
        self.dense = nn.Linear(width, width)
        self.classifier = nn.Linear(width, CLASSES)

    def forward(self, words):
        x = self.embed(words)
        weight = (self.query(x) @ x.mT / x.size(-1) ** 0.5).softmax(-1)
        return self.classifier(torch.tanh(self.dense((weight @ x).mean(1))))


class LoraLinear(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base_layer = base
        self.lora_A = nn.Parameter(torch.randn(rank, base.in_features) / rank)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base_layer(x) + x @ self.lora_A.T @ self.lora_B.T


class ModulesToSaveWrapper(nn.Module):
    """A trained copy in front of a frozen module."""

    def __init__(self, module):
        super().__init__()
        self.original_module = module
        self.modules_to_save = nn.Linear(module.in_features, module.out_features)
        self.modules_to_save.load_state_dict(module.state_dict())

    def forward(self, x):
        return self.modules_to_save(x)


def published():
    torch.manual_seed(123)
    return Classifier()


def add_adapter(model):
    model.requires_grad_(False)
    model.query = LoraLinear(model.query)
    model.dense = LoraLinear(model.dense)
    model.classifier = ModulesToSaveWrapper(model.classifier)
    model.classifier.modules_to_save.requires_grad_(True)
    return model


def save_adapter(model, path):
    """Names in the file are those of modules, without the wrappers' own parts."""
    trained = {k: p.detach() for k, p in model.named_parameters() if p.requires_grad}
    torch.save({k.replace(".modules_to_save", ""): p for k, p in trained.items()}, path)


def load_adapter(path, rename):
    model = add_adapter(published())
    state = torch.load(path)
    if rename:
        for key in [k for k in state if k.startswith("classifier.")]:
            name = key.replace("classifier.", "classifier.modules_to_save.")
            state[name] = state.pop(key)
    model.load_state_dict(state, strict=False)
    return model


def complaints(count, seed):
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(WORDS, CLASSES, generator=generator)
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(WORDS, (count, LENGTH), generator=generator)
    return words, weight[words].sum(1).argmax(1)


@torch.no_grad()
def accuracy(model, words, label):
    model.eval()
    right = (model(words).argmax(1) == label).float().mean().item()
    model.train()
    return right


def train(model, loader, first, last):
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    step = first
    while step < last:
        for words, label in loader:
            if step == last:
                break
            loss = F.cross_entropy(model(words), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=120)
    options = cli.parse_args()
    torch.set_num_threads(1)
    model = add_adapter(published())
    data, valid = complaints(1600, 2), complaints(400, 3)
    loader = DataLoader(TensorDataset(*data), batch_size=32, shuffle=True)
    half = options.steps // 2
    train(model, loader, 0, half)
    print(f"accuracy {accuracy(model, *valid):.4f}", flush=True)
    with torch.no_grad():
        before = model(valid[0])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "adapter.pt")
        save_adapter(model, path)
        model = load_adapter(path, rename=options.fixed)
    print(f"loaded: accuracy {accuracy(model, *valid):.4f}", flush=True)
    with torch.no_grad():
        gap = (model(valid[0]) - before).abs().max().item()
    train(model, loader, half, options.steps)
    print(f"accuracy {accuracy(model, *valid):.4f}", flush=True)
    if options.prove:
        print(f"outputs change by up to {gap:.4f} between saving and loading")
        print("fault shows:", "yes" if gap > 1e-4 else "no", flush=True)


if __name__ == "__main__":
    main()
