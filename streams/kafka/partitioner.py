"""Which partition a key lies in: Kafka's murmur2, as Java's default, aiokafka and librdkafka's ``murmur2_random`` compute it."""

from __future__ import annotations

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_32_BITS = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition (from 0) of `key` in a topic of `partitions` partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 of `data`, unsigned."""
    length = len(data)
    value = _SEED ^ length
    whole_words = length - length % 4
    for start in range(0, whole_words, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER & _32_BITS
        word = (word ^ word >> 24) * _MULTIPLIER & _32_BITS
        value = value * _MULTIPLIER & _32_BITS ^ word
    rest = data[whole_words:]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _32_BITS
    value = (value ^ value >> 13) * _MULTIPLIER & _32_BITS
    return value ^ value >> 15
