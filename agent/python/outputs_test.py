"""What graphs of losses say of the last operations before the loss, and of layers."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.distributions import Categorical, Independent, Normal, kl_divergence
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, TARGETS, said


class OutputsCase(HooksCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.net = nn.Linear(5, 4)

    def scores(self, count=8):
        return self.net(torch.randn(count, 5))

    def of(self, loss, name):
        """Values of the scalar that a backward of the loss wrote."""
        HooksCase.setUp(self)  # only the first backwards are looked at
        self.backward(loss)
        return said(name)


class Reach(OutputsCase):
    NAME = "loss.targets_out_of_reach"
    LOSSES = (
        F.mse_loss,
        F.smooth_l1_loss,
        F.huber_loss,
        F.l1_loss,
        lambda x, y: F.mse_loss(y, x),
        lambda x, y: (x - y).pow(2).mean(),
        lambda x, y: (y - x).abs().mean(),
    )

    def test_targets_that_an_activation_never_gives(self):
        standard = torch.randn(8, 4)
        shares = torch.rand(8, 4)
        for loss in self.LOSSES:
            for activation in (torch.sigmoid, torch.relu, torch.tanh):
                of = lambda y: self.of(loss(activation(self.scores()), y), self.NAME)
                self.assertEqual(of(3 * standard), [1.0])
                self.assertEqual(of(shares), [0.0])

    def test_sizes_that_change_behind_the_activation(self):
        """Of a device a difference's operands are not copied with all that is between."""
        losses = self.LOSSES[:3] if self.ON_DEVICE else self.LOSSES
        y = torch.randn(32)
        for view in (
            lambda x: x.squeeze(-1),
            lambda x: x.view(-1),
            lambda x: x.flatten(),
            lambda x: x[:, 0],
        ):
            for loss in losses:
                for targets, wrong in ((3 * y, [1.0]), (y.sigmoid(), [0.0])):
                    predicted = view(torch.sigmoid(self.scores(32)[:, :1]))
                    given = self.of(loss(predicted, targets), self.NAME)
                    self.assertEqual(given, wrong)

    def test_an_order_that_changes_behind_the_activation(self):
        """The targets are not known."""
        y = 3 * torch.randn(4, 8)
        loss = (torch.sigmoid(self.scores()).T - y).abs().mean()
        self.assertEqual(self.of(loss, self.NAME), [])
        one_of_many = (torch.sigmoid(self.scores(32))[:, 0] - y.view(-1)).abs().mean()
        self.assertEqual(self.of(one_of_many, self.NAME), [])

    def test_a_softmax_and_one_hot_targets(self):
        right = F.one_hot(TARGETS, 4).float()
        loss = lambda y: F.mse_loss(self.scores().softmax(1), y)
        self.assertEqual(self.of(loss(right), self.NAME), [0.0])
        self.assertEqual(self.of(loss(4 * right), self.NAME), [1.0])

    def test_noise_that_reaches_a_little_further(self):
        y = torch.rand(8, 4).round() + 0.01 * torch.randn(8, 4)
        loss = F.mse_loss(torch.sigmoid(self.scores()), y)
        self.assertEqual(self.of(loss, self.NAME), [0.0])

    def test_what_is_no_limit(self):
        y = 3 * torch.randn(8, 4)
        for scores in (
            self.scores(),
            2 * torch.sigmoid(self.scores()),
            F.leaky_relu(self.scores()),
            torch.stack([torch.sigmoid(self.scores()), self.scores()])[0],
        ):
            self.assertEqual(self.of(F.mse_loss(scores, y), self.NAME), [])
        few = F.mse_loss(torch.sigmoid(self.scores(1)), y[:1])
        self.assertEqual(self.of(few, self.NAME), [])


class Scores(OutputsCase):
    def test_scores_that_are_rectified(self):
        name = "loss.scores_rectified"
        right = F.one_hot(TARGETS, 4).float()
        entropy = lambda x: F.cross_entropy(x, TARGETS)
        binary = lambda x: F.binary_cross_entropy_with_logits(x, right)
        for loss in (entropy, binary):
            self.assertEqual(self.of(loss(torch.relu(self.scores())), name), [1.0])
            self.assertEqual(self.of(loss(self.scores()), name), [0.0])
            pooled = torch.relu(self.scores())[..., None].expand(8, 4, 3).mean(2)
            self.assertEqual(self.of(loss(pooled), name), [0.0])
        error = F.mse_loss(torch.relu(self.scores()), right)
        self.assertEqual(self.of(error, name), [])

    def test_scores_that_are_dropped(self):
        name = "loss.scores_dropped"
        head = nn.Linear(4, 4)
        entropy = lambda x: F.cross_entropy(x, TARGETS)
        for loss in (entropy, lambda x: F.mse_loss(x, torch.randn(8, 4))):
            dropped = F.dropout(self.scores(), 0.5)
            self.assertEqual(self.of(loss(dropped), name), [1.0])
            self.assertEqual(self.of(loss(head(dropped.detach())), name), [0.0])
            masked = self.scores() * (torch.rand(8, 4) > 0.5)
            self.assertEqual(self.of(loss(masked), name), [0.0])

    def test_complex_numbers(self):
        factor = torch.randn(8, 4, dtype=torch.complex64)
        wave = lambda: torch.fft.fft(self.scores())
        for loss in (
            (factor * wave()).real.square().mean(),
            (torch.ones(8, 4) - factor * wave()).abs().mean(),
            (factor * (0.1 * wave()).exp()).abs().mean(),
        ):
            self.assertEqual(self.of(loss, "loss.scores_dropped"), [])

    def test_one_class(self):
        name = "loss.one_class"
        zeros = torch.zeros(8, dtype=torch.int64)
        entropy = lambda x: F.cross_entropy(x, zeros)
        self.assertEqual(self.of(entropy(self.scores()[:, :1]), name), [1.0])
        self.assertEqual(self.of(entropy(self.scores()), name), [0.0])
        shares = lambda x: F.binary_cross_entropy(x.softmax(1), torch.zeros_like(x))
        self.assertEqual(self.of(shares(self.scores()[:, :1]), name), [1.0])
        self.assertEqual(self.of(shares(self.scores()), name), [0.0])
        squares = lambda x: F.mse_loss(x.softmax(1), torch.ones_like(x))
        self.assertEqual(self.of(squares(self.scores()[:, :1]), name), [1.0])

    def test_a_divergence_of_the_target(self):
        name = "loss.kl_of_target"
        given = torch.randn(8, 4).softmax(1)
        kl = lambda x, y: F.kl_div(x, y, reduction="batchmean")
        mine = lambda: self.scores().softmax(1)
        self.assertEqual(self.of(kl(given.log(), mine()), name), [1.0])
        self.assertEqual(self.of(kl(mine().log(), given), name), [0.0])
        self.assertEqual(self.of(kl(mine().log(), mine()), name), [0.0])


class Advantages(OutputsCase):
    NAME = "loss.advantage_has_gradient"

    def setUp(self):
        super().setUp()
        self.critic = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
        self.states, self.returns = torch.randn(8, 5), torch.randn(8)

    def chosen(self):
        return Categorical(logits=self.net(self.states)).log_prob(TARGETS)

    def values(self):
        return self.critic(self.states).squeeze(-1)

    def of_product(self, chosen, advantages):
        loss = -(chosen * advantages).mean()
        return self.of(loss, self.NAME)

    def advantages(self, normalised=False):
        found = self.returns - self.values()
        return (found - found.mean()) / (found.std() + 1e-8) if normalised else found

    def test_the_critic_is_trained_by_the_actor(self):
        rows = torch.arange(8)
        logarithms = lambda: self.net(self.states).log_softmax(1)
        for chosen in (
            self.chosen,
            lambda: Categorical(self.net(self.states).softmax(1)).log_prob(TARGETS),
            lambda: logarithms()[rows, TARGETS],
            lambda: logarithms().gather(1, TARGETS[:, None]).squeeze(1),
            lambda: torch.stack([self.chosen()[i] for i in range(8)]),
            lambda: Normal(self.net(self.states), 0.5).log_prob(self.returns[0]).sum(1),
        ):
            self.assertEqual(self.of_product(chosen(), self.advantages()), [1.0])
            normalised = self.advantages(normalised=True)
            self.assertEqual(self.of_product(-chosen(), normalised), [1.0])

    def test_advantages_as_numbers(self):
        advantages = self.advantages().detach()
        self.assertEqual(self.of_product(self.chosen(), advantages), [0.0])
        self.assertEqual(self.of_product(self.chosen(), self.returns), [0.0])

    def test_other_products(self):
        shares = self.net(self.states).softmax(1)
        entropy = shares * shares.log()
        self.assertEqual(self.of(entropy.sum(), self.NAME), [])
        focal = (1 - self.chosen().exp()) ** 2
        self.assertEqual(self.of_product(self.chosen(), focal), [0.0])


class Policies(OutputsCase):
    """Of an actor: its entropy, and PPO's ratio."""

    def setUp(self):
        super().setUp()
        self.states, self.advantages = torch.randn(8, 5), torch.randn(8)

    def of_entropy(self, sign, by_hand=False, acts=True):
        scores = self.net(self.states)
        if by_hand:
            logarithms = scores.log_softmax(1)
            chosen = logarithms[torch.arange(8), TARGETS]
            entropy = -(logarithms.exp() * logarithms).sum(1)
        else:
            policy = Categorical(logits=scores)
            chosen, entropy = policy.log_prob(TARGETS), policy.entropy()
        loss = -(chosen * self.advantages).mean() if acts else scores.square().mean()
        return self.of(loss + sign * 0.01 * entropy.mean(), "loss.lowers_entropy")

    def test_an_entropy_with_the_wrong_sign(self):
        for by_hand in (False, True):
            self.assertEqual(self.of_entropy(1, by_hand), [1.0], by_hand)
            self.assertEqual(self.of_entropy(-1, by_hand), [0.0], by_hand)

    def test_an_entropy_that_is_to_fall(self):
        """As in adaptation at test time: no action is drawn."""
        self.assertEqual(self.of_entropy(1, acts=False), [])

    def test_logarithms_of_several_origins(self):
        logarithms = self.net(self.states).log_softmax(1)
        both = torch.cat((logarithms[:4], logarithms[4:] * 2))
        entropy = -(both.clamp(min=-9) * logarithms.exp()).sum(1).mean()
        chosen = logarithms[torch.arange(8), TARGETS]
        self.assertEqual(self.of(chosen.mean() + entropy, "loss.lowers_entropy"), [])

    def test_an_entropy_that_is_subtracted_or_divided(self):
        for sign, expected in ((1, 0.0), (-1, 1.0)):
            policy = Categorical(logits=self.net(self.states))
            loss = -(policy.log_prob(TARGETS) * self.advantages).mean()
            both = loss - sign * (policy.entropy() / 100).sum()
            self.assertEqual(self.of(both, "loss.lowers_entropy"), [expected])

    def of_normal(self, sign, by_hand=False, weighted=True, each=False):
        log_std = nn.Parameter(torch.zeros(4))
        policy = Normal(self.net(self.states), log_std.exp())
        chosen = policy.log_prob(torch.randn(8, 4)).sum(1)
        entropy = policy.entropy().sum(1)
        if by_hand:
            entropy = (log_std + 1.42).sum()
        loss = -chosen * self.advantages if weighted else -chosen
        loss = loss + sign * 0.01 * entropy.mean() if each else loss.mean()
        both = loss.mean() if each else loss + sign * 0.01 * entropy.mean()
        return self.of(both, "loss.lowers_entropy")

    def test_the_entropy_of_a_normal_distribution(self):
        for by_hand in (False, True):
            self.assertEqual(self.of_normal(1, by_hand), [1.0])
            self.assertEqual(self.of_normal(-1, by_hand), [0.0])
        self.assertEqual(self.of_normal(1, weighted=False), [])
        self.assertEqual(self.of_normal(1, each=True), [])  # not looked at

    def test_the_ratio_of_a_normal_distribution(self):
        for sign, expected in ((-1, 0.0), (1, 1.0)):
            mean, deviation = self.net(self.states).chunk(2, 1)
            policy = Independent(Normal(mean, F.softplus(deviation)), 1)
            chosen = policy.log_prob(torch.randn(8, 2))
            ratio = (chosen - chosen.detach()).exp()
            clipped = ratio.clamp(0.8, 1.2) * self.advantages
            gain = torch.min(ratio * self.advantages, clipped).mean()
            gain = gain - sign * 0.01 * policy.entropy().mean()
            self.assertEqual(self.of(-gain, "loss.lowers_entropy"), [expected])

    def test_likelihoods_of_normal_distributions(self):
        for loss in (
            lambda missed, other, mean: -missed.mean(),
            lambda missed, other, mean: -(missed * self.advantages + missed).mean(),
            lambda missed, other, mean: -(missed * self.advantages).mean() - other,
            lambda missed, other, mean: -(missed * self.advantages).mean() + mean,
        ):
            mean, deviation = self.net(self.states).chunk(2, 1)
            given = Normal(mean, deviation.exp())
            missed = given.log_prob(torch.randn(8, 2)).sum(1)
            other = given.log_prob(torch.randn(8, 2)).sum(1).mean()
            found = self.of(loss(missed, other, mean.mean()), "loss.lowers_entropy")
            self.assertEqual(found, [])

    def of_ratio(self, shift, low=0.8, high=1.2):
        chosen = Categorical(logits=self.net(self.states)).log_prob(TARGETS)
        ratio = (chosen - chosen.detach() + shift).exp()
        clipped = ratio.clamp(low, high) * self.advantages
        loss = -torch.min(ratio * self.advantages, clipped).mean()
        return self.of(loss, "loss.ratio_starts_apart")

    def test_a_ratio_that_is_not_1_at_first(self):
        self.assertEqual(self.of_ratio(0.3), [1.0])
        self.assertEqual(self.of_ratio(0.0), [0.0])
        few = torch.zeros(8)
        few[:3] = 0.3
        self.assertEqual(self.of_ratio(few), [0.0])

    def test_other_limits(self):
        self.assertEqual(self.of_ratio(0.3, low=1e-8, high=0.5), [])
        self.assertEqual(self.of_ratio(0.3, low=None, high=5.0), [])

    def test_a_ratio_after_an_update(self):
        HooksCase.setUp(self)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.net(self.states).sum().backward()
        optimizer.step()
        chosen = Categorical(logits=self.net(self.states)).log_prob(TARGETS)
        ((chosen - 1).exp().clamp(0.8, 1.2) * self.advantages).mean().backward()
        self.assertEqual(said("loss.ratio_starts_apart"), [])


class LatePolicies(Policies):
    ON_DEVICE = True


class Layers(OutputsCase):
    NAME = "loss.layers_are_linear"

    def of_layers(self, *layers, x=None):
        x = torch.randn(8, 5) if x is None else x
        scores = nn.Sequential(*layers)(x)
        return self.of(F.cross_entropy(scores, TARGETS), self.NAME)

    def test_layers_without_an_activation(self):
        first, last = nn.Linear(5, 16), nn.Linear(16, 4)
        self.assertEqual(self.of_layers(first, last), [1.0])
        self.assertEqual(self.of_layers(first, nn.Dropout(0.5), last), [1.0])
        pictures = torch.randn(8, 3, 6, 6)
        layers = nn.Conv2d(3, 8, 3), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(8, 4)
        self.assertEqual(self.of_layers(*layers, x=pictures), [1.0])

    def test_an_activation_anywhere(self):
        first, last = nn.Linear(5, 16), nn.Linear(16, 4)
        norms = nn.LayerNorm(16), nn.BatchNorm1d(16)
        for between in (nn.ReLU(), nn.Tanh(), nn.Softmax(1), *norms):
            self.assertEqual(self.of_layers(first, between, last), [0.0])
        wide = nn.Linear(16, 16)
        self.assertEqual(self.of_layers(first, nn.GELU(), wide, last), [0.0])

    def test_layers_that_are_narrow_on_purpose(self):
        self.assertEqual(self.of_layers(nn.Linear(5, 2), nn.Linear(2, 4)), [])

    def test_one_layer(self):
        self.assertEqual(self.of_layers(nn.Linear(5, 4)), [])
        base, adapter = nn.Linear(5, 4), nn.Linear(5, 4)
        x = torch.randn(8, 5)
        loss = F.cross_entropy(base(x) + adapter(x), TARGETS)
        self.assertEqual(self.of(loss, self.NAME), [])


class Variational(OutputsCase):
    NAME = "loss.noise_by_variance"

    def setUp(self):
        super().setUp()
        self.encoder, self.decoder = nn.Linear(5, 8), nn.Linear(4, 5)

    def of_scale(self, scale, divergence=None):
        x = torch.randn(16, 5)
        mean, log = self.encoder(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * scale(log)
        kl = divergence or (lambda mean, log: 1 + log - mean.pow(2) - log.exp())
        error = F.mse_loss(self.decoder(z), x)
        return self.of(error - 0.5 * kl(mean, log).sum(1).mean(), self.NAME)

    def test_the_variance_scales_the_noise(self):
        self.assertEqual(self.of_scale(torch.exp), [1.0])
        self.assertEqual(self.of_scale(lambda log: log.exp() + 1e-6), [])

    def test_the_deviation_does(self):
        self.assertEqual(self.of_scale(lambda log: (0.5 * log).exp()), [0.0])
        self.assertEqual(self.of_scale(lambda log: (log / 2).exp()), [0.0])

    def test_logarithms_of_deviations(self):
        kl = lambda mean, log: 2 * log - mean.pow(2) - (2 * log).exp()
        self.assertEqual(self.of_scale(torch.exp, kl), [])
        squares = lambda mean, log: log - (mean.pow(2) + log.exp().pow(2)) / 2
        self.assertEqual(self.of_scale(torch.exp, squares), [])


class Samples(HooksCase):
    NAME = "opt.samples_without_gradient"

    def train(self, draw, act=lambda normal: None):
        torch.manual_seed(0)

        class Encoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.mean = nn.Linear(5, 4)

            def forward(self, x):
                normal = Normal(self.mean(x), 1.0)
                return normal, draw(normal)

        net = Encoder()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            normal, drawn = net(torch.randn(8, 5))
            act(normal)
            (drawn + normal.mean).square().mean().backward()
            optimizer.step()
        return said(self.NAME)

    def test_a_sample_without_a_gradient(self):
        self.assertEqual(self.train(lambda normal: normal.sample()), [1.0])

    def test_a_sample_with_one(self):
        self.assertEqual(self.train(lambda normal: normal.rsample()), [0.0])

    def test_one_that_is_drawn_between_two_networks(self):
        kl = lambda m, s: (m**2 + s**2 - 1 - 2 * s.log()).mean()
        prior = Normal(torch.zeros(4), torch.ones(4))
        divergence = lambda m, s: kl_divergence(Normal(m, s), prior).mean()
        draw = lambda m, s: Normal(m, s).sample()
        error = lambda m, s: (m - 1).square().mean()
        for draw, term, found in (
            (draw, kl, {1.0}),
            (draw, divergence, {1.0}),
            (torch.normal, kl, {1.0}),
            (torch.normal, divergence, {1.0}),
            (lambda m, s: Normal(m, s).rsample(), kl, {0.0}),
            (lambda m, s: m + s * torch.randn(8, 4), kl, set()),
            # What is generated is the next input.
            (draw, error, set()),
            (lambda m, s: torch.normal(m, s).detach(), error, set()),
            (lambda m, s: torch.normal(m.detach(), s.detach()), kl, set()),
        ):
            HooksCase.setUp(self)
            encoder, decoder = nn.Linear(5, 8), nn.Linear(4, 5)
            both = [*encoder.parameters(), *decoder.parameters()]
            optimizer = torch.optim.SGD(both, lr=0.1)
            for _ in range(2):
                optimizer.zero_grad()
                mean, std = encoder(torch.randn(8, 5)).chunk(2, 1)
                std = std.exp()
                drawn = decoder(draw(mean, std))
                (drawn.square().mean() + term(mean, std)).backward()
                optimizer.step()
            self.assertEqual(set(said(self.NAME)), found)

    def test_actions_that_are_tried_out(self):
        actor, critic = nn.Linear(5, 4), nn.Linear(9, 1)
        optimizer = torch.optim.SGD([*actor.parameters(), *critic.parameters()], 0.1)
        for draw in (lambda m: Normal(m, 0.1).sample(), lambda m: torch.normal(m, 0.1)):
            for _ in range(2):
                x = torch.randn(8, 5)
                tried = draw(actor(x))
                value = critic(torch.cat([x, tried], 1))
                optimizer.zero_grad()
                (value - 1).square().mean().backward()
                best = critic(torch.cat([x, actor(x)], 1)).mean()
                (0.1 * actor(x).square().mean() - best).backward()
                optimizer.step()
            self.assertEqual(said(self.NAME), [])

    def test_the_likelihood_of_a_sample_of_torch_normal(self):
        actor = nn.Linear(5, 4)
        optimizer = torch.optim.SGD(actor.parameters(), lr=0.1)
        for _ in range(2):
            mean = actor(torch.randn(8, 5))
            tried = torch.normal(mean, 0.1)
            optimizer.zero_grad()
            likelihood = -((tried - mean) ** 2) / (2 * 0.1**2)
            (0.1 * mean.square().mean() - likelihood.mean()).backward()
            optimizer.step()
        self.assertNotIn(1.0, said(self.NAME))

    def test_the_likelihood_of_a_sample(self):
        likelihood = lambda normal: normal.log_prob(normal.sample())
        self.assertEqual(self.train(likelihood), [0.0])

    def test_a_sample_that_nobody_trains(self):
        def draw(normal):
            with torch.no_grad():
                normal.sample()
            return Normal(torch.zeros(8, 4), 1.0).sample()

        self.assertEqual(self.train(draw), [])

    def test_an_action_that_is_tried_out(self):
        act = lambda normal: normal.sample()
        self.assertEqual(self.train(lambda normal: 0.0, act), [])


if __name__ == "__main__":
    unittest.main()
