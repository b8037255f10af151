"""Tensors that are made where a parameter or a result was meant: attributes that no
optimizer has, terms of a loss without a graph. Each mistake, and right programs that
come close to it."""

import pathlib
import sys
import unittest
import warnings

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, SignsCase, last, said

from _traincheck import left_out_weights


class Scaled(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.layer = nn.Linear(5, 4)
        self.scale = scale

    def forward(self, x):
        return self.factor() * self.layer(x)

    def factor(self):
        return self.scale


class InAList(Scaled):
    def __init__(self, scale):
        super().__init__([scale])

    def factor(self):
        return self.scale[0]


class AsABuffer(Scaled):
    def __init__(self, scale):
        super().__init__(None)
        self.register_buffer("kept", scale)

    def factor(self):
        return self.kept


class Weigher(nn.Module):
    """Has no parameters: it is no model."""

    def __init__(self, scales):
        super().__init__()
        self.scales = scales

    def forward(self, losses):
        return sum(loss / scale + scale for loss, scale in zip(losses, self.scales))


class Equation(nn.Module):
    """Is to hold at points that it keeps."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(1, 1)
        self.points = torch.rand(8, 1, requires_grad=True)

    def forward(self, x):
        y = self.net(self.points).tanh()
        slope, *_ = torch.autograd.grad(y.sum(), self.points, create_graph=True)
        return (slope + y).square().mean()


def number():
    return torch.tensor(2.0, requires_grad=True)


class NotParameters(SignsCase):
    NAME = "opt.tensor_not_parameter"

    def train(self, net, further=(), by_hand=False, steps=4):
        optimizer = torch.optim.SGD([*net.parameters(), *further], lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            net(torch.randn(8, 5)).square().mean().backward()
            if by_hand:
                with torch.no_grad():
                    net.scale -= 0.01 * net.scale.grad
                net.scale.grad = None
            optimizer.step()
        return said(self.NAME)

    def test_an_attribute(self):
        for kind in (Scaled, InAList, AsABuffer):
            self.setUp()
            self.assertEqual(self.train(kind(number())), [0.0, 1.0], kind)

    def test_a_parameter_that_was_converted(self):
        parameter = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
        self.assertEqual(self.train(Scaled(parameter.float())), [0.0, 1.0])

    def test_parameters(self):
        self.assertEqual(self.train(Scaled(nn.Parameter(torch.ones(1)))), [])

    def test_what_the_optimizer_is_given(self):
        scale = number()
        self.assertEqual(self.train(Scaled(scale), [scale]), [0.0])

    def test_what_is_trained_by_hand(self):
        self.assertNotIn(1.0, self.train(Scaled(number()), by_hand=True))

    def test_an_input_that_is_kept(self):
        class Keeps(Scaled):
            def forward(self, x):
                self.seen = x.requires_grad_()
                return self.layer(self.seen)

        self.assertNotIn(1.0, self.train(Keeps(None)))

    def test_a_constant(self):
        self.assertEqual(self.train(Scaled(torch.ones(1))), [])

    def test_points_of_a_derivative(self):
        self.assertEqual(self.train(Equation()), [0.0])

    def test_derivatives_of_functions(self):
        net = Scaled(number())
        slopes = torch.func.vmap(torch.func.grad(lambda x: x.square().sum()))
        slopes(torch.randn(3, 2))
        self.assertEqual(self.train(net), [0.0, 1.0])

    def weigh(self, scales, held=()):
        self.setUp()
        net, weigher = nn.Linear(5, 4), Weigher(scales)
        optimizer = torch.optim.SGD([*net.parameters(), *held], lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            y = net(torch.randn(8, 5))
            weigher([y.square().mean(), y.abs().mean()]).backward()
            optimizer.step()
        return said(self.NAME)

    def test_a_module_that_weighs_losses(self):
        scales = [number(), number()]
        self.assertEqual(self.weigh(scales), [0.0, 1.0])
        scales = [number(), number()]
        self.assertEqual(self.weigh(scales, scales), [0.0])
        self.assertEqual(self.weigh([1.0, 2.0]), [])


class LeftOutParts(SignsCase):
    NAME = "opt.part_left_out"

    def train(self, *held, load=(), steps=4, later=()):
        self.setUp()
        net = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 4))
        for part in load:
            net[part].load_state_dict(
                nn.Linear(*net[part].weight.shape[::-1]).state_dict()
            )
        parts = [p for part in held for p in net[part].parameters()]
        optimizers = [torch.optim.SGD(parts, lr=0.1)]
        for _ in range(steps):
            net.zero_grad()
            net(torch.randn(8, 5)).square().mean().backward()
            for optimizer in optimizers:
                optimizer.step()
            if later and len(optimizers) == 1:
                more = [p for part in later for p in net[part].parameters()]
                optimizers.append(torch.optim.SGD(more, lr=0.1))
        return said(self.NAME)

    def test_a_head_that_is_in_no_group(self):
        self.assertEqual(self.train(0, 1), [0.0, 1.0])

    def test_all_of_it(self):
        self.assertEqual(self.train(0, 1, 2), [0.0])

    def test_a_head_alone(self):
        self.assertEqual(self.train(2), [])

    def test_what_was_loaded(self):
        self.assertEqual(self.train(1, 2, load=[0]), [0.0])

    def test_what_was_trained_before(self):
        self.setUp()
        net = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 4))
        for parts in (net, net[1:]):
            optimizer = torch.optim.SGD(parts.parameters(), lr=0.1)
            for _ in range(3):
                net(torch.randn(8, 5)).square().mean().backward()
                optimizer.step()
        self.assertNotIn(1.0, said(self.NAME))

    def test_an_optimizer_that_is_made_later(self):
        self.assertEqual(set(self.train(0, 1, later=[2])), {0.0})


class OtherModelTwice(HooksCase):
    """Critics that are models of their own, and an optimizer for all of them."""

    NAME = "opt.part_left_out"

    def train(self, hold, freeze=(), steps=4, alike=False):
        """hold: parameters of the critics' optimizer, from the critics."""
        HooksCase.setUp(self)
        generator = nn.Linear(3, 5)
        critics = [nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 1)) for _ in range(3)]
        if alike:
            critics[1][0].weight = critics[0][0].weight
        for number in freeze:
            critics[number].requires_grad_(False)
        first = torch.optim.SGD(generator.parameters(), lr=0.01)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is held twice
            second = torch.optim.SGD(hold(*critics), lr=0.01)
        for _ in range(steps):
            fake = generator(torch.randn(8, 3))
            second.zero_grad()
            sum(one(fake.detach()).square().mean() for one in critics).backward()
            second.step()
            first.zero_grad()
            sum(-one(fake).mean() for one in critics).backward()
            first.step()
        return said(self.NAME)

    def test_one_is_given_twice(self):
        twice = lambda a, b, c: [*a.parameters(), *b.parameters(), *a.parameters()]
        self.assertEqual(set(self.train(twice)), {0.0, 1.0})

    def test_all_of_them(self):
        everyone = lambda *critics: [p for one in critics for p in one.parameters()]
        self.assertEqual(set(self.train(everyone)), {0.0})
        self.assertEqual(set(self.train(everyone, alike=True)), {0.0})

    def test_all_of_them_and_one_twice(self):
        more = lambda a, b, c: [p for one in (a, b, c, a) for p in one.parameters()]
        self.assertEqual(set(self.train(more)), {0.0})

    def test_one_is_left_out(self):
        """As what judges and is not to learn."""
        two = lambda a, b, c: [*a.parameters(), *b.parameters()]
        self.assertEqual(set(self.train(two)), {0.0})
        # A weight that both have is held twice.
        self.assertEqual(set(self.train(two, alike=True)), {0.0})

    def test_one_is_frozen(self):
        twice = lambda a, b, c: [*a.parameters(), *b.parameters(), *a.parameters()]
        self.assertEqual(set(self.train(twice, freeze=[2])), {0.0})


class Uncertainty(nn.Module):
    """Weighs losses by what it learns."""

    def __init__(self):
        super().__init__()
        self.log_vars = nn.Parameter(torch.zeros(2))

    def forward(self, *losses):
        pairs = zip(losses, self.log_vars)
        return sum(torch.exp(-s) * loss + s for loss, s in pairs)


class Error(nn.Module):
    """Gives its loss itself."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 4)

    def forward(self, x):
        return self.layer(x).square().mean()


class LeftOutWeights(HooksCase):
    NAME = "opt.part_left_out"

    def train(self, criterion=None, held=(), also=lambda: None, steps=12):
        net, given = nn.Linear(5, 4), criterion or Uncertainty()
        parameters = [*net.parameters(), *held]
        optimizer = torch.optim.SGD(parameters, lr=0.01)
        for _ in range(steps):
            optimizer.zero_grad()
            out = net(torch.randn(8, 5))
            given(out.square().mean(), out.abs().mean()).backward()
            optimizer.step()
            also()
        return said(self.NAME)

    def test_nobody_holds_them(self):
        self.assertEqual(self.train(), [0.0, 1.0])

    def test_some_steps_say_nothing(self):
        self.assertEqual(self.train(steps=8), [0.0])

    def test_an_optimizer_holds_them(self):
        criterion = Uncertainty()
        held = criterion.parameters()
        self.assertEqual(self.train(criterion, held), [0.0])

    def test_one_of_their_own(self):
        criterion = Uncertainty()
        own = torch.optim.SGD(criterion.parameters(), lr=0.1)
        also = lambda: (own.step(), own.zero_grad())
        self.assertNotIn(1.0, self.train(criterion, also=also))

    def test_one_that_is_over(self):
        criterion = Uncertainty()
        own = torch.optim.SGD(criterion.parameters(), lr=0.1)
        self.train(criterion, also=own.step, steps=2)
        del own
        self.assertNotIn(1.0, self.train(criterion))

    def test_they_are_moved_by_hand(self):
        criterion = Uncertainty()

        def moves(clear):
            for one in criterion.parameters():
                one.data -= 0.1 * one.grad
                clear(one)

        for clear in (
            lambda one: one.grad.zero_(),
            lambda one: setattr(one, "grad", None),
            lambda one: None,
        ):
            self.setUp()
            found = self.train(criterion, also=lambda: moves(clear))
            self.assertNotIn(1.0, found)

    def test_lookups_end_while_no_model_is_new(self):
        class Counted:
            generation = lookups = 0

            def find(self, module):
                self.lookups += 1

        models, counts = Counted(), []
        observer = left_out_weights.LeftOutWeights(models, None)
        loss = torch.ones((), requires_grad=True)
        for _ in range(2):
            for _ in range(1100):
                observer.forward_ended(nn.MSELoss(), loss)
            counts.append(models.lookups)
            models.generation += 1
        self.assertEqual(counts, [1024, 2048])

    def test_after_many_other_losses(self):
        other = Error()
        for _ in range(1100):
            other(torch.randn(8, 5))
        self.assertEqual(self.train(), [0.0, 1.0])

    def test_beside_many_other_losses(self):
        other = Error()
        also = lambda: [other(torch.randn(8, 5)) for _ in range(200)]
        self.assertEqual(self.train(also=also), [0.0, 1.0])

    def test_somebody_clears_their_gradients(self):
        criterion = Uncertainty()
        found = self.train(criterion, also=criterion.zero_grad)
        self.assertNotIn(1.0, found)

    def test_they_are_loaded(self):
        criterion = Uncertainty()
        criterion.load_state_dict({"log_vars": torch.ones(2)})
        self.assertNotIn(1.0, self.train(criterion))

    def test_they_are_frozen(self):
        criterion = Uncertainty()
        criterion.requires_grad_(False)
        self.assertNotIn(1.0, self.train(criterion))

    def test_what_gives_no_loss(self):
        """Means and deviations of inputs may be parameters of a module."""

        class Scales(nn.Module):
            def __init__(self):
                super().__init__()
                self.mean = nn.Parameter(torch.zeros(5))

            def forward(self, x):
                return x - self.mean

        scales, net = Scales(), nn.Linear(5, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(12):
            optimizer.zero_grad()
            net(scales(torch.randn(8, 5))).square().mean().backward()
            optimizer.step()
        self.assertNotIn(1.0, said(self.NAME))

    def test_a_loss_of_what_another_network_sees(self):
        """Which is not trained, and nobody has turned its gradients off."""

        class Features(nn.Module):
            def __init__(self):
                super().__init__()
                self.seen = nn.Linear(1, 3)

            def forward(self, *losses):
                return self.seen(torch.stack(losses)[:, None]).square().sum()

        self.assertNotIn(1.0, self.train(Features()))


class NewTerms(HooksCase):
    NAME = "loss.term_without_graph"

    def train(self, term, further=(), rounds=4):
        """term: of the loss, of what the model gave."""
        net = nn.Linear(5, 4)
        optimizer = torch.optim.SGD([*net.parameters(), *further], lr=0.1)
        for _ in range(rounds):
            optimizer.zero_grad()
            given = net(torch.randn(8, 5))
            loss = given.square().mean() + 0.5 * term(given)
            loss.backward()
            optimizer.step()
        return said(self.NAME)

    def test_a_mean_of_copied_numbers(self):
        def term(given):
            return torch.tensor(given[:, 0].tolist(), requires_grad=True).mean()

        self.assertEqual(self.train(term), [1.0] * 3)

    def test_one_copied_number(self):
        def term(given):
            return torch.tensor(given.abs().mean().item(), requires_grad=True)

        self.assertEqual(self.train(term), [1.0] * 3)

    def test_a_computed_term(self):
        self.assertEqual(self.train(lambda given: given.abs().mean()), [0.0] * 4)

    def test_a_weight_that_is_learned(self):
        weight = torch.zeros(1, requires_grad=True)
        said_of_it = self.train(lambda given: weight.sum(), [weight])
        self.assertEqual(said_of_it, [0.0] * 4)

    def test_a_weight_that_is_trained_by_hand(self):
        weight = torch.zeros(1, requires_grad=True)

        def term(given):
            with torch.no_grad():
                weight.sub_(0.1)
            return weight.sum()

        self.assertEqual(self.train(term), [0.0] * 3)

    def test_an_input_that_another_term_has_too(self):
        net = nn.Linear(5, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            x = torch.randn(8, 5, requires_grad=True)
            (net(x).square().mean() + 0.1 * x.square().mean()).backward()
            optimizer.step()
        self.assertEqual(said(self.NAME), [0.0] * 4)

    def test_a_loss_of_one_term(self):
        self.assertEqual(self.train(lambda given: 0.0), [])


if __name__ == "__main__":
    unittest.main()
