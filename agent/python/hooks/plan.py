"""The capture plan: what the records of calls tell.

A plan is a JSON file (docs/capture-plan.md) named by TRAINCHECK_PLAN; without
one a reference run is recorded in full and any other without arguments. Rules
name functions by name, by role or by pattern; a later rule wins over those
before it.
"""

from __future__ import annotations

import fnmatch
import json
import re
from typing import TYPE_CHECKING

from _traincheck import signatures

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence
    from typing import Any

    from traincheck_core import Content, Core

    Points = dict[str, frozenset[str]]

TEXT, DIGEST, AUTOGRAD = 1, 2, 4

_MODES = ("full", "selective", "sampled", "off")
_STATE_KEYS = ("state", "statistics", "rows")
_PLAN_KEYS = {"format", "version", "mode", "calls", "sample", "generators", "zoom"}
_PLAN_KEYS.update(_STATE_KEYS)
_ZOOM_KEYS = {"steps", "calls", "variables", "state", "generators"}
_MAX_ZOOM_STEPS = 1024
_SAMPLE_KEYS = {"every", "warm_up"}
_RULE_KEYS = {"function", "arguments", "digests", "texts", "returns", "autograd"}
FORMAT = 1
WARM_UP = 256  # steps

# Kinds of state: what a plan may leave out at some points and tell more of at
# others.
STATE_VALUES = frozenset(
    "parameter.data parameter.grad buffer.data optimizer_state.data".split()
)

# Arguments whose texts choose between few ways of doing something: a full plan
# tells them. Other texts need a rule that names them.
CHOICES = frozenset(
    "approximate backend device dtype driver function indexing interpolation"
    " layout memory_format mode nonlinearity norm_type op padding_mode pool"
    " reduce reduction return_type rounding_mode side strategy style".split()
)


def state_points(core: Core) -> dict[int, str]:
    """Names of the points, as plans have them."""
    return {
        getattr(core, name): name[len("POINT_") :].lower()
        for name in sorted(dir(core))
        if name.startswith("POINT_")
    }


class PlanError(ValueError):
    """A plan that cannot be read; the text says what is wrong and where."""

    for_users = True  # agent/capture/start.cc says the text and nothing else


class Rule:
    """What calls of some functions tell."""

    def __init__(self, function: str, arguments: str | Iterable[str]="*", digests: Iterable[str]=(), texts: Iterable[str]=(), returns: bool=True,
                 autograd: bool=False) -> None:  # fmt: skip
        self.function = function
        self.arguments = arguments  # "*": all; else names
        self.digests = frozenset(digests)  # names; "return" is the result
        self.texts = frozenset(texts)
        self.returns = returns
        self.autograd = autograd
        self._pattern = None
        if any(sign in function for sign in "*?["):
            self._pattern = re.compile(fnmatch.translate(function)).match

    def is_pattern(self) -> bool:
        return self._pattern is not None

    def fits(self, names: Sequence[str]) -> bool:
        """names: the function's own, then its roles."""
        if self._pattern is not None:
            return self._pattern(names[0]) is not None
        return self.function in names

    def tells(self, parameter: str) -> bool:
        return self.arguments == "*" or parameter in self.arguments

    def detail(self, parameter: str) -> int:
        bits = AUTOGRAD if self.autograd else 0
        if parameter in self.digests:
            bits |= DIGEST
        if parameter in self.texts:
            bits |= TEXT
        return bits


class Plan:
    """Rules, the mode they stand in, and the steps that they hold in."""

    # Points by value ("parameter.grad"), of the state that is recorded; None:
    # all of it.
    state: Points | None = None
    # Where norm, largest magnitude, NaN and Inf are told too, and where digests
    # of rows.
    statistics: Points = {}
    rows: Points = {}
    # Are the random generators recorded around every outermost forward?
    generators = False
    # The plan of a zoom: holds for so many steps recorded in full, then the other
    # one does. `zoomed`: names of variables of which all is recorded.
    steps = 0
    then: Plan | None = None
    zoomed: frozenset[str] = frozenset()

    def __init__(
        self,
        mode: str = "selective",
        rules: Iterable[Rule] = (),
        version: int = 0,
        every: int = 1,
        warm_up: int = WARM_UP,
    ) -> None:
        self.mode = mode
        self.rules = list(rules)
        self.version = version
        self.every = every
        self.warm_up = warm_up

    def samples(self, step: int, every: int = 1) -> bool:
        """Is this step recorded in full, where others ask for one in `every`?

        Both are powers of two. The larger decides: its steps are among those of
        the smaller, so that ranks with different numbers have common steps.
        """
        return step < self.warm_up or step % max(self.every, every) == 0

    def wants(self, value: str, point: str) -> bool:
        """Is this value recorded at this point?"""
        return self.state is None or point in self.state.get(value, ())

    def rule_for(self, names: Sequence[str]) -> Rule | None:
        for rule in reversed(self.rules):
            if rule.fits(names):
                return rule
        return None


FULL = Plan(
    "full",
    [
        Rule("*", texts=CHOICES, autograd=True),
        # A norm, which ranks must agree on.
        Rule("torch.nn.utils.clip_grad.clip_grad_norm_", texts=CHOICES,
             digests=("return",), autograd=True),  # fmt: skip
    ],
)
FULL.generators = True
# Is each gradient finite that is stepped with?
FULL.statistics = {"parameter.grad": frozenset({"pre_step"})}
BARE = Plan("selective")


def read_text(text: str | bytes, where: str) -> Plan:
    """The plan in a text. Raises PlanError, which begins with `where`."""
    try:
        return parse(json.loads(text))
    except json.JSONDecodeError as error:
        why = f"line {error.lineno}, column {error.colno}: {error.msg}"
    except RecursionError:
        why = "it is nested too deeply"
    except ValueError as error:
        why = str(error)
    raise PlanError(f"{where} is not a capture plan: {why}")


def read(path: str) -> Plan:
    """The plan in a file. Raises PlanError."""
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from None
    return read_text(text, path)


def parse(value: Any) -> Plan:
    _require(isinstance(value, dict), "a plan is an object")
    _known(value, _PLAN_KEYS, "a plan")
    _require(value.get("format") == FORMAT, f"format is not {FORMAT}")
    mode = value.get("mode", "selective")
    _require(mode in _MODES, f"mode {mode!r} is none of {', '.join(_MODES)}")
    version = value.get("version", 0)
    _require(type(version) is int and version >= 0, "version is not a number")
    rules = _rules(value.get("calls", []), "calls")
    if mode == "off":
        rules = []
    _require(mode != "sampled" or "sample" in value, "a sampled plan needs sample")
    if mode == "full":
        rules = FULL.rules + rules
    plan = Plan(mode, rules, version, **_sample(value.get("sample", {})))
    if mode == "full":
        plan.statistics = FULL.statistics
    plan.generators = value.get("generators", mode == "full")
    _require(isinstance(plan.generators, bool), "generators is not a truth value")
    _take_state(value, plan)
    return _zoomed(plan, value["zoom"]) if "zoom" in value else plan


def _zoomed(plan: Plan, value: Any) -> Plan:
    """The plan with what a zoom adds for some steps."""
    _require(isinstance(value, dict), "zoom is not an object")
    _known(value, _ZOOM_KEYS, "zoom")
    steps = value.get("steps")
    fine = type(steps) is int and 0 < steps <= _MAX_ZOOM_STEPS
    _require(fine, f"zoom.steps is not a number of 1 to {_MAX_ZOOM_STEPS}")
    rules = _rules(value.get("calls", []), "zoom.calls")
    more = Plan(plan.mode, plan.rules + rules, plan.version, plan.every, plan.warm_up)
    more.statistics, more.rows = plan.statistics, plan.rows
    state = _points(value.get("state", {}), "zoom.state")
    more.state = plan.state if plan.state is None else _joined(plan.state, state)
    more.generators = plan.generators or value.get("generators", False)
    _require(isinstance(more.generators, bool), "zoom.generators is not a truth value")
    more.zoomed = _names(value.get("variables", []), "zoom.variables")
    more.steps, more.then = steps, plan
    return more


def _joined(state: Points, more: Points) -> Points:
    none: frozenset[str] = frozenset()
    return {
        name: state.get(name, none) | more.get(name, none) for name in {*state, *more}
    }


def _sample(value: Any) -> dict[str, int]:
    _require(isinstance(value, dict), "sample is not an object")
    _known(value, _SAMPLE_KEYS, "sample")
    every, warm_up = value.get("every", 1), value.get("warm_up", WARM_UP)
    power = type(every) is int and every > 0 and every & (every - 1) == 0
    _require(power, "sample.every is not a power of two")
    fine = type(warm_up) is int and warm_up >= 0
    _require(fine, "sample.warm_up is not a number of steps")
    return {"every": every, "warm_up": warm_up}


def _take_state(value: Any, plan: Plan) -> None:
    for key in _STATE_KEYS:
        if key in value:
            setattr(plan, key, _points(value[key], key))
    if plan.state is not None:
        for more in (plan.statistics, plan.rows):  # of what is recorded
            plan.state = _joined(plan.state, more)


def _points(value: Any, key: str) -> Points:
    _require(isinstance(value, dict), f"{key} is not an object")
    _known(value, STATE_VALUES, key)
    return {name: _names(points, f"{key}.{name}") for name, points in value.items()}


def _rules(rows: Any, where: str) -> list[Rule]:
    _require(isinstance(rows, list), f"{where} is not a list")
    return [_rule(row, f"{where}[{index}]") for index, row in enumerate(rows)]


def _rule(row: Any, where: str) -> Rule:
    _require(isinstance(row, dict), f"{where} is not an object")
    _known(row, _RULE_KEYS, where)
    function = row.get("function")
    _require(isinstance(function, str) and function, f"{where} names no function")
    arguments = row.get("arguments", [])
    if arguments != "*":
        arguments = _names(arguments, f"{where}.arguments")
    flags = {}
    for key in ("returns", "autograd"):
        flags[key] = row.get(key, False)
        _require(isinstance(flags[key], bool), f"{where}.{key} is not a truth value")
    return Rule(
        function,
        arguments,
        _names(row.get("digests", []), f"{where}.digests"),
        _names(row.get("texts", []), f"{where}.texts"),
        **flags,
    )


def _names(value: Any, where: str) -> frozenset[str]:
    fine = isinstance(value, list) and all(isinstance(name, str) for name in value)
    _require(fine, f"{where} is not a list of names")
    return frozenset(value)


def _known(value: Any, keys: Container[str], where: str) -> None:
    for key in value:
        _require(key in keys, f"{where} has no key {key!r}")


def _require(condition: object, text: str) -> None:
    if not condition:
        raise PlanError(text)


def content(
    plan: Plan, fn: Any, names: Sequence[str], is_method: bool
) -> Content | None:
    """As agent/capture/content_spec.h describes: what calls of fn tell."""
    rule = plan.rule_for(names)
    if rule is None:
        return None
    first = 1 if is_method else 0  # the record names the object
    signature = signatures.of(fn)
    if signature is None:
        signature = signatures.Signature([], first)
    parameters = [
        _row(parameter, rule)
        for parameter in signature.parameters
        if parameter.position not in range(first) and rule.tells(parameter.name)
    ]
    rest = None
    if signature.rest is not None and rule.arguments == "*":
        rest = (max(signature.rest, first), rule.detail("args"))
    return parameters, rest, rule.detail("return") if rule.returns else None


def _row(parameter: signatures.Parameter, rule: Rule) -> tuple[Any, ...]:
    row = (parameter.name, parameter.position, rule.detail(parameter.name))
    return row + (parameter.default,) if parameter.has_default else row
