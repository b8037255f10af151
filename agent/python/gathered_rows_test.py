"""Tests of hooks/gathered_rows.py."""

import copy
import unittest

import torch
from hooks_case import HooksCase, said
from torch import nn
from torch.distributed.nn import functional as with_backward
from torch.futures import Future
from torch.nn import functional as F

distributed = torch.distributed

NAME = "loss.own_rows_constant"
RANK, WORLD, ROWS, WIDTH = 1, 3, 6, 8


class Peers(distributed.ProcessGroup):
    """The other ranks have rows that follow from this one's."""

    def getBackendName(self):  # noqa: N802
        return "peers"

    @property
    def group_name(self):
        return "peers"

    def of(self, rows, rank):
        rows = rows.detach()
        return rows if rank == RANK else rows.roll(rank + 1, 1) * (rank + 1)

    def allgather(self, outputs, inputs, options=None):
        for rank, output in enumerate(outputs[0]):
            output.copy_(self.of(inputs[0], rank))
        return done()

    def _allgather_base(self, output, given, options=None):
        output.copy_(torch.cat([self.of(given, rank) for rank in range(WORLD)]))
        return done()

    all_gather_single = _allgather_base

    def allreduce(self, tensors, options=None):
        return done()

    def alltoall(self, outputs, inputs, options=None):
        for output, given in zip(outputs, inputs):
            output.copy_(given)
        return done()


def done():
    future = Future()
    future.set_result(None)
    return torch._C._distributed_c10d._create_work_from_future(future)


def make_group(store, rank, size, timeout):
    return Peers(rank, size)


class GatherLayer(torch.autograd.Function):
    @staticmethod
    def forward(context, rows):
        return tuple(parts_of(rows))

    @staticmethod
    def backward(context, *gradients):
        gradients = torch.stack(gradients)
        distributed.all_reduce(gradients)
        return gradients[RANK]


def parts_of(rows):
    parts = [torch.zeros_like(rows) for _ in range(WORLD)]
    distributed.all_gather(parts, rows.contiguous())
    return parts


def gathered(rows):
    return torch.cat(parts_of(rows))


def put_back(rows):
    parts = parts_of(rows)
    parts[RANK] = rows
    return torch.cat(parts)


def in_one_tensor(rows):
    into = torch.empty(WORLD * len(rows), WIDTH)
    distributed.all_gather_into_tensor(into, rows)
    return into


def choose(scores):
    """The loss of rows whose own column is the right one."""
    return F.cross_entropy(scores / 0.5, torch.arange(len(scores)) + RANK * ROWS)


class Case(HooksCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not hasattr(distributed.Backend, "PEERS"):
            distributed.Backend.register_backend("peers", make_group, devices=["cpu"])

    def setUp(self):
        super().setUp()
        store = distributed.HashStore()
        distributed.init_process_group(
            "peers", store=store, rank=RANK, world_size=WORLD
        )
        self.images, self.texts = nn.Linear(5, WIDTH), nn.Linear(5, WIDTH)
        self.scale = nn.Parameter(torch.ones([]))
        parameters = [*self.images.parameters(), *self.texts.parameters(), self.scale]
        self.optimizer = torch.optim.SGD(parameters, lr=0.1)

    def tearDown(self):
        distributed.destroy_process_group()
        super().tearDown()

    def train(self, loss, steps=5):
        """loss: of embeddings of images and of texts."""
        for _ in range(steps):
            x = torch.randn(ROWS, 5)
            images = F.normalize(self.images(x), dim=-1)
            texts = F.normalize(self.texts(x + 0.1 * torch.randn(ROWS, 5)), dim=-1)
            self.optimizer.zero_grad()
            self.backward(loss(images, texts))
            self.optimizer.step()
        return said(NAME)


class Broken(Case):
    def finds(self, loss):
        found = self.train(loss)
        self.assertEqual(found, [1.0, 1.0, 1.0])
        self.assertEqual(len([one for one in said(f"{NAME}.site") if one > 0]), 3)

    def test_two_kinds(self):
        def loss(images, texts):
            all_images, all_texts = gathered(images), gathered(texts)
            of_images = choose(self.scale.exp() * images @ all_texts.t())
            return of_images + choose(self.scale.exp() * texts @ all_images.t())

        self.finds(loss)

    def test_one_kind_in_one_tensor(self):
        self.finds(lambda z, _: choose(F.linear(z, in_one_tensor(z))))

    def test_einsum(self):
        self.finds(lambda z, _: choose(torch.einsum("nc,kc->nk", z, gathered(z))))

    def test_the_other_way_round(self):
        self.finds(lambda z, _: choose((gathered(z) @ z.t()).t()))

    def test_scaled_by_what_is_trained(self):
        self.finds(lambda z, _: choose(z @ (self.scale.exp() * gathered(z)).t()))

    def test_normalised_afterwards(self):
        def loss(_, texts):
            rows = texts * 3.0
            keys = F.normalize(gathered(rows), dim=1)
            return choose(F.normalize(rows, dim=1) @ keys.t())

        self.finds(loss)

    def test_two_views_one_behind_the_other(self):
        def loss(first, second):
            keys = torch.cat([gathered(first), gathered(second)])
            return choose(torch.cat([first, second]) @ keys.t())

        self.finds(loss)

    def test_one_of_two_is_put_back(self):
        def loss(images, texts):
            return choose((put_back(images) @ gathered(texts).t())[:ROWS])

        self.finds(loss)

    def test_with_a_bias(self):
        self.finds(lambda z, _: choose(F.linear(z, gathered(z), torch.ones(18))))


class Healthy(Case):
    def keeps(self, loss, found=0.0):
        expected = [] if found is None else [found] * 5
        self.assertEqual(self.train(loss), expected)

    def test_put_back(self):
        def loss(images, texts):
            of_images = choose(images @ put_back(texts).t())
            return of_images + choose(texts @ put_back(images).t())

        self.keeps(loss)

    def test_put_back_into_one_tensor(self):
        def loss(images, texts):
            rows = in_one_tensor(texts)
            rows[RANK * ROWS : (RANK + 1) * ROWS] = texts
            return choose(images @ rows.t())

        self.keeps(loss)

    def test_gathered_with_a_backward(self):
        self.keeps(lambda z, _: choose(z @ torch.cat(with_backward.all_gather(z)).t()))
        self.setUpAgain()
        self.keeps(lambda z, _: choose(z @ torch.cat(GatherLayer.apply(z)).t()))

    def setUpAgain(self):  # noqa: N802
        self.tearDown()
        self.setUp()

    def test_keys_of_a_momentum_encoder(self):
        """Which is the encoder at first, and gets the same samples."""
        keys_of = copy.deepcopy(self.images)

        def loss(images, texts):
            with torch.no_grad():
                for slow, fast in zip(keys_of.parameters(), self.images.parameters()):
                    slow.lerp_(fast, 0.01)
                keys = F.normalize(keys_of(self.x), dim=1)
            gathered(images)  # a measure of how they spread
            return choose(images @ gathered(keys).t())

        def forward(module, given):
            self.x = given[0]

        self.images.register_forward_pre_hook(forward)
        self.keeps(loss, None)

    def test_for_a_metric_alone(self):
        def loss(images, texts):
            rows = gathered(texts)
            with torch.no_grad():
                (images @ rows.t()).argmax(1)
            return F.mse_loss(images, texts)

        self.keeps(loss, None)

    def test_a_local_loss_beside_a_metric(self):
        def loss(images, texts):
            gathered(texts)
            return F.cross_entropy(images @ texts.t(), torch.arange(ROWS))

        self.keeps(loss, None)

    def test_own_keys_without_a_gradient_and_a_queue(self):
        queue = torch.randn(WORLD * ROWS, WIDTH)

        def loss(images, texts):
            gathered(texts)
            keys = torch.cat([texts.detach(), queue])
            return F.cross_entropy(images @ keys.t(), torch.arange(ROWS))

        self.keeps(loss, None)

    def test_a_queue_of_old_keys(self):
        queue = [torch.randn(WORLD * ROWS, WIDTH)]

        def loss(images, texts):
            negatives = images @ queue[0].t()
            positives = (images * texts).sum(1, keepdim=True)
            queue[0] = gathered(texts)
            scores = torch.cat([positives, negatives], 1)
            return F.cross_entropy(scores, torch.zeros(ROWS, dtype=torch.long))

        self.keeps(loss, None)

    def test_rows_of_the_others_alone(self):
        def loss(images, texts):
            others = [rows for i, rows in enumerate(parts_of(texts)) if i != RANK]
            scores = torch.cat([images @ texts.t(), images @ torch.cat(others).t()], 1)
            return F.cross_entropy(scores, torch.arange(ROWS))

        self.keeps(loss, None)

    def test_own_rows_in_a_product_of_their_own(self):
        """Which replaces the constants."""

        def loss(images, texts):
            scores = images @ gathered(texts).t()
            scores[:, RANK * ROWS : (RANK + 1) * ROWS] = images @ texts.t()
            return choose(scores)

        self.keeps(loss, None)

    def test_targets_of_a_predictor(self):
        """Whose gradients are stopped on purpose."""
        head = nn.Linear(WIDTH, WIDTH)
        self.keeps(lambda z, _: choose(head(z) @ gathered(z).t()), None)

    def test_keys_that_are_gathered_without_gradients(self):
        def loss(images, _):
            with torch.no_grad():
                keys = gathered(images)
            return choose(images @ keys.t())

        self.keeps(loss, None)

    def test_ranks_that_have_the_same_rows(self):
        def loss(images, _):
            same = images.detach().mean(1, keepdim=True) + torch.zeros(ROWS, WIDTH)
            same.requires_grad_()
            return choose(same * images @ gathered(same * 1.0).t())

        self.keeps(loss, None)

    def test_only_the_first_losses_are_looked_at(self):
        found = self.train(lambda z, _: choose(z @ put_back(z).t()), 20)
        self.assertEqual(found, [0.0] * 8)


class OnDevice(Case):
    ON_DEVICE = True

    def test_says_nothing(self):
        self.assertEqual(self.train(lambda z, _: choose(z @ gathered(z).t())), [])


if __name__ == "__main__":
    unittest.main()
