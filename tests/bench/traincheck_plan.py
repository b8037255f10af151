"""A capture plan that records what a set of TrainCheck's invariants speaks of.

Such a file has one JSON object a line. Its functions are named by TrainCheck's
paths (`torch._VariableFunctionsClass.equal` is `torch.equal`); an argument that
an invariant fixes is told with its text. Which of the functions exist is for the
agent to find: what its catalogue leaves out is not recorded.
"""

import json
import pathlib


def plan_of(path: pathlib.Path) -> dict:
    """Raises ValueError for a file that has no function."""
    arguments: dict = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            for parameter in json.loads(line)["params"]:
                name = parameter.get("api_full_name")
                if name is None:
                    continue  # a variable
                fixed = parameter.get("arguments", {}).get("args", {})
                arguments.setdefault(_function(name), set()).update(fixed)
    if not arguments:
        raise ValueError(f"{path} names no function")
    calls = [
        {"function": name, "arguments": sorted(fixed), "texts": sorted(fixed)}
        for name, fixed in sorted(arguments.items())
    ]
    return {"format": 1, "mode": "selective", "calls": calls, "state": {}}


def _function(name: str) -> str:
    return name.replace("torch._VariableFunctionsClass.", "torch.")
