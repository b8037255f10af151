"""Decodes the fields of records (proto/RECORD_FORMAT.md)."""

import struct


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def list_fields(data):
    """[(field number, value)] of the bytes behind a record's fixed part."""
    fields, at = [], 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag == 0:
            break
        if tag & 3 == 2:
            value = struct.unpack_from("<d", data, at)[0]
            at += 8
        else:
            value, at = _varint(data, at)
        if tag & 3 == 1:
            value = value >> 1 ^ -(value & 1)
        if tag & 3 == 3:
            value, at = data[at : at + value], at + value
        fields.append((tag >> 2, value))
    return fields


def decode_fields(data):
    """{field number: [values]}"""
    fields = {}
    for number, value in list_fields(data):
        fields.setdefault(number, []).append(value)
    return fields
