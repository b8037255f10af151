"""The capture plan: what the records of calls tell.

A plan is a JSON file (docs/capture-plan.md) named by TRAINCHECK_PLAN; without
one a reference run is recorded in full and any other without arguments. Rules
name functions by name, by role or by pattern; a later rule wins over those
before it.
"""

import fnmatch
import json

from _traincheck import signatures

TEXT, DIGEST, AUTOGRAD = 1, 2, 4

_MODES = ("full", "selective", "off")
_PLAN_KEYS = {"format", "version", "mode", "calls"}
_RULE_KEYS = {"function", "arguments", "digests", "texts", "returns", "autograd"}
FORMAT = 1

# Arguments whose texts choose between few ways of doing something: a full plan
# tells them. Other texts need a rule that names them.
CHOICES = frozenset(
    "approximate backend device dtype driver function indexing interpolation"
    " layout memory_format mode nonlinearity norm_type op padding_mode pool"
    " reduce reduction return_type rounding_mode side strategy style".split()
)


class PlanError(ValueError):
    """A plan that cannot be read; the text says what is wrong and where."""


class Rule:
    """What calls of some functions tell."""

    def __init__(self, function, arguments="*", digests=(), texts=(), returns=True,
                 autograd=False):  # fmt: skip
        self.function = function
        self.arguments = arguments  # "*": all; else names
        self.digests = frozenset(digests)  # names; "return" is the result
        self.texts = frozenset(texts)
        self.returns = returns
        self.autograd = autograd
        self._pattern = any(sign in function for sign in "*?[")

    def fits(self, names):
        """names: the function's own, then its roles."""
        if self._pattern:
            return fnmatch.fnmatchcase(names[0], self.function)
        return self.function in names

    def tells(self, parameter):
        return self.arguments == "*" or parameter in self.arguments

    def detail(self, parameter):
        bits = AUTOGRAD if self.autograd else 0
        if parameter in self.digests:
            bits |= DIGEST
        if parameter in self.texts:
            bits |= TEXT
        return bits


class Plan:
    """Rules, and the mode they stand in."""

    def __init__(self, mode="selective", rules=(), version=0):
        self.mode = mode
        self.rules = list(rules)
        self.version = version

    def rule_for(self, names):
        for rule in reversed(self.rules):
            if rule.fits(names):
                return rule
        return None


FULL = Plan("full", [Rule("*", texts=CHOICES, autograd=True)])
BARE = Plan("selective")


def read(path):
    """The plan in a file. Raises PlanError."""
    try:
        with open(path, encoding="utf-8") as file:
            return parse(json.load(file))
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise PlanError(f"{path}: {error}") from None


def parse(value):
    _require(isinstance(value, dict), "a plan is an object")
    _known(value, _PLAN_KEYS, "a plan")
    _require(value.get("format") == FORMAT, f"format is not {FORMAT}")
    mode = value.get("mode", "selective")
    _require(mode in _MODES, f"mode {mode!r} is none of {', '.join(_MODES)}")
    version = value.get("version", 0)
    _require(type(version) is int and version >= 0, "version is no number")
    rows = value.get("calls", [])
    _require(isinstance(rows, list), "calls is no list")
    rules = [_rule(row, f"calls[{index}]") for index, row in enumerate(rows)]
    if mode == "off":
        rules = []
    return Plan(mode, FULL.rules + rules if mode == "full" else rules, version)


def _rule(row, where):
    _require(isinstance(row, dict), f"{where} is no object")
    _known(row, _RULE_KEYS, where)
    function = row.get("function")
    _require(isinstance(function, str) and function, f"{where} names no function")
    arguments = row.get("arguments", [])
    if arguments != "*":
        arguments = _names(arguments, f"{where}.arguments")
    flags = {}
    for key in ("returns", "autograd"):
        flags[key] = row.get(key, False)
        _require(isinstance(flags[key], bool), f"{where}.{key} is no truth value")
    return Rule(
        function,
        arguments,
        _names(row.get("digests", []), f"{where}.digests"),
        _names(row.get("texts", []), f"{where}.texts"),
        **flags,
    )


def _names(value, where):
    fine = isinstance(value, list) and all(isinstance(name, str) for name in value)
    _require(fine, f"{where} is no list of names")
    return frozenset(value)


def _known(value, keys, where):
    for key in value:
        _require(key in keys, f"{where} has no key {key!r}")


def _require(condition, text):
    if not condition:
        raise PlanError(text)


def content(plan, fn, names, is_method):
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


def _row(parameter, rule):
    row = (parameter.name, parameter.position, rule.detail(parameter.name))
    return row + (parameter.default,) if parameter.has_default else row
