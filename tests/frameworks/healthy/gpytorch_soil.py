"""A map of soil moisture from a few hundred probes with gpytorch. First a sparse
variational process on mini-batches (natural gradient for the variational distribution,
Adam for everything else, ELBO with the number of all data), then an exact process on a
subset by its marginal likelihood on the full data, its rate lowered in stages.

    python gpytorch_soil.py --steps 80
"""

import argparse

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.variational import (
    NaturalVariationalDistribution,
    VariationalStrategy,
)
from torch.utils.data import DataLoader, TensorDataset


def probes(count, seed):
    g = torch.Generator().manual_seed(seed)
    place = torch.rand(count, 2, generator=g)
    east, north = place.unbind(1)
    wet = torch.sin(6 * east) * torch.cos(4 * north) + 0.5 * east
    return place, wet + 0.1 * torch.randn(count, generator=g)


class SparseField(gpytorch.models.ApproximateGP):
    def __init__(self, inducing):
        distribution = NaturalVariationalDistribution(len(inducing))
        strategy = VariationalStrategy(
            self, inducing, distribution, learn_inducing_locations=True
        )
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = ScaleKernel(RBFKernel(ard_num_dims=2))

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class ExactField(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.LinearMean(2)
        self.covar_module = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2))

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def train_sparse(x, y, steps):
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = SparseField(x[:48].clone())
    natural = gpytorch.optim.NGD(
        model.variational_parameters(), num_data=len(y), lr=0.1
    )
    adam = torch.optim.Adam(
        [
            {"params": model.hyperparameters()},
            {"params": likelihood.parameters(), "lr": 0.05},
        ],
        lr=0.02,
    )
    elbo = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    loader = DataLoader(TensorDataset(x, y), batch_size=100, shuffle=True)
    model.train()
    likelihood.train()
    step = 0
    while step < steps:
        for places, wet in loader:
            natural.zero_grad()
            adam.zero_grad()
            loss = -elbo(model(places), wet)
            loss.backward()
            natural.step()
            adam.step()
            step += 1
            if step % 10 == 0:
                print(f"sparse step {step} loss {loss.item():.4f}", flush=True)
            if step == steps:
                break
    return model, likelihood


def train_exact(x, y, steps):
    likelihood = gpytorch.likelihoods.GaussianLikelihood(
        noise_constraint=gpytorch.constraints.GreaterThan(1e-4)
    )
    model = ExactField(x, y, likelihood)
    model.train()
    likelihood.train()
    # The likelihood is a part of the model: its noise is trained, too.
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    stages = [steps // 2, 3 * steps // 4]
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, stages, gamma=0.3)
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss = -evidence(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 10 == 0:
            noise = likelihood.noise.item()
            print(f"exact step {step} loss {loss.item():.4f} noise {noise:.4f}")
    return model, likelihood


@torch.no_grad()
def report(name, model, likelihood, x, y):
    model.eval()
    likelihood.eval()
    with gpytorch.settings.fast_pred_var():
        guess = likelihood(model(x))
    error = (guess.mean - y).square().mean().sqrt().item()
    inside = ((guess.mean - y).abs() < 2 * guess.stddev).float().mean().item()
    print(f"{name}: error {error:.4f}, within two deviations {inside:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=80, help="of each process")
    parser.add_argument("--seed", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    x, y = probes(700, seed=args.seed)
    held_out = probes(200, seed=args.seed + 1)
    report("sparse", *train_sparse(x, y, args.steps), *held_out)
    report("exact", *train_exact(x[:250], y[:250], args.steps), *held_out)


if __name__ == "__main__":
    main()
