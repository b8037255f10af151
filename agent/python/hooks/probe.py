"""Backwards that are written by hand, compared with difference quotients of their
forwards. Only where TRAINCHECK_PROBE names a file (traincheckctl preflight --probe).

For a function f, a direction u of its inputs and weights v of its outputs, the
derivative of the sum v . f(x) along u is (v . f(x + h u) - v . f(x - h u)) / 2 h; what
backward gives for v, multiplied by u, must be the same. Each class is compared in its
first two calls, in float64 if it takes that. Some are no derivatives on purpose: those
of steps (rounding, signs), whose quotient is 0, and those of functions that hand their
input on (reversed or scaled gradients).

Threads: that which calls the function. Generators are put back.
"""

from __future__ import annotations

import json
import math
import random
import sys
from typing import TYPE_CHECKING

import torch

from _traincheck.wrapping import quietly

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from traincheck_core import Args

    from _traincheck.watch import Watch

    Tensors = list[torch.Tensor]

_CALLS = 2  # of a class
_DIRECTIONS = 2
_MOST = 1 << 20  # elements of inputs
_STEP = {torch.float64: 1e-6, torch.float32: 1e-2}  # h, for inputs of about 1
_TOLERANCE = {torch.float64: 1e-4, torch.float32: 5e-2}  # relative
_NOTHING = 1e-9  # a derivative of less is none

# What a comparison came to, as the file has it.
EQUAL = "equal"
DIFFERS = "differs"
ON_PURPOSE = "on purpose"
NOT_COMPARED = "not compared"


class _NotComparable(Exception):
    """Says why."""


class Probe:
    def __init__(self, path: str) -> None:
        self._path = path
        self._calls: dict[type[Any], int] = {}
        self._inside = False

    def called(self, cls: type[Any], apply: Callable[..., Any], args: Args) -> None:
        """Called after each call of a function of the program's own."""
        if self._inside or not _is_asked(cls, args):
            return
        count = self._calls.get(cls, 0)
        if count >= _CALLS:
            return
        self._calls[cls] = count + 1
        self._inside = True
        before = _generators()
        try:
            outcome = _compare(apply, args, before)
        except _NotComparable as reason:
            outcome = {"outcome": NOT_COMPARED, "reason": str(reason)}
        except Exception as error:  # the program's own code, in another type
            text = f"{type(error).__name__}: {error}"
            outcome = {"outcome": NOT_COMPARED, "reason": text}
        finally:
            self._inside = False
            _restore(before)
        self._write(cls, outcome)

    def _write(self, cls: type[Any], outcome: dict[str, Any]) -> None:
        code = getattr(getattr(cls, "backward", None), "__code__", None)
        place = {
            "function": f"{cls.__module__}.{cls.__qualname__}",
            "file": getattr(code, "co_filename", ""),
            "line": getattr(code, "co_firstlineno", 0),
        }
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(place | outcome) + "\n")


def _is_asked(cls: type[Any], args: Args) -> bool:
    if cls.__module__.split(".")[0] in ("torch", "_traincheck"):
        return False
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    given = [one for one in args if _is_differentiable(one)]
    return bool(given) and sum(one.numel() for one in given) <= _MOST


def _is_differentiable(value: Any) -> bool:
    plain = type(value) in (torch.Tensor, torch.nn.Parameter)
    return plain and value.requires_grad and value.layout == torch.strided


def _compare(
    apply: Callable[..., Any], args: Args, generators: tuple[Any, ...]
) -> dict[str, Any]:
    given = next(one for one in args if _is_differentiable(one))
    try:
        return _compare_in(torch.float64, apply, args, generators)
    except (RuntimeError, TypeError, _NotComparable):
        if given.dtype is not torch.float32:
            raise _NotComparable("it takes neither float64 nor float32") from None
        return _compare_in(torch.float32, apply, args, generators)


def _compare_in(
    dtype: torch.dtype,
    apply: Callable[..., Any],
    args: Args,
    generators: tuple[Any, ...],
) -> dict[str, Any]:
    function = _Function(dtype, apply, args, generators)
    ratios = []
    for number in range(_DIRECTIONS):
        expected, given = function.derivatives(torch.Generator().manual_seed(number))
        if not math.isfinite(expected) or not math.isfinite(given):
            raise _NotComparable("its values are not finite")
        scale = abs(expected) + abs(given)
        if abs(expected - given) <= _TOLERANCE[dtype] * scale + _NOTHING:
            continue
        if abs(expected) <= _NOTHING or function.hands_on:
            return {"outcome": ON_PURPOSE}
        ratios.append(given / expected)
    if not ratios:
        return {"outcome": EQUAL}
    alike = max(ratios) - min(ratios) <= 1e-2 * abs(ratios[0])
    ratio = ratios[0] if alike and len(ratios) == _DIRECTIONS else None
    return {"outcome": DIFFERS, "ratio": ratio}


class _Function:
    """The function at the inputs that it was given, in another type."""

    def __init__(
        self,
        dtype: torch.dtype,
        apply: Callable[..., Any],
        args: Args,
        generators: tuple[Any, ...],
    ) -> None:
        self._dtype = dtype
        self._apply = apply
        self._generators = generators
        self._args = [_cast(one, dtype) for one in args]
        self._places = [i for i, one in enumerate(args) if _is_differentiable(one)]
        self.hands_on = False  # is its output its input?

    def derivatives(self, draw: torch.Generator) -> tuple[float, float]:
        """Along a random direction: the difference quotient, and what backward says."""
        inputs = [self._args[place] for place in self._places]
        leaves = [one.clone().requires_grad_() for one in inputs]
        outputs = [one for one in self._call(leaves) if one.requires_grad]
        if not outputs or any(one.dtype is not self._dtype for one in outputs):
            raise _NotComparable(f"its results are not of {self._dtype}")
        self.hands_on = any(
            one.shape == outputs[0].shape and torch.equal(one, outputs[0])
            for one in leaves
        )
        weights = [_drawn(one, draw) for one in outputs]
        whole = sum(((w * out).sum() for w, out in zip(weights, outputs)), start=0.0)
        assert isinstance(whole, torch.Tensor)
        gradients = torch.autograd.grad(whole, leaves, allow_unused=True)
        directions = [_drawn(one, draw) for one in inputs]
        given = sum(
            float((gradient * one).sum())
            for gradient, one in zip(gradients, directions)
            if gradient is not None
        )
        step = _STEP[self._dtype] * max(1.0, *(float(x.abs().max()) for x in inputs))
        ends = []
        for sign in (step, -step):
            moved = [x + sign * one for x, one in zip(inputs, directions)]
            results = self._call([one.requires_grad_() for one in moved])
            results = [one for one in results if one.requires_grad]
            ends.append(
                sum(float((w * r.detach()).sum()) for w, r in zip(weights, results))
            )
        return (ends[0] - ends[1]) / (2 * step), given

    def _call(self, leaves: Tensors) -> Tensors:
        """Its results of floating-point numbers, drawn as in the call itself."""
        _restore(self._generators)
        args = [
            one.clone() if isinstance(one, torch.Tensor) else one for one in self._args
        ]
        for place, leaf in zip(self._places, leaves):
            args[place] = leaf.clone()  # it may be written to
        found = self._apply(*args)
        results = found if isinstance(found, (tuple, list)) else (found,)
        return [
            one
            for one in results
            if isinstance(one, torch.Tensor) and one.is_floating_point()
        ]


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    plain = value.detach()
    return plain.to(dtype) if plain.is_floating_point() else plain.clone()


def _drawn(like: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    values = torch.randn(like.shape, generator=draw, dtype=torch.float64)
    return values.to(dtype=like.dtype, device=like.device)


def _generators() -> tuple[Any, ...]:
    numpy_random = sys.modules.get("numpy.random")
    drawn = None if numpy_random is None else numpy_random.get_state()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    return torch.get_rng_state(), devices, random.getstate(), drawn


def _restore(states: tuple[Any, ...]) -> None:
    host, devices, python, drawn = states
    torch.set_rng_state(host)
    if devices is not None:
        torch.cuda.set_rng_state_all(devices)
    random.setstate(python)
    if drawn is not None:
        sys.modules["numpy.random"].set_state(drawn)


def install(watch: Watch) -> None:
    path = watch.core.setting("TRAINCHECK_PROBE")
    wrapped = torch.autograd.Function.__dict__.get("apply")
    if not path or not isinstance(wrapped, classmethod):
        return
    original: Any = wrapped.__func__
    probe = Probe(path)

    def apply(cls: type[Any], *args: Any, **kwargs: Any) -> Any:
        result = original(cls, *args, **kwargs)
        if not kwargs:
            quietly(watch.core, probe.called, cls, original.__get__(cls), args)
        return result

    setattr(torch.autograd.Function, "apply", classmethod(apply))
