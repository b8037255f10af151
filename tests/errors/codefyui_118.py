"""
Node graph runner: every box of the canvas is a small class with `execute(inputs) -> outputs`.
This script is the exported version of a graph
    dataset -> model -> optimizer -> training loop -> checkpoint saver
    checkpoint loader -> training loop -> report
for a churn table (the data are simulated).
"""
import argparse
import os
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class DatasetNode:
    def execute(self, n=1600, batch_size=64):
        g = torch.Generator().manual_seed(31)
        x = torch.randn(n, 18, generator=g)
        x[:, 3] *= 6.0
        x[:, 7] *= 0.2
        w = torch.randn(18, generator=g)
        score = x @ w * 0.3 + torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]
        y = (score + 0.5 * torch.randn(n, generator=g) > 0).float()
        loader = DataLoader(
            TensorDataset(x, y),
            batch_size=batch_size,
            shuffle=True,
            generator=torch.Generator().manual_seed(8),
        )
        return {"loader": loader, "x": x, "y": y}


class ModelNode:
    def execute(self, hidden=96):
        torch.manual_seed(13)
        net = nn.Sequential(
            nn.Linear(18, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )
        return {"model": net}


class OptimizerNode:
    def execute(self, model, lr=0.003, kind="Adam"):
        opt = getattr(torch.optim, kind)(model.parameters(), lr=lr, betas=(0.95, 0.999))
        return {"optimizer": opt}


class CheckpointSaverNode:
    def execute(self, model, optimizer, epoch, path):
        torch.save(
            {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "epoch": epoch,
            },
            path,
        )
        return {"path": path}


class CheckpointLoaderNode:
    def execute(self, path, model, optimizer):
        ck = torch.load(path, map_location="cpu")
        model.load_state_dict(ck["model"])
        optimizer.load_state_dict(ck["optimizer"])
        return {"model": model, "optimizer": optimizer, "epoch": ck["epoch"]}


class TrainingLoopNode:
    def __init__(self, keep_optimizer):
        self.keep_optimizer = keep_optimizer

    def execute(self, model, optimizer, loader, max_steps, epoch=0):
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = model.to(device)
        if not self.keep_optimizer:
            # bind the optimizer to the parameters on the device
            settings = {
                k: v
                for k, v in optimizer.param_groups[0].items()
                if k in optimizer.defaults and k != "params"
            }
            optimizer = type(optimizer)(model.parameters(), **settings)
        loss_fn = nn.BCEWithLogitsLoss()
        history, step, norms = [], 0, []
        model.train()
        while step < max_steps:
            total, seen = 0.0, 0
            for xb, yb in loader:
                xb, yb = xb.to(device), yb.to(device)
                loss = loss_fn(model(xb).squeeze(-1), yb)
                optimizer.zero_grad()
                loss.backward()
                before = [p.detach().clone() for p in model.parameters()]
                optimizer.step()
                norms.append(
                    sum(
                        (p.detach() - b).pow(2).sum()
                        for p, b in zip(model.parameters(), before)
                    )
                    .sqrt()
                    .item()
                )
                total += loss.item() * len(yb)
                seen += len(yb)
                step += 1
                if step >= max_steps:
                    break
            epoch += 1
            history.append(total / seen)
            print(
                f"  epoch {epoch:2d}  loss {history[-1]:.4f}  mean update {sum(norms[-25:]) / len(norms[-25:]):.4f}"
            )
        return {"model": model, "history": history, "epoch": epoch, "used": optimizer}


class ReportNode:
    @torch.no_grad()
    def execute(self, model, x, y):
        model.eval()
        acc = ((model(x).squeeze(-1) > 0).float() == y).float().mean().item()
        print(f"train accuracy {acc:.4f}")
        return {"accuracy": acc}


def adam_step(optimizer):
    s = optimizer.state_dict()["state"]
    return int(next(iter(s.values()))["step"]) if s else 0


def run(args):
    data = DatasetNode().execute()
    ckpt = os.path.join(tempfile.mkdtemp(prefix="canvas_"), "churn.pt")
    half = args.steps // 2

    print("run 1")
    model = ModelNode().execute()["model"]
    optimizer = OptimizerNode().execute(model)["optimizer"]
    loop = TrainingLoopNode(keep_optimizer=bool(args.fixed))
    out = loop.execute(model, optimizer, data["loader"], half)
    CheckpointSaverNode().execute(out["model"], optimizer, out["epoch"], ckpt)

    print("run 2 (continued from %s)" % os.path.basename(ckpt))
    model2 = ModelNode().execute()["model"]
    optimizer2 = OptimizerNode().execute(model2)["optimizer"]
    back = CheckpointLoaderNode().execute(ckpt, model2, optimizer2)
    out2 = loop.execute(
        back["model"],
        back["optimizer"],
        data["loader"],
        args.steps - half,
        back["epoch"],
    )
    ReportNode().execute(out2["model"], data["x"], data["y"])

    if args.prove:
        saved = len(torch.load(ckpt)["optimizer"]["state"])
        count = adam_step(out2["used"])
        print(
            f"moments in the file: {saved}, Adam's own step count at the end: {count} of {args.steps}"
        )
        print("fault shows:", "yes" if saved == 0 and count < args.steps else "no")
    os.remove(ckpt)
    os.rmdir(os.path.dirname(ckpt))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--steps", type=int, default=250, help="optimizer steps of both runs together"
    )
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    run(parser.parse_args())
