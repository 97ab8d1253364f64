"""The partition of a key is the one that every Kafka client computes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.kafka.partitioner import murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        pytest.param(b"21", -973932308, id="21"),
        pytest.param(b"foobar", -790332482, id="foobar"),
        pytest.param(b"a-little-bit-long-string", -985981536, id="longer"),
        pytest.param(b"a-little-bit-longer-string", -1486304829, id="and-longer"),
        pytest.param(b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971, id="48-bytes"),
        pytest.param(b"abc", 479470107, id="abc"),
    ],
)
def test_the_published_values_of_the_java_client(key, expected):
    signed = murmur2(key) - (1 << 32) if murmur2(key) >> 31 else murmur2(key)
    assert signed == expected


@given(st.binary(max_size=40), st.integers(1, 1024))
def test_every_key_has_one_partition_within_bounds(key, partitions):
    assert 0 <= partition_of(key, partitions) < partitions
    assert partition_of(key, partitions) == partition_of(bytes(bytearray(key)), partitions)


@given(st.binary(min_size=1, max_size=60))
def test_aiokafka_agrees(key):
    from aiokafka.partitioner import murmur2 as theirs

    assert murmur2(key) & 0x7FFFFFFF == theirs(key) & 0x7FFFFFFF
