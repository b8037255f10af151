"""A small training on a device, of one of several kinds. Prints one line of JSON: the
bits of its losses and weights, and the median time of a step."""

import argparse
import hashlib
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, width, blocks, tokens):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
            for _ in range(blocks)
        )
        self.head = nn.Linear(width, tokens)

    def forward(self, x):
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def make_optimizer(kind, model):
    options = {"fused": {"fused": True}, "foreach": {"foreach": True}}
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return torch.optim.AdamW(model.parameters(), lr=1e-3, **options.get(kind, {}))


def wrap(kind, model, x):
    if kind == "compile":
        return torch.compile(model)
    if kind == "reduce-overhead":
        return torch.compile(model, mode="reduce-overhead")
    if kind == "graphed":
        return torch.cuda.make_graphed_callables(model, (x.clone(),))
    return model


def train(options):
    torch.manual_seed(options.seed)
    device = torch.device(options.device)
    model = Net(options.width, options.blocks, options.tokens).to(device)
    if options.frozen:
        for parameter in list(model.parameters())[2:]:
            parameter.requires_grad_(False)
    shape = (8, 8, options.length + 1)
    data = torch.randint(0, options.tokens, shape, device=device)
    forward = wrap(options.kind, model, data[0, :, :-1])
    optimizer = make_optimizer(options.kind, model)
    half = {"bf16": torch.bfloat16, "scaler": torch.float16}.get(options.kind)
    scaler = torch.amp.GradScaler(device.type, enabled=options.kind == "scaler")
    losses, times = [], []
    for step in range(options.steps):
        batch = data[step % len(data)]
        optimizer.zero_grad()
        with torch.autocast(device.type, half, enabled=half is not None):
            logits = forward(batch[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach().clone())
        if device.type == "cuda" and step % 10 == 9:
            torch.cuda.synchronize()
            times.append(time.perf_counter())
    spans = [later - earlier for earlier, later in zip(times, times[1:])]
    return {
        "losses": bits(losses),
        "weights": bits([p.detach() for p in model.parameters()]),
        "step_ms": sorted(spans)[len(spans) // 2] * 100 if spans else None,
    }


def bits(tensors):
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--kind", default="eager")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--frozen", action="store_true")
    torch.use_deterministic_algorithms(True, warn_only=True)
    print(json.dumps(train(parser.parse_args())))
