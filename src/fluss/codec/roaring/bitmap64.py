"""Roaring bitmaps of 64-bit numbers in the form of Java's `Roaring64Bitmap`, and their union: the function `rbm64`.

This is not the portable 64-bit form that other libraries share. The high 48 bits of the numbers are keys of a tree
whose leaves name containers of the low 16 bits:

    1  0: empty, nothing follows; 1: not empty
    8  number of keys
    the root node; every node is followed by its children in the order of their keys
        1  kind: 0, 1, 2, 3 for at most 4, 16, 48, 256 children; 4 for a leaf
        2  number of children (a leaf: 0)
        1  length of the prefix that all keys below share from here on, and the prefix
        kind 0:   4 bytes in reverse: the next byte of each child's key, sorted, then zeros
        kind 1:  16 bytes, as kind 0, in two groups of eight, each in reverse
        kind 2: 256 bytes, for each possible byte the place of its child or 255, in groups of eight, each in reverse
        kind 3:  32 bytes, a bit for each possible byte
        leaf:     6 bytes of key, big-endian; 8 bytes index of its container
    4  number of container lists: 1 (a second one would begin after two billion containers)
    1  254, then 4 bytes length of the list
    per place of the list: 0 if it is empty, or 1, the form, 4 bytes count of numbers, and the container
    8  number of containers
    4, 4  list and place of the last container

All numbers but the key are little-endian. The tree and the list grow as in Java (children take places in the order of
their arrival, the list grows by half when it is full), so that the bytes are the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from fluss.codec.roaring.containers import RUN, Container, Cursor, broken, optimised, read_container, union

KEY_BYTES = 6
LEAF = 4
MOST_CHILDREN = (4, 16, 48, 256)
_BODY_BYTES = (4, 16, 256, 32)
NO_CHILD = 255
LIST_MARK = 254
_NODE = struct.Struct("<BHB")
_LEAF = struct.Struct("<6sq")
_LIST = struct.Struct("<iBi")
_CONTAINER = struct.Struct("<Bi")
_I64 = struct.Struct("<q")
_END = struct.Struct("<qii")


class Node:
    """An inner node. `children` has them by the next byte of their keys, in the order of their places."""

    __slots__ = ("children", "prefix")

    def __init__(self, prefix: bytes, children: dict[int, Node | Leaf]) -> None:
        self.prefix = prefix
        self.children = children

    def add(self, byte: int, child: Node | Leaf) -> None:
        """Add a child. Children keep their places once there are more than 16; until then they are sorted."""
        if len(self.children) == MOST_CHILDREN[1]:
            self.children = dict(sorted(self.children.items()))
        self.children[byte] = child


class Leaf:
    """A leaf: a key, and the place of its container in the list."""

    __slots__ = ("key", "place")

    def __init__(self, key: bytes, place: int) -> None:
        self.key = key
        self.place = place


class Bitmap64:
    """A mutable bitmap of 64-bit numbers: the tree of keys, and the list of containers."""

    def __init__(self) -> None:
        self.root: Node | Leaf | None = None
        self.containers: list[Container | None] = []
        self.used = 0

    def leaves(self) -> Iterator[Leaf]:
        """The leaves in the order of their keys."""
        if self.root is not None:
            yield from _leaves(self.root)

    def add(self, key: bytes, container: Container) -> None:
        """Add a container for a key that has none yet."""
        if self.used == len(self.containers):
            length = max(self.used + (self.used >> 1), self.used + 1)
            self.containers += [None] * (length - self.used)
        self.containers[self.used] = container
        leaf = Leaf(key, self.used)
        self.used += 1
        self.root = leaf if self.root is None else _insert(self.root, leaf, 0)

    def unite(self, other: Bitmap64) -> None:
        """Add all numbers of another bitmap."""
        places = {leaf.key: leaf.place for leaf in self.leaves()}
        for leaf in other.leaves():
            container = other.containers[leaf.place]
            assert container is not None
            place = places.get(leaf.key)
            if place is None:
                self.add(leaf.key, container)
                continue
            known = self.containers[place]
            assert known is not None
            self.containers[place] = union(known, container)

    def optimise(self) -> None:
        """Convert containers to runs where runs are shorter. Runs that are no longer shorter stay runs, as in Java."""
        for place, container in enumerate(self.containers):
            if container is not None:
                better = optimised(container)
                self.containers[place] = better if better.form == RUN else container

    def encode(self) -> bytes:
        """Encode the bitmap as bytes."""
        if self.root is None:
            return b"\0"
        pieces = [b"\1", _I64.pack(sum(1 for _ in self.leaves())), *_encode_node(self.root)]
        pieces.append(_LIST.pack(1, LIST_MARK, len(self.containers)))
        for container in self.containers:
            if container is None:
                pieces.append(b"\0")
            else:
                pieces += (b"\1", _CONTAINER.pack(container.form, len(container)), container.data)
        pieces.append(_END.pack(self.used, 0, self.used - 1))
        return b"".join(pieces)


def decode_bitmap64(data: bytes) -> Bitmap64:
    """Decode a bitmap. Bytes after it are ignored, as in Java."""
    cursor = Cursor(data)
    bitmap = Bitmap64()
    if cursor.take(1) == b"\0":
        return bitmap
    cursor.unpack(_I64)
    bitmap.root = _read_node(cursor, b"")
    list_count, _, length = cursor.unpack(_LIST)
    if list_count != 1 or length < 0:
        raise broken(f"it must have one list of containers, but has {list_count}, the first one of length {length}")
    for _ in range(length):
        if cursor.take(1) == b"\0":
            bitmap.containers.append(None)
        else:
            form, count = cursor.unpack(_CONTAINER)
            bitmap.containers.append(read_container(form, count, cursor))
    _, _, last = cursor.unpack(_END)
    bitmap.used = last + 1
    places = [leaf.place for leaf in bitmap.leaves()]
    if not 0 <= last < length or any(not 0 <= place <= last or bitmap.containers[place] is None for place in places):
        raise broken("a key has no container")
    return bitmap


def union64(one: bytes, other: bytes) -> bytes:
    """The union of two bitmaps. FlussError -1 if one of them is not a bitmap."""
    bitmap = decode_bitmap64(one)
    bitmap.unite(decode_bitmap64(other))
    bitmap.optimise()
    return bitmap.encode()


def _leaves(node: Node | Leaf) -> Iterator[Leaf]:
    if isinstance(node, Leaf):
        yield node
    else:
        for _, child in sorted(node.children.items()):
            yield from _leaves(child)


def _insert(node: Node | Leaf, leaf: Leaf, depth: int) -> Node | Leaf:
    """Insert a leaf below a node whose keys share their first `depth` bytes; return the node that replaces it."""
    rest = leaf.key[depth:]
    prefix = node.key[depth:] if isinstance(node, Leaf) else node.prefix
    shared = next((i for i, byte in enumerate(prefix) if byte != rest[i]), len(prefix))
    if isinstance(node, Leaf):
        return Node(prefix[:shared], {prefix[shared]: node, rest[shared]: leaf})
    if shared < len(prefix):
        node.prefix = prefix[shared + 1 :]
        return Node(prefix[:shared], {prefix[shared]: node, rest[shared]: leaf})
    byte = rest[shared]
    child = node.children.get(byte)
    if child is None:
        node.add(byte, leaf)
    else:
        node.children[byte] = _insert(child, leaf, depth + shared + 1)
    return node


def _encode_node(node: Node | Leaf) -> Iterator[bytes]:
    if isinstance(node, Leaf):
        yield _NODE.pack(LEAF, 0, 0) + _LEAF.pack(node.key, node.place)
        return
    count = len(node.children)
    kind = next(kind for kind, most in enumerate(MOST_CHILDREN) if count <= most)
    yield _NODE.pack(kind, count, len(node.prefix)) + node.prefix
    ordered = sorted(node.children)
    if kind == 0:
        yield bytes(ordered).ljust(4, b"\0")[::-1]
    elif kind == 1:
        yield _swap_groups(bytes(ordered).ljust(16, b"\0"))
    elif kind == 2:
        places = bytearray([NO_CHILD]) * 256
        for place, byte in enumerate(node.children):
            places[byte] = place
        yield _swap_groups(bytes(places))
    else:
        flags = np.zeros(256, np.uint8)
        flags[ordered] = 1
        yield np.packbits(flags, bitorder="little").tobytes()
    for byte in ordered:
        yield from _encode_node(node.children[byte])


def _read_node(cursor: Cursor, path: bytes) -> Node | Leaf:
    """Read a node; all keys below it begin with `path`."""
    kind, count, prefix_length = cursor.unpack(_NODE)
    if kind == LEAF:
        leaf = Leaf(*cursor.unpack(_LEAF))
        if not leaf.key.startswith(path):
            raise broken(f"key {leaf.key.hex()} does not begin with {path.hex()}")
        return leaf
    if kind > LEAF or not 0 < count <= MOST_CHILDREN[kind] or len(path) + prefix_length >= KEY_BYTES:
        raise broken(f"a node of kind {kind} has {count} children and {prefix_length} bytes of prefix")
    prefix = cursor.take(prefix_length)
    body = cursor.take(_BODY_BYTES[kind])
    places: dict[int, int] = {}
    if kind == 2:
        places = {byte: place for byte, place in enumerate(_swap_groups(body)) if place != NO_CHILD}
        ordered = list(places)
    elif kind == 3:
        ordered = np.flatnonzero(np.unpackbits(np.frombuffer(body, np.uint8), bitorder="little")).tolist()
    else:
        ordered = list((body[::-1] if kind == 0 else _swap_groups(body))[:count])
    if len(ordered) != count or len(set(ordered)) != count:
        raise broken(f"a node does not have the {count} children that its header claims")
    children = {byte: _read_node(cursor, path + prefix + bytes((byte,))) for byte in ordered}
    if places:
        children = {byte: children[byte] for byte in sorted(places, key=places.__getitem__)}
    return Node(prefix, children)


def _swap_groups(data: bytes) -> bytes:
    """Reverse every group of eight bytes."""
    return bytes(np.frombuffer(data, np.uint64).byteswap().tobytes())
