"""What programs do with torch's functions besides calling them.

Each use returns facts that do not depend on the process; it also asserts what
must hold in any process.
"""

import contextlib
import copy
import functools
import inspect
import io
import operator
import pickle

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

OPERATORS = """
    __add__ __radd__ __iadd__ __sub__ __rsub__ __isub__ __mul__ __rmul__ __imul__
    __truediv__ __rtruediv__ __floordiv__ __mod__ __rmod__ __pow__ __rpow__
    __matmul__ __rmatmul__ __neg__ __abs__ __invert__ __and__ __or__ __xor__
    __lshift__ __rshift__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__
""".split()

USES = []


def use(function):
    USES.append(function)
    return function


def values():
    return torch.linspace(-1, 1, 6).reshape(2, 3)


class Net(nn.Module):
    activation = torch.tanh  # of a C function no method becomes

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.last = F.relu

    def twice(self, x, times: int = 2):
        return self.layer(x) * times

    def forward(self, x):
        return self.last(self.activation(self.twice(x)) + F.relu(x))


@use
def pickles():
    out = []
    for function in (torch.relu, torch.Tensor.add, F.relu, F.gelu, nn.init.ones_):
        data = pickle.dumps(function)
        assert pickle.loads(data) is function, function
        assert copy.deepcopy(function) is function
        out.append(repr(data))
    data = pickle.dumps(values().add)
    out.append(pickle.loads(data)(1))
    return out


@use
def saved_modules():
    net, file = Net(), io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert loaded.last is net.last
    return [loaded(values()), copy.deepcopy(net)(values())]


@use
def wraps_and_partials():
    @functools.wraps(torch.add)
    def around(*args):
        return torch.add(*args)

    half = functools.partial(torch.mul, 0.5)
    return [
        around.__name__,
        str(around.__doc__)[:40],
        half(values()),
        around(1, values()),
    ]


@use
def tables_of_functions():
    table = {torch.relu: "relu", torch.Tensor.add: "add", F.relu: "F"}
    assert torch.relu in table and F.relu in [F.relu]
    assert torch.relu == torch.relu and torch.relu is torch.relu
    assert torch.Tensor.add is torch.Tensor.add
    return [table[torch.relu], table[torch.Tensor.add], table[F.relu], len(table)]


@use
def overrides():
    known = torch.overrides.get_overridable_functions()
    counts = sorted(
        (len(functions), str(type(key))) for key, functions in known.items()
    )
    tests = torch.overrides.get_testing_overrides()
    ignored = torch.overrides.get_ignored_functions()
    names = sorted(
        name
        for name in dir(torch.Tensor)
        if hasattr(getattr(torch.Tensor, name), "__name__")
        and torch.overrides.is_tensor_method_or_property(getattr(torch.Tensor, name))
    )
    return [
        counts,
        names,
        len(tests),
        len(ignored),
        torch.relu in tests,
        torch.Tensor.add in tests,
        F.relu in tests,
        torch.overrides.resolve_name(torch.Tensor.add),
        torch.overrides.resolve_name(torch.relu),
        torch.overrides.resolve_name(F.relu),
    ]


@use
def function_modes():
    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(
                [
                    func.__name__,
                    func is torch.relu,
                    func is torch.Tensor.add,
                    func is F.relu,
                    func is F.gelu,
                    func is torch.Tensor.split,
                    func is torch.Tensor.__add__,
                ]
            )
            return func(*args, **(kwargs or {}))

    with Mode():
        x = values()
        out = torch.relu(x).add(1) + F.relu(x) + F.gelu(x)
        out = out.split(1)[0] @ out.t()
        nn.init.uniform_(torch.zeros(2))
    return [out, seen]


@use
def tensor_subclasses():
    handled = {torch.relu: lambda x: "relu", torch.Tensor.add: lambda x, y: "add"}

    class Mine(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func in handled:
                return handled[func](*args, **(kwargs or {}))
            return super().__torch_function__(func, types, args, kwargs)

        def exp(self):
            return super().exp() + 1

    mine = values().as_subclass(Mine)
    return [
        torch.relu(mine),
        mine.add(1),
        mine.exp(),
        type(mine + 1).__name__,
        type(F.relu(mine)).__name__,
        mine.sin().sum(),
    ]


@use
def operators():
    x, out = values(), []
    for name in OPERATORS:
        function = getattr(operator, name, None)
        if function is not None and name[2] not in "i":
            try:
                out.append(
                    function(x, 2)
                    if name not in ("__neg__", "__abs__")
                    else function(x)
                )
            except Exception as error:
                out.append(f"{name} {type(error).__name__} {error}")
    out += [1 - x, 2 / x, 2**x, 3 // x, 1 + x, 5 % x, 1 == x, x @ x.t()]
    x += 1
    x *= 3

    class Right:
        def __radd__(self, other):
            return "radd"

        def __rmatmul__(self, other):
            return "rmatmul"

    out += [x, x + Right(), x @ Right(), x.__add__(Right()) is NotImplemented]
    for wrong in (None, "text", object):
        try:
            x + wrong
        except TypeError as error:
            out.append(str(error))
    return out


@use
def transforms():
    def loss(x):
        return torch.tanh(x).mul(x).sum()

    x = values()
    return [
        torch.func.grad(loss)(x),
        torch.func.vmap(torch.relu)(x),
        torch.func.vmap(torch.Tensor.add, in_dims=(0, None))(x, 1.0),
        torch.func.jacrev(torch.exp)(x[0]),
        torch.func.jvp(torch.sin, (x,), (x,)),
        torch.func.functional_call(nn.Linear(3, 1), {"weight": torch.ones(1, 3)}, x),
    ]


@use
def hooks():
    log, net = [], Net()
    net.register_forward_pre_hook(lambda m, a: log.append("pre"))
    net.register_forward_hook(lambda m, a, o: o * 2)
    net.register_full_backward_hook(lambda m, i, o: log.append("backward"))
    net.layer.weight.register_hook(lambda g: g * 0.5)
    out = net(values().requires_grad_())
    out.sum().backward()
    return [log, out, net.layer.weight.grad]


@use
def subclasses():
    class Base(nn.Module):
        def forward(self, x):
            return x

        def extra(self, x):
            return x + 1

    class Derived(Base):
        def extra(self, x):
            return super().extra(x) * 2

        @staticmethod
        def plain(x):
            return x

        @classmethod
        def make(cls, *args):
            return cls()

        @property
        def size(self):
            return 3

        @functools.lru_cache(maxsize=None)
        def cached(self):
            return 4

    derived = Derived.make(1)
    signature = [
        str(inspect.signature(f))
        for f in (derived.extra, Derived.extra, Derived.make, Derived.plain)
    ]
    return [
        derived.extra(values()),
        derived.plain(2),
        derived.size,
        derived.cached(),
        signature,
        inspect.getsource(Derived.extra),
        str(inspect.getfullargspec(Base.extra)),
        derived.extra.__func__ is Derived.__dict__["extra"],
        sorted(name for name in vars(Derived) if not name.startswith("__")),
    ]


class Rows(Dataset):
    def __init__(self):
        self.rows = torch.arange(12.0).reshape(4, 3)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.rows[index]


def stack(samples):
    return torch.stack(samples)


class Schedule(torch.optim.lr_scheduler.LRScheduler):
    def get_lr(self):
        return [rate * 0.5**self.last_epoch for rate in self.base_lrs]


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * gradient


@use
def training():
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    schedule = Schedule(optimizer)
    scaler = torch.amp.GradScaler("cpu")
    losses = []
    for _ in range(3):
        for batch in DataLoader(Rows(), 2, shuffle=True, collate_fn=stack):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.mse_loss(F.dropout(net(batch), 0.1), batch)
            scaler.scale(
                Cube.apply(loss) + checkpoint(net, batch, use_reentrant=False).sum()
            ).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
        schedule.step()
    copied = pickle.loads(pickle.dumps(optimizer))
    return [losses, schedule.get_last_lr(), list(net.parameters()), len(copied.state)]


@use
def loaders_with_workers():
    loader = DataLoader(Rows(), 2, num_workers=1, collate_fn=stack)
    return [list(loader), pickle.loads(pickle.dumps(loader.collate_fn)) is stack]


@use
def compiled():
    def function(x):
        y = torch.relu(x).add(1) * F.gelu(x) - torch.nn.functional.dropout(x, 0.0)
        y = y.softmax(-1).split(1)[0] + torch.cat([x, x]).sum(0)
        return torch.einsum("ij,ij->i", y, y).norm() + F.max_pool1d(x, 2).mean()

    net, out = Net(), []
    for callable_ in (function, net):
        torch._dynamo.reset()
        explained = torch._dynamo.explain(callable_)(values())
        out += [
            explained.graph_count,
            explained.graph_break_count,
            [graph.code for graph in explained.graphs],
        ]
        for backend in ("eager", "aot_eager"):
            torch._dynamo.reset()
            compiled = torch.compile(callable_, backend=backend)
            out.append(compiled(values()))
            out.append(compiled(values() * 2))
    return out


@use
def exported():
    program = torch.export.export(Net(), (values(),))
    return [
        [str(node.target) for node in program.graph.nodes],
        program.module()(values()),
    ]


@use
def least_squares():
    out = []
    for driver in ("gels", "gelsd", "gelss"):
        matrix = (values() + torch.eye(2, 3)).requires_grad_()
        found = torch.linalg.lstsq(matrix, values(), driver=driver)
        found.solution.sum().backward()
        out += [*found, matrix.grad]
    return out


@use
def contexts():
    out = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.autocast("cpu"))
        out.append(torch.mm(values(), values().t()))
    for context in (torch.no_grad(), torch.inference_mode(), torch.enable_grad()):
        with context:
            out.append(values().requires_grad_().exp())

    @torch.no_grad()
    def decorated(x):
        return x.exp()

    out.append(decorated(values().requires_grad_()))
    with torch.random.fork_rng():
        torch.manual_seed(1)
        out.append(torch.rand(2))
    return out + [torch.rand(2)]


@use
def parametrizations():
    layer = nn.Linear(2, 2)
    nn.utils.parametrizations.weight_norm(layer)
    nn.utils.parametrizations.orthogonal(nn.Linear(2, 2))
    packed = nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    lstm = nn.LSTM(3, 2)(values())[0]
    return [layer(torch.ones(1, 2)), packed.data, lstm, sorted(layer.state_dict())]


@use
def methods_of_instances():
    x = values()
    add = x.add
    net = Net()
    return [
        add(1),
        add.__name__,
        add.__self__ is x,
        callable(add),
        torch.Tensor.add(x, 2),
        net.to(torch.float64).layer.weight.dtype == torch.float64,
        sorted(dir(torch.Tensor)),
        sorted(dir(x))[:20],
    ]
