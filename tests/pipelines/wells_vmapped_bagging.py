"""Water level of wells from a table: twelve bagged nets trained as ONE batched function.

No module in the training loop, no .grad and no torch.optim: the weights of the members are stacked
tensors, torch.func gives all gradients at once, and Adam is written out in four lines. Each member
has its own start, its own Poisson(1) weights for the rows (the bootstrap) and its own order of rows.
Rows of weight zero are out of bag for a member and give an honest error without a test set.
The targets are standardised with the training rows; errors are reported in metres.
"""
import argparse

import torch
import torch.nn as nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

MEMBERS, COLUMNS, TRAIN, TEST, BATCH = 12, 7, 600, 300, 60


def wells(n, g):
    x = torch.rand(n, COLUMNS, generator=g)
    depth, rain, clay, pump = x[:, 0], x[:, 1], x[:, 2], x[:, 3]
    metres = (
        12 * depth
        + 6 * rain * (1 - clay)
        - 5 * pump.square()
        + 2 * torch.sin(6 * x[:, 4])
        + 1.0 * torch.randn(n, generator=g)
    )
    return x, metres


def member():
    return nn.Sequential(
        nn.Linear(COLUMNS, 48),
        nn.SiLU(),
        nn.Linear(48, 48),
        nn.SiLU(),
        nn.Linear(48, 1),
    )


def adam(params, grads, m, v, t, lr, b1=0.9, b2=0.99, eps=1e-8):
    """Pure: returns new tensors. Elementwise, so the members do not touch each other."""
    m = {k: b1 * m[k] + (1 - b1) * grads[k] for k in params}
    v = {k: b2 * v[k] + (1 - b2) * grads[k].square() for k in params}
    new = {
        k: params[k]
        - lr * (m[k] / (1 - b1**t)) / ((v[k] / (1 - b2**t)).sqrt() + eps)
        for k in params
    }
    return new, m, v


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=20)
    epochs = ap.parse_args().epochs
    torch.manual_seed(25)
    g = torch.Generator().manual_seed(26)
    x, metres = wells(TRAIN, g)
    x_test, metres_test = wells(TEST, g)
    centre, spread = x.mean(0), x.std(0)
    x, x_test = (x - centre) / spread, (x_test - centre) / spread
    middle, scale = metres.mean(), metres.std()
    y = (metres - middle) / scale

    nets = [member() for _ in range(MEMBERS)]
    params, buffers = stack_module_state(nets)
    assert not buffers
    params = {k: p.detach() for k, p in params.items()}  # plain tensors from here on
    skeleton = member().to("meta")  # structure only, holds no numbers
    bag = torch.poisson(
        torch.ones(MEMBERS, TRAIN), generator=g
    )  # one row of weights per member
    out_of_bag = bag == 0
    assert out_of_bag.any(0).float().mean() > 0.95

    def predict(p, rows):
        return functional_call(skeleton, p, (rows,)).squeeze(-1)

    def loss_of(p, rows, target, weight):
        # divided by the batch, not by the sum of weights: unbiased for the weighted mean over rows
        return (weight * (predict(p, rows) - target).square()).sum() / len(rows)

    all_grads = vmap(grad_and_value(loss_of))
    predict_shared = vmap(predict, in_dims=(0, None))  # the same rows for each member

    def report(p):
        """Test error of the mean prediction, mean of single errors, out-of-bag error; in metres."""
        made = predict_shared(p, x_test) * scale + middle
        assert made.shape == (MEMBERS, TEST)
        together = (made.mean(0) - metres_test).square().mean().sqrt().item()
        single = (made - metres_test).square().mean(1).sqrt().mean().item()
        inside = predict_shared(p, x) * scale + middle
        votes = out_of_bag.sum(0)
        known = votes > 0
        honest = (inside * out_of_bag).sum(0)[known] / votes[known]
        oob = (honest - metres[known]).square().mean().sqrt().item()
        return together, single, oob

    m = {k: torch.zeros_like(p) for k, p in params.items()}
    v = {k: torch.zeros_like(p) for k, p in params.items()}
    first = {k: p.clone() for k, p in params.items()}
    start, t, per_epoch = report(params), 0, TRAIN // BATCH
    print(
        "untrained: together {:.2f} m, single {:.2f} m, out of bag {:.2f} m".format(
            *start
        )
    )
    history = []
    for epoch in range(epochs):
        lr = 4e-3 * (1 - epoch / epochs) + 2e-4
        orders = torch.stack(
            [torch.randperm(TRAIN, generator=g) for _ in range(MEMBERS)]
        )
        total = torch.zeros(MEMBERS)
        for at in range(per_epoch):
            rows = orders[:, at * BATCH : (at + 1) * BATCH]  # (members, batch)
            grads, losses = all_grads(params, x[rows], y[rows], bag.gather(1, rows))
            t += 1
            params, m, v = adam(params, grads, m, v, t, lr)
            total += losses
        history.append((total / per_epoch).mean().item())
        if epoch % 4 == 0 or epoch == epochs - 1:
            print(
                "epoch {:2d} loss {:.4f} (worst member {:.4f}) | together {:.3f} m, single {:.3f} m, out "
                "of bag {:.3f} m".format(
                    epoch + 1,
                    history[-1],
                    (total / per_epoch).max().item(),
                    *report(params),
                )
            )
    end = report(params)
    for k in params:  # every member learned, each its own
        moved = (params[k] - first[k]).flatten(1).norm(dim=1)
        assert (moved > 0).all()
        assert not torch.allclose(params[k][0], params[k][1])

    # take one member out of the stack again, as an ordinary module
    best = member()
    best.load_state_dict({k: p[0] for k, p in params.items()})
    with torch.no_grad():
        assert torch.allclose(
            best.eval()(x_test).squeeze(1), predict_shared(params, x_test)[0], atol=1e-4
        )
    print(
        f"test error {start[0]:.2f} -> {end[0]:.2f} m (noise 1.0 m), a single member {end[1]:.2f} m"
    )
    if epochs >= 20:
        assert (
            end[0] < 0.45 * start[0]
            and end[0] < end[1]
            and history[-1] < 0.3 * history[0]
        )


if __name__ == "__main__":
    main()
