"""Who may include whom: the layers of the folders and where libraries end."""

import collections
import posixpath
import re

import system_headers
from source_tree import Problem, SourceTree

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)')

# A folder, the longest that fits a file, and what it may include of ours.
RECORD_FORMAT = (
    "proto/record_",
    "proto/step_rule.h",
    "proto/content_digest.h",
    "proto/torch_types.h",
    "proto/varint.h",
)
# What the agent can be told; the standard library only, as the format.
SETTINGS = ("proto/settings/",)
# In tests of every layer.
_TESTING = ("base/seed_for_testing.h",)
_CORE_PARTS = ("preload", "ring", "cpython", "capture", "torch", "device", "python")
AGENT_CORE = tuple(f"agent/{part}/" for part in _CORE_PARTS)
# The floors of the engine, from below: each includes those before it.
_TRACE = ("base/", "invariants/trace/") + RECORD_FORMAT
_FACTS = _TRACE + ("invariants/facts/",)
_RULES = _FACTS + ("invariants/rules/",)
_RELATIONS = _RULES + ("invariants/relations/",)
_SETS = _RELATIONS + ("invariants/sets/",)
_LIBRARY = _SETS + ("invariants/library/",)
_TRAINCHECK = _SETS + ("invariants/traincheck/",)
LAYERS = {
    "base/": ("base/",),
    "proto/": ("proto/",),
    "invariants/trace/": _TRACE,
    "invariants/facts/": _FACTS,
    "invariants/rules/": _RULES,
    "invariants/relations/": _RELATIONS,
    "invariants/sets/": _SETS,
    "invariants/library/": _LIBRARY,
    "invariants/traincheck/": _TRAINCHECK,
    "invariants/testing/": _TRACE + ("invariants/testing/",),
    "invariants/": (),  # no floor
    "checker/": ("checker/",) + _SETS,
    "inference/": ("inference/",) + _SETS,
    "server/": ("server/", "checker/", "inference/", "proto/") + _LIBRARY,
    "ctl/": ("ctl/", "proto/", "invariants/library/") + _TRAINCHECK,
    "agent/relay/": ("agent/relay/", "agent/ring/", "base/", "proto/"),
    **{
        folder: AGENT_CORE + RECORD_FORMAT + SETTINGS + _TESTING
        for folder in AGENT_CORE
    },
}
# A relation includes its own folder and what lies below relations.
_RELATION = re.compile(r"^invariants/relations/[^/]+/")
# What their tests may include besides.
_RUNS_FOR_TESTS = ("invariants/testing/",)
_READS_RUNS = ("invariants/", "checker/", "inference/", "server/")
_OUR_FOLDERS = ("agent/", "tests/", "tools/", "deploy/") + tuple(LAYERS)

# A library, how its headers begin (or what matches them), and the files that
# may include it.
_GRPC = re.compile(r"^grpc(pp|\+\+)?/|\.grpc\.pb\.h$")
_PROTOBUF = re.compile(r"^google/protobuf/|\.pb\.h$")
_ROCKSDB = re.compile(r"^rocksdb/")
_PYTHON = re.compile(r"^(Python|structmember|frameobject)\.h$")
_LIBRARIES = (
    (
        "gRPC",
        _GRPC,
        re.compile(
            r"_service\.(h|cc)$|^base/credentials|^server/traincheckd_main\.cc$"
            r"|^agent/relay/|^ctl/|^tests/|^(server|base)/.*_(test|for_testing)\."
            r"|^bazel/sanitizers/"
        ),
    ),
    (
        "protobuf",
        _PROTOBUF,
        re.compile(r"^(proto|server|ctl|agent/relay|tests)/|_service\.(h|cc)$"),
    ),
    ("RocksDB", _ROCKSDB, re.compile(r"^server/store/")),
    (
        "Python's C API",
        _PYTHON,
        re.compile(r"^agent/(cpython|capture|torch|python)/|^tests/"),
    ),
)
_TEST_FILE = re.compile(r"_(test|for_testing|benchmark|fuzzer)(_main)?\.(h|cc|c)$")
# May include any folder of its part, whichever includes whom: programs, tests.
_ABOVE_ALL = re.compile(_TEST_FILE.pattern + r"|_main\.c|/testing/|^tests/")
_TEST_LIBRARIES = ("gtest/", "gmock/", "benchmark/")


def _includes(text: str):
    """Yields (line, path) of every include."""
    for number, line in enumerate(text.splitlines(), 1):
        match = _INCLUDE.match(line)
        if match:
            yield number, match.group(1) or match.group(2)


def _layer_of(name: str):
    folders = [folder for folder in LAYERS if name.startswith(folder)]
    return max(folders, key=len) if folders else None


def _allowed(name: str):
    """(folder, what its files may include of ours)."""
    test = _TEST_FILE.search(name)
    runs = _RUNS_FOR_TESTS if test and name.startswith(_READS_RUNS) else ()
    relation = _RELATION.match(name)
    if relation:
        registry = ("invariants/relations/registry.h",) if test else ()
        return relation.group(), _RULES + (relation.group(),) + registry + runs
    layer = _layer_of(name)
    return layer, LAYERS.get(layer, ("",)) + runs


def _check_ours(name: str, path: str):
    layer, allowed = _allowed(name)
    if path.startswith(allowed):
        return None
    return f'{layer[:-1]} must not include "{path}"'


def _check_library(name: str, path: str):
    for library, headers, users in _LIBRARIES:
        if headers.search(path) and not users.search(name):
            return f'{library} ends before this file: "{path}"'
    return None


def _check_core(name: str, path: str):
    """The training process gets the C and C++ libraries and Linux only."""
    if _layer_of(name) not in AGENT_CORE:
        return None
    if _TEST_FILE.search(name) and path.startswith(_TEST_LIBRARIES):
        return None
    if system_headers.is_system(path) or _PYTHON.search(path):
        return None
    return f'the agent in the training process must not include "{path}"'


def _check_include(tree: SourceTree, name: str, path: str):
    if (tree.root / name).parent.joinpath(path).exists():
        return f'write the path from the root instead of "{path}"'
    ours = path.startswith(_OUR_FOLDERS)
    message = _check_ours(name, path) if ours else _check_core(name, path)
    return message or _check_library(name, path)


def _both_ways(includes: dict):
    """Problems of folders that include each other.

    includes: (folder, other folder) -> [(name, line)] of the includes. Reported
    are the fewer ones of a pair.
    """
    for pair, places in includes.items():
        back = includes.get(pair[::-1], [])
        if (len(places), pair) < (len(back), pair[::-1]):
            for name, line in places:
                message = f"must not include {pair[1]}, which includes {pair[0]}"
                yield Problem(name, line, message)


def check(tree: SourceTree):
    between = collections.defaultdict(list)
    for name in tree.with_suffix(".h", ".cc", ".c"):
        if _layer_of(name) == "invariants/":
            yield Problem(name, 1, "stands on no floor of invariants")
        for line, path in _includes(tree.text(name)):
            message = _check_include(tree, name, path)
            if message:
                yield Problem(name, line, message)
            folders = (posixpath.dirname(name), posixpath.dirname(path))
            ours = path.startswith(_OUR_FOLDERS) and folders[0] != folders[1]
            if ours and not _ABOVE_ALL.search(name):
                between[folders].append((name, line))
    yield from _both_ways(between)
