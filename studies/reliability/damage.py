"""Damage to bytes that any file may suffer: bits flipped, parts cut, lost, doubled, moved or written over."""

from __future__ import annotations

from collections.abc import Callable

from numpy.random import Generator

Damage = Callable[[bytes, Generator], bytes]
TEXTS = (
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n\n\n",
    b'"',
    b'""""',
    b",,,,",
    b"\x1b[2J",
    b"=cmd|' /C calc'!A0",
)
"""What a parser of text may trip over."""


def flip_bits(content: bytes, rng: Generator) -> bytes:
    """Flip one to eight bits."""
    damaged = bytearray(content)
    for place in rng.integers(0, max(1, len(content)), rng.integers(1, 9)) if content else ():
        damaged[place] ^= 1 << int(rng.integers(0, 8))
    return bytes(damaged)


def flip_in_head(content: bytes, rng: Generator) -> bytes:
    """Flip bits among the first bytes, where most formats say what follows."""
    return flip_bits(content[:64], rng) + content[64:]


def flip_in_tail(content: bytes, rng: Generator) -> bytes:
    """Flip bits among the last bytes, where Parquet and zip say what they hold."""
    return content[:-64] + flip_bits(content[-64:], rng)


def cut(content: bytes, rng: Generator) -> bytes:
    """Keep the beginning only."""
    return content[: int(rng.integers(0, max(1, len(content))))]


def lose(content: bytes, rng: Generator) -> bytes:
    """Lose a part."""
    start, stop = _part(content, rng)
    return content[:start] + content[stop:]


def double(content: bytes, rng: Generator) -> bytes:
    """Repeat a part."""
    start, stop = _part(content, rng)
    return content[:stop] + content[start:stop] + content[stop:]


def blank(content: bytes, rng: Generator) -> bytes:
    """Write zeros over a part."""
    start, stop = _part(content, rng)
    return content[:start] + bytes(stop - start) + content[stop:]


def scramble(content: bytes, rng: Generator) -> bytes:
    """Write random bytes over a part."""
    start, stop = _part(content, rng)
    return content[:start] + rng.bytes(stop - start) + content[stop:]


def swap(content: bytes, rng: Generator) -> bytes:
    """Exchange two neighbouring parts."""
    first, last = _part(content, rng)
    middle = int(rng.integers(first, last + 1))
    return content[:first] + content[middle:last] + content[first:middle] + content[last:]


def insert(content: bytes, rng: Generator) -> bytes:
    """Put in what a parser may trip over, in one or several places."""
    for _ in range(int(rng.integers(1, 4))):
        place = int(rng.integers(0, len(content) + 1))
        content = content[:place] + TEXTS[int(rng.integers(0, len(TEXTS)))] + content[place:]
    return content


def lengthen(content: bytes, rng: Generator) -> bytes:
    """Append random bytes."""
    return content + rng.bytes(int(rng.integers(1, 5_000)))


DAMAGES: tuple[Damage, ...] = (
    flip_bits,
    flip_in_head,
    flip_in_tail,
    cut,
    lose,
    double,
    blank,
    scramble,
    swap,
    insert,
    lengthen,
)


def _part(content: bytes, rng: Generator) -> tuple[int, int]:
    """Return where a part begins and ends: short ones are as likely as long ones."""
    length = min(len(content), int(2 ** rng.uniform(0, 14)))
    start = int(rng.integers(0, len(content) - length + 1))
    return start, start + length
