"""What a relay says, byte by byte: protobuf messages, zstd frames, records.

Written by hand, because tests of hostile input say what no library would.
"""

import struct

INGEST = "/traincheck.v1.Ingest/Stream"
IMPORT_SET = "/traincheck.v1.Control/ImportSet"
MAIN, REFERENCE, CLEAN = 1, 2, 1
STEP_CLOSED = 5
_MASK = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def message(*fields) -> bytes:
    """Of (number, value) pairs: int, str or bytes."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            raw = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(raw)) + raw
    return out


def hello(run="r", pid=7, ticks=1, versions=(1, 1), host="node", **more) -> bytes:
    """An IngestRequest. more: resumes=1, attempt=2."""
    process = message((1, host), (2, "boot"), (3, pid), (4, ticks), (6, MAIN))
    numbers = {"attempt": 7, "resumes": 13}
    return message(
        (
            1,
            message(
                (1, versions[0]),
                (2, versions[1]),
                (3, "test"),
                (4, process),
                (5, run),
                (6, "experiment"),
                (8, REFERENCE),
                (14, 1),
                *((numbers[name], value) for name, value in more.items()),
            ),
        )
    )


def batch(number: int, payload: bytes, plain_bytes: int, slices) -> bytes:
    """An IngestRequest. slices: (ring, from, to, records)."""
    fields = [(1, number)]
    fields += [(2, message(*enumerate(numbers, 1))) for numbers in slices]
    return message((2, message(*fields, (3, plain_bytes), (4, payload))))


def records_batch(number: int, start: int, plain: bytes, records: int) -> bytes:
    """The records stand in ring 1 from position `start` on."""
    where = [(1, start, start + len(plain), records)]
    return batch(number, frame(plain), len(plain), where)


def goodbye(committed: int) -> bytes:
    report = message((1, 1), (4, committed), (5, committed))
    return message((4, message((1, CLEAN), (2, report))))


def step_closed(step: int) -> bytes:
    return struct.pack("<HBBIIIQ", 24, 10, STEP_CLOSED, 0, 0, 0, step)


def frame(plain: bytes) -> bytes:
    """A zstd frame of one raw block with checksum."""
    header = struct.pack("<IBI", 0xFD2FB528, 0xA4, len(plain))
    block = struct.pack("<I", len(plain) << 3 | 1)[:3]
    return header + block + plain + struct.pack("<I", xxh64(plain) & 0xFFFFFFFF)


def bomb(size: int) -> bytes:
    """A zstd frame of a few hundred bytes that unfolds to `size` zeros."""
    blocks = []
    left = size
    while left > 0:
        here = min(left, 128 << 10)
        left -= here
        blocks.append(struct.pack("<I", here << 3 | 1 << 1 | (left == 0))[:3] + b"\0")
    return struct.pack("<IBI", 0xFD2FB528, 0xA4, size) + b"".join(blocks) + b"\0" * 4


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _round(lane: int, word: int) -> int:
    return _rotate((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def xxh64(data: bytes) -> int:
    """XXH64 with seed 0."""
    at = 0
    total = _P5
    if len(data) >= 32:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        while at + 32 <= len(data):
            words = struct.unpack_from("<4Q", data, at)
            lanes = [_round(lane, word) for lane, word in zip(lanes, words)]
            at += 32
        total = sum(_rotate(lane, n) for lane, n in zip(lanes, (1, 7, 12, 18)))
        for lane in lanes:
            total = ((total ^ _round(0, lane)) * _P1 + _P4) & _MASK
    total = (total + len(data)) & _MASK
    while at + 8 <= len(data):
        word = _round(0, struct.unpack_from("<Q", data, at)[0])
        total = (_rotate(total ^ word, 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= len(data):
        word = struct.unpack_from("<I", data, at)[0]
        total = (_rotate(total ^ word * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        total = _rotate(total ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    total = (total ^ total >> 33) * _P2 & _MASK
    total = (total ^ total >> 29) * _P3 & _MASK
    return total ^ total >> 32
