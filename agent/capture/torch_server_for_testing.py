"""Runs programs in processes that have imported torch already: each is a fork of this one.

Reads a line of JSON a program from stdin: its script, its environment, and the files
that its output goes to. Writes a line with its exit code. A program ends as every
interpreter does, since it is the main program of its process.
"""

import gc
import json
import os
import sys

import torch  # noqa: F401

# What is imported is no garbage: a program that ends need not look (0.5 s).
gc.freeze()


def next_program():
    """Of the process that runs it; nothing once there are no more."""
    for line in sys.stdin:
        program = json.loads(line)
        pid = os.fork()
        if pid == 0:
            return program
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(code, flush=True)
    return None


def enter(program):
    """Everything is as if this process had been started for the program."""
    os.environ.clear()
    os.environ.update(program["environment"])
    for name, file in ((0, os.devnull), (1, program["out"]), (2, program["err"])):
        opened = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(opened, name)
        os.close(opened)
    sys.argv = [program["script"]]
    sys.path[0] = os.path.dirname(program["script"])


program = next_program()
if program:
    enter(program)
    __file__ = program["script"]
    with open(__file__) as text:
        code = compile(text.read(), __file__, "exec")
    for name in ("gc", "json", "torch", "next_program", "enter", "program", "text"):
        del globals()[name]
    exec(code)
