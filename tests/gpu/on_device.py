"""Runs a script as if it had been written for a device:

    on_device.py DEVICE SCRIPT [ARGUMENTS]

Tensors that it makes are made there. What torch has for the CPU alone stays there:
the order in which a loader reads."""

import os
import runpy
import sys

import torch

_permute = torch.randperm


def permute(*arguments, generator=None, **options):
    """As samplers ask, with a generator of the CPU."""
    if generator is not None:
        options.setdefault("device", generator.device)
    return _permute(*arguments, generator=generator, **options)


if __name__ == "__main__":
    del sys.argv[0]
    torch.randperm = permute
    torch.set_default_device(sys.argv.pop(0))
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
