"""Training loops of many shapes, each in a forked process of its own.

    loops.py [NAME ...]

Prints "NAME PID" as each begins. torch is imported once, before the forks.
"""

import gc
import os
import sys
import threading

import torch
import torch._dynamo  # which the first optimizer imports
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, os.environ["TRAINCHECK_TEST_MODULE"])
import traincheckd

LOOPS = {}


def loop(function):
    LOOPS[function.__name__] = function
    return function


def loader(batches, size=2):
    data = TensorDataset(torch.randn(batches * size, 3))
    return DataLoader(data, batch_size=size)


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def batch():
    return torch.randn(2, 3)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.01)


def train(model, optimizer, x):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()


@loop
def plain():
    model, data = net(), loader(3)
    optimizer = sgd(model)
    for _ in range(2):
        for (x,) in data:
            train(model, optimizer, x)


@loop
def without_loader():
    model = net()
    optimizer = sgd(model)
    for _ in range(3):
        train(model, optimizer, batch())


@loop
def accumulation():
    """Groups of 3, 3 and 1."""
    model, data = net(), loader(7)
    optimizer = sgd(model)
    for index, (x,) in enumerate(data):
        model(x).sum().backward()
        if index % 3 == 2 or index == 6:
            optimizer.step()
            optimizer.zero_grad()


def adversaries():
    """Trains both with one batch."""
    generator, critic = net(), nn.Linear(1, 1)
    of_generator, of_critic = sgd(generator), sgd(critic)

    def both(x):
        of_critic.zero_grad()
        critic(generator(x).detach()).sum().backward()
        of_critic.step()
        of_generator.zero_grad()
        critic(generator(x)).sum().backward()
        of_generator.step()

    return both


@loop
def gan():
    both = adversaries()
    for (x,) in loader(4):
        both(x)


@loop
def wgan():
    """Three steps of the critic for one of the generator."""
    generator, critic = net(), nn.Linear(1, 1)
    of_generator, of_critic = sgd(generator), sgd(critic)
    for _ in range(3):
        for _ in range(3):
            of_critic.zero_grad()
            with torch.no_grad():
                fake = generator(batch())
            critic(fake).sum().backward()
            of_critic.step()
        of_generator.zero_grad()
        critic(generator(batch())).sum().backward()
        of_generator.step()


@loop
def closure():
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    for (x,) in loader(3):

        def again():
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            return loss

        optimizer.step(again)


@loop
def scaler_skips():
    """The second of four batches has a gradient that is not finite."""
    model = net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for index, (x,) in enumerate(loader(4)):
        optimizer.zero_grad()
        loss = model(x).sum() * (float("inf") if index == 1 else 1)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@loop
def step_never_reached():
    model = net()
    optimizer = sgd(model)
    for (x,) in loader(4):
        optimizer.zero_grad()
        model(x).sum().backward()


@loop
def step_and_clear_never_reached():
    model, data = net(), loader(3)
    sgd(model)
    for _ in range(2):
        for (x,) in data:
            model(x).sum().backward()


@loop
def without_optimizer():
    model = net()
    for (x,) in loader(3):
        model(x).sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad
                parameter.grad = None


@loop
def without_backward():
    model = net()
    for (x,) in loader(3):
        loss = model(x).sum()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients):
                parameter -= 0.01 * gradient


@loop
def evaluation_inside():
    model, data, held_out = net(), loader(4), loader(2)
    optimizer = sgd(model)
    for index, (x,) in enumerate(data):
        train(model, optimizer, x)
        if index % 2:
            model.eval()
            with torch.no_grad():
                for (y,) in held_out:
                    model(y)
            model.train()


@loop
def evaluation_with_gradients_at_the_fetch():
    """Evaluates between the epochs; the loop itself has gradients enabled."""
    model, data, held_out = net(), loader(2), loader(3)
    optimizer = sgd(model)
    for _ in range(2):
        for (x,) in data:
            train(model, optimizer, x)
        for (y,) in held_out:
            with torch.no_grad():
                model(y)


@loop
def evaluation_before():
    model, data, held_out = net(), loader(3), loader(2)
    optimizer = sgd(model)
    model.eval()
    for (y,) in held_out:
        with torch.no_grad():
            model(y)
    model.train()
    for (x,) in data:
        train(model, optimizer, x)


@loop
def evaluation_on_the_training_data():
    model, data = net(), loader(2)
    optimizer = sgd(model)
    next(iter(data))
    for _ in range(3):
        for (x,) in data:
            train(model, optimizer, x)
        with torch.no_grad():
            for (x,) in data:
                model(x)


@loop
def evaluation_with_dropout_on():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(), nn.Linear(4, 1))
    optimizer = sgd(model)
    for (x,) in loader(2):
        train(model, optimizer, x)
        with torch.no_grad():
            model(x)


@loop
def checkpointed_reentrant():
    """The model's forward runs without gradients, and again in the backward."""
    model = net()
    optimizer = sgd(model)
    for _ in range(3):
        x = batch().requires_grad_()
        train(lambda x: checkpoint(model, x, use_reentrant=True), optimizer, x)


@loop
def checkpointed():
    model = net()
    optimizer = sgd(model)
    for (x,) in loader(3):
        train(lambda x: checkpoint(model, x, use_reentrant=False), optimizer, x)


@loop
def teacher():
    student, master = net(), net()
    optimizer = sgd(student)
    for (x,) in loader(3):
        output = student(x)
        with torch.no_grad():
            wanted = master(x)
        optimizer.zero_grad()
        functional.mse_loss(output, wanted).backward()
        optimizer.step()


@loop
def frozen_teacher():
    student, master = net(), net().requires_grad_(False)
    optimizer = sgd(student)
    for (x,) in loader(3):
        wanted = master(x)
        optimizer.zero_grad()
        functional.mse_loss(student(x), wanted).backward()
        optimizer.step()


@loop
def actor_critic():
    """Four forwards an episode, long before its step."""
    actor = net()
    optimizer = sgd(actor)
    for _ in range(3):
        values = [actor(batch()).sum() for _ in range(4)]
        optimizer.zero_grad()
        torch.stack(values).sum().backward()
        optimizer.step()


@loop
def optimizer_per_layer():
    layers = [nn.Linear(3, 3) for _ in range(3)]
    optimizers = [sgd(layer) for layer in layers]
    for (x,) in loader(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        nn.Sequential(*layers)(x).sum().backward()
        for optimizer in optimizers:
            optimizer.step()


@loop
def optimizer_in_backward():
    model = nn.Linear(3, 1)
    optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    for (x,) in loader(3):
        model(x).sum().backward()


@loop
def hogwild_threads():
    """Two loops over shared data; how they interleave must not matter."""
    shared = net()

    def work():
        model = net()
        for own, parameter in zip(model.parameters(), shared.parameters()):
            own.data = parameter.data
        optimizer = sgd(model)
        for _ in range(5):
            train(model, optimizer, batch())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@loop
def hogwild_processes():
    model = net().share_memory()
    optimizer = sgd(model)

    def work():
        for _ in range(3):
            train(model, optimizer, batch())

    for rank in range(2):
        os.waitpid(fork(f"hogwild_processes/{rank}", work), 0)


@loop
def two_loaders():
    model, labelled, unlabelled = net(), loader(3), loader(4)
    optimizer = sgd(model)
    for _ in range(2):
        for (x,), (y,) in zip(labelled, unlabelled):
            train(model, optimizer, torch.cat([x, y]))


@loop
def loader_per_epoch():
    model = net()
    optimizer = sgd(model)
    for _ in range(3):
        for (x,) in loader(2):
            train(model, optimizer, x)


@loop
def tasks_in_turn():
    model = net()
    optimizer = sgd(model)
    tasks = [loader(3), loader(3)]
    for _ in range(2):
        for batches in zip(*tasks):
            for (x,) in batches:
                train(model, optimizer, x)


@loop
def batch_skipped():
    """The second batch fails in its forward, the fourth in its backward."""
    model = net()
    optimizer = sgd(model)

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ArithmeticError

    for index, (x,) in enumerate(loader(5)):
        try:
            optimizer.zero_grad()
            output = model(x if index != 1 else x[:, :1])
            (Fails.apply(output) if index == 3 else output).sum().backward()
            optimizer.step()
        except (RuntimeError, ArithmeticError):
            continue


@loop
def resume():
    """Another model and optimizer go on where the first stopped."""
    model, data = net(), loader(2)
    optimizer = torch.optim.Adam(model.parameters())
    for (x,) in data:
        train(model, optimizer, x)
    resumed = net()
    again = torch.optim.Adam(resumed.parameters())
    resumed.load_state_dict(model.state_dict())
    again.load_state_dict(optimizer.state_dict())
    for (x,) in data:
        train(resumed, again, x)


@loop
def abandoned_epoch():
    model, data = net(), loader(5)
    optimizer = sgd(model)
    for _ in range(2):
        for index, (x,) in enumerate(data):
            train(model, optimizer, x)
            if index == 1:
                break


@loop
def user_steps():
    """As gan, and the user says where a step ends."""
    both = adversaries()
    traincheckd.step()
    for (x,) in loader(4):
        both(x)
        traincheckd.step()


@loop
def user_stages():
    """Evaluation that needs gradients; training that has none."""
    model = net()
    optimizer = sgd(model)
    for _ in range(2):
        train(model, optimizer, batch())
        with traincheckd.stage("evaluation"):
            x = batch().requires_grad_()
            torch.autograd.grad(model(x).sum(), x)
    traincheckd.stage("training")
    with torch.no_grad():
        model(batch())
    traincheckd.stage(None)
    with torch.no_grad():
        model(batch())


def fork(name, function):
    pid = os.fork()
    if pid == 0:
        print(name, os.getpid(), flush=True)
        torch.manual_seed(0)
        function()
        sys.exit(0)
    return pid


def main():
    torch.set_num_threads(1)
    gc.freeze()  # or each looks through all modules as it exits: half a second
    for name in sys.argv[1:] or list(LOOPS):
        _, status = os.waitpid(fork(name, LOOPS[name]), 0)
        if status != 0:
            sys.exit(f"{name}: {status}")


if __name__ == "__main__":
    main()
