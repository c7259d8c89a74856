"""A reader of a data directory, written from docs/internals/format.md alone: it imports nothing of
raftlog. When it and the product disagree, the page is wrong or the format has changed.
"""

import hashlib
import struct

import crc32c


def crc(data):
    return crc32c.crc32c(bytes(data))


def chain_hash(data):
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def chain_start(cluster, group):
    return chain_hash(b"raftlog chain 1" + cluster + struct.pack(">Q", group))


class Fields:
    def __init__(self, data, at=0):
        self.data, self.at = bytes(data), at

    def take(self, pattern):
        values = struct.unpack_from(">" + pattern, self.data, self.at)
        self.at += struct.calcsize(">" + pattern)
        return values if len(values) > 1 else values[0]

    def raw(self, size):
        self.at += size
        return self.data[self.at - size : self.at]

    def block(self):
        return self.raw(self.take("I"))

    def ids(self):
        return [self.take("IQQ") for _ in range(self.take("I"))]


def whole_copy(data, size):
    """The first of two equal copies whose last four bytes are the CRC of the rest."""
    for at in (0, size):
        copy = data[at : at + size]
        if len(copy) == size and crc(copy[:-4]) == struct.unpack(">I", copy[-4:])[0]:
            return copy
    raise ValueError("no whole copy")


def read_format(data):
    fields = Fields(whole_copy(data, 2048))
    assert fields.raw(8) == b"rlformat"
    assert fields.take("HHHH") == (1, 1, 1, 0)
    return {
        "cluster": fields.raw(16),
        "node": fields.take("I"),
        "directory": fields.take("Q"),
        "controllers": fields.ids(),
    }


def read_segment_header(data):
    fields = Fields(whole_copy(data, 2048))
    assert fields.raw(8) == b"raftlog\0"
    assert fields.take("HH") == (1, 1)
    header = {"flags": fields.take("I"), "cluster": fields.raw(16), "group": fields.take("Q")}
    header["replica"] = fields.take("IQQ")
    names = ("sequence", "first_index", "base_offset", "term_before", "term", "chain_before")
    header |= zip(names, fields.take("QQQIIQ"), strict=True)
    header["log_start"] = fields.take("Q")
    header["repair"] = fields.take("QI")
    header["membership_index"] = fields.take("Q")
    inner = Fields(fields.block())
    header["membership"] = [inner.ids() for _ in range(4)]
    return header


def read_segment(data):
    """Header and entries: (raft index, term, base offset, kind, batch bytes, chain after)."""
    header = read_segment_header(data[:4096])
    at, index, offset = 4096, header["first_index"], header["base_offset"]
    chain = header["chain_before"]
    entries = []
    while at + 61 <= len(data):
        base, length, term, magic, checksum = struct.unpack_from(">qiibI", data, at)
        batch = data[at : at + length + 12]
        if length < 49 or len(batch) < length + 12 or magic != 2 or base != offset:
            break
        if crc(batch[21:]) != checksum:
            break
        attributes, delta = struct.unpack_from(">hi", batch, 21)
        kind = 0
        if attributes & 0x20 and delta == -1:
            kind, version, reserved, group, own_term, own = struct.unpack_from(">BBHQIQ", batch, 61)
            assert (version, reserved) == (1, 0)
            assert (group, own_term, own) == (header["group"], term, index)
        chain = chain_hash(struct.pack(">Q", chain) + batch[:61])
        entries.append((index, term, base, kind, batch, chain))
        at, index, offset = at + len(batch), index + 1, base + delta + 1
    return header, entries


def read_log(files):
    """The live entries of a replica, from {name: bytes} of its directory."""
    names = sorted((name for name in files if name.endswith(".log")), key=lambda n: n[21:31])
    head = Fields(whole_copy(files["head"], 68), 56).take("Q") if "head" in files else 1
    live, stop, done = [], None, False
    for name in reversed(names):
        first = int(name[:20])
        if done or (stop is not None and first >= stop) or first < head:
            continue
        header, entries = read_segment(files[name])
        live.insert(0, [entry for entry in entries if stop is None or entry[0] < stop])
        stop, done = first, bool(header["flags"] & 1)
    return [entry for entries in live for entry in entries]


def read_store_file(data):
    """(generation, records) of one store file; None when it has no whole image."""
    for at in (0, 512):
        head = data[at : at + 60]
        if head[:8] == b"rlstore\0" and crc(head[:56]) == struct.unpack(">I", head[56:])[0]:
            break
    else:
        return None
    generation, number, previous = struct.unpack_from(">QQI", head, 40)
    records, at = [], 1024
    while (found := find_frame(data, at, generation, number, previous)) is not None:
        content, previous, at = found
        records += content
        number += 1
    return (generation, records) if records else None


def find_frame(data, start, generation, number, previous):
    for at in range(start, len(data) - 28, 512):
        if data[at : at + 4] != b"RLFR":
            continue
        length = struct.unpack_from(">I", data, at + 4)[0]
        body = data[at : at + 28 + length]
        checksum = struct.unpack_from(">I", data, at + 28 + length)[0]
        if crc(body) != checksum:
            continue
        if struct.unpack_from(">QQI", body, 8) != (generation, number, previous):
            continue
        fields, records = Fields(body, 28), []
        while fields.at < len(body):
            records.append(fields.block())
        return records, checksum, at + 512
    return None


def read_store(first, second):
    """The state: boot number, registrations, hard states, marks."""
    found = [one for one in map(read_store_file, (first, second)) if one]
    _, records = max(found, key=lambda one: one[0])
    state = {"boot": 0, "registered": {}, "hard": {}, "marks": {}}
    for record in records:
        fields = Fields(record)
        kind = fields.take("B")
        if kind == 1:
            state["boot"] = fields.take("Q")
            continue
        group = fields.take("Q")
        if kind in (2, 3):
            for part in ("registered", "hard", "marks"):
                state[part].pop(group, None)
        if kind == 2:
            state["registered"][group] = (fields.take("IQQ"), fields.block().decode())
        elif kind == 4:
            term, voted = fields.take("IB")
            state["hard"][group] = (term, fields.take("IQQ") if voted else None)
        elif kind == 5:
            state["marks"][group] = fields.take("QQQIQQ")
    return state


def read_snapshot(data):
    assert hashlib.blake2b(data[:-32], digest_size=32).digest() == data[-32:]
    fields = Fields(data)
    assert fields.raw(8) == b"rlstate\0"
    assert fields.take("HH") == (1, 1)
    found = {"cluster": fields.raw(16), "group": fields.take("Q"), "replica": fields.take("IQQ")}
    names = ("index", "term", "chain", "next_offset", "log_start", "membership_index")
    found |= zip(names, fields.take("QIQQQQ"), strict=True)
    fields.block()
    found["body"] = fields.raw(fields.take("Q"))
    return found


def read_index(data):
    assert crc(data[:-4]) == struct.unpack(">I", data[-4:])[0]
    fields = Fields(data)
    assert fields.raw(8) == b"rlindex\0"
    assert fields.take("HH") == (2, 0)
    found = {"place": fields.take("QQQ"), "end": fields.take("QQQQq")}
    found["points"] = [fields.take("QQQQq") for _ in range(fields.take("I"))]
    found["terms"] = [fields.take("IQQ") for _ in range(fields.take("I"))]
    found["controls"] = [fields.take("QQIBQ") for _ in range(fields.take("I"))]
    return found
