"""Calls torch's public API with all kinds of arguments and writes down what came.

    python public_api.py OUT.json

One line of facts a call: values to the bit, exceptions with their messages,
signatures. Two runs, one of them monitored, must write the same. Nothing here
knows of the agent.
"""

import hashlib
import inspect
import json
import re
import sys
import types
import warnings

import torch
import torch.nn.functional as F

sys.path.insert(0, __file__.rpartition("/")[0])
import api_traces  # noqa: F401
import api_uses

_NAMESPACES = (
    ("torch", torch),
    ("torch.nn.functional", F),
    ("torch.nn.init", torch.nn.init),
    ("torch.linalg", torch.linalg),
    ("torch.fft", torch.fft),
    ("torch.special", torch.special),
    ("torch.nn.utils.rnn", torch.nn.utils.rnn),
    ("torch.nn.utils", torch.nn.utils),
    ("torch.autograd.functional", torch.autograd.functional),
)
# Their results are not determined, they change the process for the calls after
# them, they wait, or they touch files.
_LEFT_OUT = re.compile(
    r"empty|resize|set_|seed|rng|compile|fork|wait|from_file|save|load|vitals"
    r"|printoptions|backend|thread|deterministic|import_ir|share_memory|storage"
    r"|default_|cuda|xpu|mtia|ipu|data_ptr|_cdata|names|rename|align|refine|lobpcg"
    r"|quantize|dequantize|fbgemm|nonzero_static|gradcheck|memory|pin_|as_subclass"
    r"|apply_|map_|map2_|backward|register|record_stream|module_load|dlpack|init_"
    r"|multi_head|clear_|read_|geqrf|q_|Stream|Event|initial|jit|futures|Generator"
    r"|^new$|autocast|grad_mode|profiler|numpy|tolist|parse|merge|unify|typename"
    r"|prepare_multi|__dir__|__init|rnn_|lstm|gru|get_device|sspaddmm"
    # Its default driver reads memory that torch leaves uninitialised
    # (pytorch issue 187411); api_uses.least_squares takes the other drivers.
    r"|lstsq"
)


def arguments():
    """Fresh for every call: it may write into them."""
    a = torch.arange(6, dtype=torch.float32).reshape(2, 3) / 4 - 0.5
    b = torch.arange(6, dtype=torch.float32).reshape(2, 3) / 7 + 0.25
    square = torch.tensor([[2.0, 0.5], [0.5, 1.0]], requires_grad=True)
    index = torch.tensor([1, 0])
    return (
        (),
        (a,),
        (a, b),
        (a, 2),
        (square,),
        (a, 1, index),
        (a, b, a + b),
        (index, 3),
        ([a, b],),
        (2, 3),
        (a, "no such argument"),
    )


def text_of(error):
    text = re.sub(r"0x[0-9a-f]+", "0x", f"{type(error).__name__}: {error}")
    return re.sub(r"C\+\+ CapturedTraceback.*", "", text, flags=re.S)


def facts_of(value, depth=3):
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_meta or value.is_quantized:
            return [str(value.layout), list(value.shape), str(value.dtype)]
        content = value.detach().resolve_conj().resolve_neg().contiguous()
        raw = content.reshape(-1).view(torch.uint8).numpy().tobytes()
        return [
            str(value.dtype),
            list(value.shape),
            list(value.stride()),
            value.requires_grad,
            type(value.grad_fn).__name__,
            hashlib.sha1(raw).hexdigest(),
        ]
    if isinstance(value, (list, tuple)) and depth:
        return [type(value).__name__, [facts_of(item, depth - 1) for item in value]]
    if isinstance(value, (bool, int, float, complex, str, type(None))):
        return repr(value)
    return type(value).__name__


def call(function, values):
    torch.manual_seed(7)
    try:
        return facts_of(function(*values))
    except Exception as error:
        return text_of(error)


def face_of(value):
    """What a function shows of itself."""
    try:
        signature = str(inspect.signature(value))
    except (ValueError, TypeError) as error:
        signature = type(error).__name__
    return [
        signature,
        repr(getattr(value, "__name__", None)),
        repr(getattr(value, "__qualname__", None)),
        repr(getattr(value, "__module__", None)),
        hashlib.sha1(repr(getattr(value, "__doc__", None)).encode()).hexdigest(),
        inspect.isfunction(value),
        inspect.isbuiltin(value),
        inspect.ismethoddescriptor(value),
        isinstance(value, types.FunctionType),
    ]


def functions():
    """(name, function) of the whole public API, methods of tensors unbound."""
    for namespace, module in _NAMESPACES:
        for name in sorted(vars(module)):
            value = getattr(module, name)
            is_function = isinstance(
                value, (types.FunctionType, types.BuiltinFunctionType)
            )
            if is_function and not name.startswith("_"):
                yield f"{namespace}.{name}", value
    for name in sorted(dir(torch.Tensor)):
        value = getattr(torch.Tensor, name)
        if callable(value) and (not name.startswith("_") or name in api_uses.OPERATORS):
            yield f"torch.Tensor.{name}", value


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    results = {"faces": {}, "calls": {}, "uses": {}}
    for name, function in functions():
        results["faces"][name] = face_of(function)
        if _LEFT_OUT.search(name.rpartition(".")[2]):
            continue
        for number, values in enumerate(arguments()):
            results["calls"][f"{name} {number}"] = call(function, values)
    for use in api_uses.USES:
        torch.manual_seed(3)
        try:
            results["uses"][use.__name__] = facts_of(use())
        except Exception as error:
            results["uses"][use.__name__] = text_of(error)
    # Is it monitored? The test must know that it compares two things.
    results["wrapped"] = hasattr(torch.relu, "__wrapped__")
    with open(sys.argv[1], "w") as file:
        json.dump(results, file, indent=0)


if __name__ == "__main__":
    main()
