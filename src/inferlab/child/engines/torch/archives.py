"""Zip archives that can be read in one way only.

Readers of zip files disagree: about names that differ in case only, about bytes before the first entry, about a
second directory, about headers that contradict it. Whoever checks an archive with one reader and loads it with
another has checked nothing. So an archive is accepted only if its entries, their directory and the end record
fill the file without gap or overlap, and say the same wherever they repeat themselves.
"""

from __future__ import annotations

import os
import struct
from typing import IO, Dict, List, NamedTuple, Tuple

_END = struct.Struct("<4s4H2IH")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_STORED, _DEFLATED = 0, 8
_HAS_DESCRIPTOR, _UTF8 = 1 << 3, 1 << 11
# Bits 1 and 2 only tell how hard the writer tried to compress.
_FLAGS = _HAS_DESCRIPTOR | _UTF8 | 0b110
_LINK = 0xA000
_LARGEST_DIRECTORY_BYTES = 256 << 20
# What is compressed in torch's archives is source text; deflate cannot shrink anything more than 1032 times.
_LARGEST_INFLATED_BYTES = 512 << 20
_LARGEST_RATIO = 1032


class Ambiguous(Exception):
    """An archive that two readers could read differently, or that no genuine writer wrote."""


class Entry(NamedTuple):
    """One file in an archive."""

    name: str
    size_bytes: int
    compressed_bytes: int
    method: int
    flags: int
    crc: int
    offset: int
    raw_name: bytes


def read_directory(file: IO[bytes]) -> List[Entry]:
    """Every entry of an archive that has exactly one reading; Ambiguous says what is wrong with another."""
    size = file.seek(0, os.SEEK_END)
    start, end, count = _directory_span(file, size)
    if end - start > _LARGEST_DIRECTORY_BYTES:
        raise Ambiguous("its directory is too large")
    entries = _central_entries(_read(file, start, end - start), count)
    _check_names(entries)
    if sum(entry.size_bytes for entry in entries if entry.method == _DEFLATED) > _LARGEST_INFLATED_BYTES:
        raise Ambiguous("what it compresses is larger than {} MB".format(_LARGEST_INFLATED_BYTES >> 20))
    position = 0
    for entry in sorted(entries, key=lambda entry: entry.offset):
        if entry.offset != position:
            raise Ambiguous("there are bytes before {!r} that belong to no entry".format(entry.name))
        position = _end_of_entry(file, entry, start)
    if position != start:
        raise Ambiguous("there are bytes before its directory that belong to no entry")
    return entries


def relative_names(entries: List[Entry]) -> Dict[str, Entry]:
    """The entries by their names in the one folder that torch puts everything into."""
    roots = {entry.name.partition("/")[0] for entry in entries}
    if len(roots) != 1 or any("/" not in entry.name for entry in entries):
        raise Ambiguous("its entries are not in one folder")
    return {entry.name.partition("/")[2]: entry for entry in entries}


def _directory_span(file: IO[bytes], size: int) -> Tuple[int, int, int]:
    """Where the directory begins and ends, and how many entries it has."""
    if size < _END.size:
        raise Ambiguous("it is cut off")
    end = size - _END.size
    magic, disk, first_disk, here, count, length, start, comment = _END.unpack(_read(file, end, _END.size))
    if magic != b"PK\5\6" or comment:
        raise Ambiguous("it is cut off, or something follows its end record")
    if disk or first_disk or here != count:
        raise Ambiguous("it is one part of several")
    locator = end - _LOCATOR.size
    if locator >= _END_64.size and _read(file, locator, 4) == b"PK\6\7":
        _, disk, position, disks = _LOCATOR.unpack(_read(file, locator, _LOCATOR.size))
        end = locator - _END_64.size
        record = _END_64.unpack(_read(file, end, _END_64.size))
        magic, record_size, _, _, *disks_64, here, count_64, length_64, start_64 = record
        if position != end or magic != b"PK\6\6" or record_size != _END_64.size - 12 or here != count_64:
            raise Ambiguous("its two end records contradict each other")
        if disk or disks > 1 or any(disks_64):
            raise Ambiguous("it is one part of several")
        for small, large, unknown in (
            (count, count_64, 0xFFFF),
            (length, length_64, 0xFFFFFFFF),
            (start, start_64, 0xFFFFFFFF),
        ):
            if small not in (large, unknown):
                raise Ambiguous("its two end records contradict each other")
        count, length, start = count_64, length_64, start_64
    if start + length != end:
        raise Ambiguous("its directory is not where its end record says")
    return start, end, count


def _central_entries(data: bytes, count: int) -> List[Entry]:
    entries = []
    position = 0
    while position < len(data):
        if len(data) - position < _CENTRAL.size:
            raise Ambiguous("its directory is damaged")
        (magic, _, _, flags, method, _, _, crc, packed, size, *lengths, disk, _, attributes, offset) = (
            _CENTRAL.unpack_from(data, position)
        )
        name_length, extra_length, comment_length = lengths
        begin = position + _CENTRAL.size
        position = begin + name_length + extra_length + comment_length
        if magic != b"PK\1\2" or position > len(data) or comment_length or disk:
            raise Ambiguous("its directory is damaged")
        raw_name = data[begin : begin + name_length]
        extra = data[begin + name_length : position]
        size, packed, offset = _large_sizes(extra, [size, packed, offset])
        entry = Entry(_decoded(raw_name, flags), size, packed, method, flags, crc, offset, raw_name)
        if attributes >> 16 & 0xF000 == _LINK:
            raise Ambiguous("{!r} is a link".format(entry.name))
        _check_method(entry)
        entries.append(entry)
    if len(entries) != count:
        raise Ambiguous("its directory has another number of entries than its end record says")
    return entries


def _large_sizes(extra: bytes, sizes: List[int]) -> List[int]:
    """Sizes of 4 GB and more stand in an extra field; elsewhere it must not be."""
    fields: Dict[int, bytes] = {}
    position = 0
    while position < len(extra):
        if len(extra) - position < 4:
            raise Ambiguous("its directory is damaged")
        kind, length = struct.unpack_from("<2H", extra, position)
        if kind in fields or position + 4 + length > len(extra):
            raise Ambiguous("its directory is damaged")
        fields[kind] = extra[position + 4 : position + 4 + length]
        position += 4 + length
    unknown = [number for number, size in enumerate(sizes) if size == 0xFFFFFFFF]
    large = fields.get(1, b"")
    if len(large) != 8 * len(unknown):
        raise Ambiguous("the sizes of an entry contradict each other")
    for number, value in zip(unknown, struct.unpack("<{}Q".format(len(unknown)), large)):
        sizes[number] = value
    return sizes


def _check_method(entry: Entry) -> None:
    if entry.flags & ~_FLAGS:
        raise Ambiguous("{!r} is encrypted or patched".format(entry.name))
    if entry.method not in (_STORED, _DEFLATED):
        raise Ambiguous("{!r} is compressed in a way that torch does not write".format(entry.name))
    if entry.method == _STORED and entry.size_bytes != entry.compressed_bytes:
        raise Ambiguous("the sizes of {!r} contradict each other".format(entry.name))
    if entry.size_bytes > max(1, entry.compressed_bytes) * _LARGEST_RATIO:
        raise Ambiguous("{!r} cannot be as large as it says".format(entry.name))


def _decoded(raw_name: bytes, flags: int) -> str:
    try:
        return raw_name.decode("utf-8" if flags & _UTF8 else "ascii")
    except UnicodeDecodeError:
        raise Ambiguous("the name of an entry is not readable") from None


def _check_names(entries: List[Entry]) -> None:
    seen = set()
    for entry in entries:
        parts = entry.name.split("/")
        if "" in parts or "." in parts or ".." in parts or "\\" in entry.name or not entry.name.isprintable():
            raise Ambiguous("{!r} is not a valid name of an entry".format(entry.name))
        # torch's reader does not tell upper from lower case.
        if entry.name.lower() in seen:
            raise Ambiguous("it has two entries named {!r}".format(entry.name))
        seen.add(entry.name.lower())


def _end_of_entry(file: IO[bytes], entry: Entry, limit: int) -> int:
    """Where an entry ends, checked against its own header and what follows it."""
    header = _read(file, entry.offset, _LOCAL.size)
    magic, _, flags, method, _, _, crc, packed, size, name_length, extra_length = _LOCAL.unpack(header)
    begin = entry.offset + _LOCAL.size + name_length + extra_length
    end = int(begin + entry.compressed_bytes)
    name = _read(file, entry.offset + _LOCAL.size, name_length)
    if (
        magic != b"PK\3\4"
        or name != entry.raw_name
        or flags != entry.flags
        or method != entry.method
        or end > limit
    ):
        raise Ambiguous("the header of {!r} contradicts the directory".format(entry.name))
    listed = (entry.crc, entry.compressed_bytes, entry.size_bytes)
    if flags & _HAS_DESCRIPTOR:
        if any(value not in (right, 0, 0xFFFFFFFF) for value, right in zip((crc, packed, size), listed)):
            raise Ambiguous("the header of {!r} contradicts the directory".format(entry.name))
        return end + _descriptor_length(_read(file, end, min(24, limit - end)), listed, entry.name)
    if any(value not in (right, 0xFFFFFFFF) for value, right in zip((crc, packed, size), listed)):
        raise Ambiguous("the header of {!r} contradicts the directory".format(entry.name))
    return end


def _descriptor_length(data: bytes, listed: Tuple[int, int, int], name: str) -> int:
    for form in ("<4sIQQ", "<4sIII"):
        if form == "<4sIII" and max(listed) > 0xFFFFFFFF:
            continue
        expected = struct.pack(form, b"PK\7\10", *listed)
        if data.startswith(expected):
            return len(expected)
    raise Ambiguous("what follows {!r} contradicts the directory".format(name))


def _read(file: IO[bytes], position: int, length: int) -> bytes:
    file.seek(position)
    data = file.read(length)
    if len(data) != length:
        raise Ambiguous("it is cut off")
    return data
