"""Decodes what an agent recorded, by proto/RECORD_FORMAT.md, names resolved.

    record_dump.py FOLDER PID     prints the records, one a line

FOLDER is what agent/capture/relay_for_testing.py wrote.
"""

import json
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path("agent/capture").resolve()))
from fields_for_testing import decode_fields  # noqa: E402

_TYPES = {
    # By type: name, layout behind the header, names.
    2: ("clock_sync", "<QQQ", "monotonic realtime next_call"),
    3: ("begin", "<IIII", "function site call parent_distance"),
    4: ("end", "<II", "call function"),
    5: ("raised", "<II", "call function"),
    6: ("state", "<IBBH", "variable point content reserved"),
    7: ("scalar", "<IBBHIId", "object point r group name r2 value"),
    8: ("context_enter", "<II", "function site"),
    9: ("context_exit", "<II", "function site"),
    10: ("mark", "<IIQ", "object site value"),
    11: ("place", "<iiiI", "rank world local_rank source"),
    12: ("drops", "<Q", "dropped"),
    13: ("checkpoint", "<IBBHQ", "key point content reserved digest"),
    14: (
        "statistics",
        "<IBBHddQQ",
        "variable point of reserved norm absmax nans infs",
    ),
    15: ("rows", "<IBBHQQ", "variable point of reserved first rows"),
    32: ("string", "<II", "id aux"),
    33: ("function", "<II", "id aux"),
    34: ("site", "<II", "id aux"),
    35: ("object", "<II", "id aux"),
    36: ("variable", "<II", "id aux"),
    37: ("hold", "<II", "id group"),
    38: ("replica_group", "<II", "id aux"),
    39: ("process", "<II", "id aux"),
    40: ("process_group", "<II", "id aux"),
    41: ("collective", "<IIQ", "group reserved sequence"),
}
_POINTS = (
    "none construction wrap_end forward_begin backward_end pre_clip post_clip "
    "pre_step post_step grad_clear step_end save load state_dict "
    "load_state_dict fetch worker_init forward_end"
).split()
_MARKS = (
    "none iterator_created batch_fetched iterator_exhausted iterator_abandoned "
    "step_closed clean_exit user_step user_stage step_skipped plan_applied"
    " capture_mode function_on function_off"
    " optimizer_steps unclean_exit"
).split()
_FIELDS = {
    1: "self",
    2: "parent_ring",
    3: "parent_call",
    4: "exception",
    32: "text",
    33: "name",
    34: "category",
    35: "roles",
    36: "file",
    37: "line",
    38: "function_name",
    39: "class",
    40: "bases",
    41: "kind",
    42: "path",
    43: "root",
    44: "wrapped",
    45: "variable_kind",
    46: "owner",
    47: "dtype",
    48: "device",
    49: "shape",
    50: "trainable",
    51: "alias_group",
    52: "epoch",
    53: "variables",
    54: "evidence",
    55: "ranks",
    56: "wrapper",
    57: "root_class",
    68: "process_kind",
    69: "worker_id",
    72: "attempt",
    80: "owner_pid",
    90: "shadow_of",
    91: "left_out",
    84: "backend",
    85: "mesh",
    86: "mesh_dimension",
    87: "mesh_name",
    88: "attributes",
}
_LISTS = (35, 40, 49, 53, 55, 88)
_STRINGS = (4, 33, 34, 35, 36, 38, 39, 40, 42, 46, 47, 48, 54, 57, 84, 87, 88)


_TENSOR = 12  # its bytes are no text


def _fields(data):
    fields = {}
    for number, values in decode_fields(data).items():
        if number != _TENSOR:
            values = [v.decode() if isinstance(v, bytes) else v for v in values]
        fields[number] = values if number in _LISTS else values[-1]
    return fields


def _records(content):
    """(type, flags, fixed part as dictionary, rest) of each record."""
    at = 0
    while at < len(content):
        size, kind, flags, _ = struct.unpack_from("<HBBI", content, at)
        if size < 8 or size % 8 or at + size > len(content):
            raise ValueError(f"record at byte {at}: size {size}")
        body = content[at + 8 : at + size]
        at += size
        if kind in _TYPES:
            _, layout, names = _TYPES[kind]
            fixed = dict(zip(names.split(), struct.unpack_from(layout, body)))
            yield kind, flags, fixed, body[struct.calcsize(layout) :]


def _ring_number(counters):
    return int(counters.name.split(".")[1])


def pids(folder):
    """The processes that have ended."""
    names = [path.name.split(".") for path in folder.glob("*.0.json")]
    return sorted(int(name[0]) for name in names)


class Dump:
    """All records of one process, in the order of each ring."""

    def __init__(self, folder, pid):
        self.pid = pid
        self.rings = []
        self._strings, self._names = {0: ""}, {}
        self.definitions = []
        self.records = []
        for counters in sorted(folder.glob(f"{pid}.*.json"), key=_ring_number):
            ring = json.loads(counters.read_text())
            ring["ring"] = _ring_number(counters)
            ring["records"] = 0
            for kind, flags, fixed, rest in _records(
                counters.with_suffix("").read_bytes()
            ):
                ring["records"] += 1
                if 32 <= kind <= 40:
                    self._define(kind, fixed, _fields(rest))
                else:
                    self.records.append(
                        self._event(ring["ring"], kind, flags, fixed, rest)
                    )
            self.rings.append(ring)

    def of(self, *types):
        return [record for record in self.records if record["type"] in types]

    def defined(self, *types):
        return [record for record in self.definitions if record["type"] in types]

    def _resolve(self, fields):
        resolved = {}
        for number, value in fields.items():
            if number in _STRINGS:
                if isinstance(value, list):
                    value = [self._strings.get(item, "?") for item in value]
                else:
                    value = self._strings.get(value, "?")
            resolved[_FIELDS.get(number, str(number))] = value
        return resolved

    def _define(self, kind, fixed, fields):
        name = _TYPES[kind][0]
        if name == "string":
            self._strings[fixed["id"]] = fields[32]
            return
        entry = {"type": name, **fixed, **self._resolve(fields)}
        if name == "function":
            label = entry["name"]
        elif name == "site":
            label = f"{entry.get('file')}:{entry.get('line')}"
        elif name == "object":
            label = f"{entry['class']}#{fixed['id']}"
        elif name == "variable":
            label = f"{entry.get('root_class')}.{entry['name']}"
        else:
            label = None
        entry["label"] = label
        self._names[name, fixed["id"]] = label
        if "variables" in entry:
            entry["variables"] = [
                self._names.get(("variable", number)) for number in entry["variables"]
            ]
        self.definitions.append(entry)

    def _event(self, ring, kind, flags, fixed, rest):
        name = _TYPES[kind][0]
        event = {"type": name, "ring": ring, "flags": flags, **fixed}
        for key in ("function", "site", "object", "variable"):
            if key in fixed:
                event[key] = self._names.get((key, fixed[key]))
        if "point" in fixed:
            event["point"] = _POINTS[fixed["point"]]
        if name == "state":
            words = struct.unpack(f"<{len(rest) // 8}Q", rest)
            event["digests"] = [f"{word:016x}" for word in words]
        elif name == "mark":
            event["kind"] = _MARKS[flags]
        elif name == "scalar":
            event["name"] = self._strings.get(fixed["name"])
        elif rest:
            fields = self._resolve(_fields(rest))
            if "self" in fields:
                fields["self"] = self._names.get(("object", fields["self"]))
            event.update(fields)
        return event


def main():
    dump = Dump(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
    for record in dump.definitions + dump.records:
        print(json.dumps(record))
    print(json.dumps(dump.rings))


if __name__ == "__main__":
    main()
