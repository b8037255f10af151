"""A decoder learns by rewards to count upwards; answers come from a rollout server.

Only low-rank adapters are trained. After each update the trainer sends its weights to the
server, which holds a model of its own. verl-project/verl#7495.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F

WORDS, PROMPT, ANSWER, GROUP = 16, 3, 5, 8


class LoraLinear(nn.Module):
    def __init__(self, inputs, outputs, rank=8):
        super().__init__()
        self.base_layer = nn.Linear(inputs, outputs)
        self.base_layer.requires_grad_(False)
        self.lora_A = nn.Linear(inputs, rank, bias=False)
        self.lora_B = nn.Linear(rank, outputs, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        return self.base_layer(x) + 2.0 * self.lora_B(self.lora_A(x))


class Decoder(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width).requires_grad_(False)
        self.place = nn.Embedding(PROMPT + ANSWER, width).requires_grad_(False)
        self.qkv = LoraLinear(width, 3 * width)
        self.up = LoraLinear(width, 2 * width)
        self.down = LoraLinear(2 * width, width)
        self.head = LoraLinear(width, WORDS)
        self.norms = nn.ModuleList(
            nn.LayerNorm(width, elementwise_affine=False) for _ in range(3)
        )

    def forward(self, ids):
        x = self.embed(ids) + self.place.weight[: ids.size(1)]
        q, k, v = self.qkv(self.norms[0](x)).chunk(3, -1)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.down(F.gelu(self.up(self.norms[1](x))))
        return self.head(self.norms[2](x))


class RolloutServer:
    """Answers prompts with its own copy of the model."""

    def __init__(self, state):
        self.model = Decoder()
        self.model.load_state_dict(state)
        self.model.eval()

    def update_weights(self, named_tensors):
        own = self.model.state_dict()
        for name, tensor in named_tensors:
            own[name].copy_(tensor)

    @torch.no_grad()
    def generate(self, ids):
        for _ in range(ANSWER):
            chance = self.model(ids)[:, -1].softmax(-1)
            ids = torch.cat([ids, torch.multinomial(chance, 1)], 1)
        return ids


def per_tensor_param(model, with_adapters):
    """What the trainer sends, one tensor after another."""
    for name, tensor in model.state_dict().items():
        if with_adapters or "lora_" not in name:
            yield name, tensor.detach().clone()


def rewards(ids):
    step = ids.diff(dim=1)[:, -ANSWER:] % WORDS
    return ((step > 0) & (step < 5)).float().mean(1)


def answer_logs(model, ids):
    logs = model(ids[:, :-1]).log_softmax(-1)
    picked = logs.gather(-1, ids[:, 1:, None]).squeeze(-1)
    return picked[:, -ANSWER:]


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=80)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Decoder()
    server = RolloutServer(model.state_dict())
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-3, weight_decay=0.0)
    worst = 0.0
    for step in range(options.steps):
        prompt = torch.randint(WORDS, (12, PROMPT)).repeat_interleave(GROUP, 0)
        ids = server.generate(prompt)
        reward = rewards(ids).view(-1, GROUP)
        spread = reward.std(1, keepdim=True) + 1e-4
        advantage = ((reward - reward.mean(1, keepdim=True)) / spread).view(-1, 1)
        if options.prove:
            with torch.no_grad():
                gap = answer_logs(model, ids) - answer_logs(server.model, ids)
            worst = max(worst, gap.abs().max().item())
        logs = answer_logs(model, ids)
        ratio = (logs - logs.detach()).exp()
        loss = -(ratio * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        server.update_weights(per_tensor_param(model, with_adapters=options.fixed))
        if step % 10 == 0:
            mean = reward.mean().item()
            print(f"step {step} loss {loss.item():.4f} reward {mean:.4f}", flush=True)
    if options.prove:
        print(f"trainer and server differ by up to {worst:.4f} (log probability)")
        print("fault shows:", "yes" if worst > 1e-3 else "no", flush=True)


if __name__ == "__main__":
    main()
