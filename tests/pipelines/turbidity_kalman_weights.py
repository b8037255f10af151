"""River turbidity for the intake of a waterworks, tracked sample by sample.

The network weights are the state of an extended Kalman filter: each new sensor reading
corrects all of them at once through a full covariance matrix. The derivative of the
prediction itself is taken (there is no loss to differentiate), and readings come in
the order in which the river delivers them.
"""

import argparse
import math
import pathlib
import tempfile
from collections import deque

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


class KalmanFilter(torch.optim.Optimizer):
    """Extended Kalman filter over weights that drift as a slow random walk.

    ``step(residual)`` expects d(prediction)/d(weight) in ``.grad``.
    """

    def __init__(self, params, prior=0.5, noise=0.05, drift=1e-6):
        defaults = dict(noise=noise, drift=drift)
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("one group of parameters, please")
        weights = self.param_groups[0]["params"]
        size = sum(p.numel() for p in weights)
        self.covariance = prior * torch.eye(size, dtype=weights[0].dtype)

    @torch.no_grad()
    def step(self, residual):
        group = self.param_groups[0]
        slope = torch.cat([p.grad.flatten() for p in group["params"]])
        reach = self.covariance @ slope
        innovation_var = slope @ reach + group["noise"]
        gain = reach / innovation_var
        weights = parameters_to_vector(group["params"])
        vector_to_parameters(weights + gain * residual, group["params"])
        self.covariance -= torch.outer(gain, reach)
        self.covariance.diagonal().add_(group["drift"])
        self.covariance = 0.5 * (self.covariance + self.covariance.T)
        return innovation_var


class River:
    """Endless readings of rain, flow, snow melt; turbidity reacts with a lag."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.hour = 0
        self.soil, self.flow, self.mud = 0.3, 1.0, 0.5

    def _uniform(self):
        return torch.rand((), generator=self.generator).item()

    def _normal(self):
        return torch.randn((), generator=self.generator).item()

    def __iter__(self):
        return self

    def __next__(self):
        self.hour += 1
        season = math.sin(2 * math.pi * self.hour / 1500)
        storm = self._uniform() < 0.05 + 0.03 * season
        rain = -2.0 * math.log(1 - self._uniform()) if storm else 0.0
        self.soil = 0.97 * self.soil + 0.05 * rain
        melt = max(0.0, 0.4 * season + 0.1 * self._normal())
        self.flow = 0.9 * self.flow + 0.1 * (1 + 0.8 * rain * self.soil + melt)
        carried = 1.2 * math.tanh(self.flow - 0.8) * (1 + 0.5 * self.soil)
        self.mud = 0.75 * self.mud + 0.25 * carried
        turbidity = self.mud + 0.04 * self._normal()
        return (rain, self.soil, self.flow, melt), turbidity


class Window:
    """Inputs: the readings of now and turbidity of the last hours."""

    def __init__(self, lags):
        self.past = deque(maxlen=lags)

    @property
    def full(self):
        return len(self.past) == self.past.maxlen

    def inputs(self, readings):
        return torch.tensor([*readings, *self.past], dtype=torch.float64)

    def push(self, turbidity):
        self.past.append(turbidity)


def network(inputs, hidden):
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.Tanh(),
        nn.Linear(hidden, 1),
        nn.Flatten(start_dim=0),
    ).double()


class Score:
    """Errors of forecasts made before the reading was known."""

    def __init__(self):
        self.model, self.naive, self.z = [], [], []

    def add(self, residual, naive, var):
        self.model.append(residual**2)
        self.naive.append(naive**2)
        self.z.append(residual**2 / var)

    def line(self, last):
        def root(values):
            recent = values[-last:]
            return math.sqrt(sum(recent) / len(recent))

        return (
            f"rmse {root(self.model):.4f}  last value {root(self.naive):.4f}  "
            f"standardised {root(self.z):.2f}"
        )


def track(args):
    torch.manual_seed(args.seed)
    river = River(args.seed + 77)
    window = Window(args.lags)
    model = network(4 + args.lags, args.hidden)
    tracker = KalmanFilter(model.parameters(), noise=args.noise)
    score = Score()
    model.train()
    for hour, (readings, turbidity) in zip(range(args.hours), river):
        if window.full:
            tracker.zero_grad()
            prediction = model(window.inputs(readings)).squeeze()
            prediction.backward()
            residual = turbidity - prediction.item()
            naive = turbidity - window.past[-1]
            var = tracker.step(residual)
            score.add(residual, naive, var.item())
        window.push(turbidity)
        if (hour + 1) % args.report == 0:
            trace = tracker.covariance.trace().item()
            print(f"hour {hour + 1:5d}  {score.line(args.report)}  trace {trace:.3f}")
    return model, tracker, river, window


@torch.no_grad()
def frozen_forecast(model, river, window, hours):
    """One more stretch of river with the weights as they are."""
    model.eval()
    total = 0.0
    for _, (readings, turbidity) in zip(range(hours), river):
        total += (model(window.inputs(readings)).item() - turbidity) ** 2
        window.push(turbidity)
    return math.sqrt(total / hours)


def main():
    parser = argparse.ArgumentParser(description="turbidity tracking")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hours", type=int, default=4000)
    parser.add_argument("--report", type=int, default=400)
    parser.add_argument("--hidden", type=int, default=10)
    parser.add_argument("--lags", type=int, default=3)
    parser.add_argument("--noise", type=float, default=0.0018)
    args = parser.parse_args()
    model, tracker, river, window = track(args)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "tracker.pt")
        torch.save(
            {"weights": model.state_dict(), "covariance": tracker.covariance}, path
        )
    error = frozen_forecast(model, river, window, hours=500)
    print(f"next 500 hours without corrections: rmse {error:.4f}")


if __name__ == "__main__":
    main()
