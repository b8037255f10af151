#!/usr/bin/env python
# Behaviour cloning with action chunks: an arm pushes a dot to a goal, seen through a small camera.
import argparse
import logging
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class TrainPipelineConfig:
    steps: int = 80
    batch_size: int = 32
    eval_freq: int = 20
    log_freq: int = 20
    chunk_size: int = 4
    lr: float = 1e-3
    seed: int = 1000
    n_episodes: int = 20


class ACTPolicy(nn.Module):
    def __init__(self, cfg, dim=48):
        super().__init__()
        self.chunk_size = cfg.chunk_size
        self.vision = nn.Sequential(
            nn.Conv2d(2, 12, 3, 2, 1),
            nn.BatchNorm2d(12),
            nn.ReLU(),
            nn.Conv2d(12, 24, 3, 2, 1),
            nn.BatchNorm2d(24),
            nn.ReLU(),
        )
        self.project = nn.Linear(24, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(16, dim))
        self.block = nn.TransformerEncoderLayer(
            dim, 4, 96, dropout=0.1, batch_first=True
        )
        self.head = nn.Linear(dim, cfg.chunk_size * 2)

    def predict_chunk(self, image):
        tokens = self.vision(image).flatten(2).transpose(1, 2)
        h = self.block(self.project(tokens) + self.pos)
        return self.head(h.mean(1)).view(-1, self.chunk_size, 2)

    def forward(self, batch):
        loss = F.l1_loss(self.predict_chunk(batch["image"]), batch["action"])
        return loss, {"l1_loss": loss.item()}

    @torch.no_grad()
    def select_action(self, image):
        return self.predict_chunk(image)[:, 0]


def render(position, goal):
    """Two channels of 16 x 16: the arm and the goal."""
    axis = torch.linspace(-1, 1, 16)
    out = []
    for p in (position, goal):
        dx = (axis[None, None, :] - p[:, 0, None, None]) ** 2
        dy = (axis[None, :, None] - p[:, 1, None, None]) ** 2
        out.append(torch.exp(-(dx + dy) / 0.05))
    return 3 * torch.stack(out, 1) + 0.1 * torch.randn(len(position), 2, 16, 16)


def expert(position, goal):
    return (goal - position).clamp(-0.2, 0.2)


def make_batch(cfg):
    position, goal = torch.rand(2, cfg.batch_size, 2) * 1.8 - 0.9
    image, actions, p = render(position, goal), [], position
    for _ in range(cfg.chunk_size):
        a = expert(p, goal)
        actions.append(a + 0.02 * torch.randn_like(a))
        p = p + a
    return {"image": image, "action": torch.stack(actions, 1)}


def eval_policy(policy, cfg):
    """Rolls the policy out and returns the share of the episodes that reach the goal."""
    policy.eval()
    position, goal = torch.rand(2, cfg.n_episodes, 2) * 1.8 - 0.9
    for _ in range(12):
        position = (position + policy.select_action(render(position, goal))).clamp(
            -1, 1
        )
    distance = (position - goal).norm(dim=1)
    return {
        "pc_success": 100 * (distance < 0.15).float().mean().item(),
        "avg_distance": distance.mean().item(),
    }


def update_policy(policy, batch, optimizer, grad_clip_norm=10.0):
    loss, info = policy.forward(batch)
    loss.backward()
    info["grad_norm"] = nn.utils.clip_grad_norm_(
        policy.parameters(), grad_clip_norm
    ).item()
    optimizer.step()
    optimizer.zero_grad()
    return info


def train(cfg, args):
    torch.manual_seed(cfg.seed)
    policy = ACTPolicy(cfg)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=cfg.lr, weight_decay=1e-4)
    logging.info("%d learnable parameters", sum(p.numel() for p in policy.parameters()))

    policy.train()
    for step in range(1, cfg.steps + 1):
        info = update_policy(policy, make_batch(cfg), optimizer)
        if step % cfg.log_freq == 0:
            logging.info(
                "step %d loss %.4f grdn %.3f", step, info["l1_loss"], info["grad_norm"]
            )
        if step % cfg.eval_freq == 0:
            result = eval_policy(policy, cfg)
            if args.fixed:
                policy.train()
            logging.info(
                "eval at step %d: success %.0f%%, distance %.3f",
                step,
                result["pc_success"],
                result["avg_distance"],
            )
    return policy


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=TrainPipelineConfig.steps)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    cfg = TrainPipelineConfig(steps=args.steps)
    policy = train(cfg, args)
    if args.prove:
        seen = policy.vision[1].num_batches_tracked.item()
        print(f"batches that the running statistics took in: {seen} of {cfg.steps}")
        print("fault shows:", "yes" if seen < cfg.steps else "no")


if __name__ == "__main__":
    main()
