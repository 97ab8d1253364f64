"""Free TCP ports on loopback, outside the range that outgoing connections are given, so that a restart finds its port free."""

from __future__ import annotations

import random
import socket

LOOPBACK = "127.0.0.1"
_LOWEST, _HIGHEST = 20_000, 32_000


def free_ports(count: int) -> list[int]:
    """Return `count` different ports that nothing listens on at this moment. Raises OSError when none is left."""
    found: list[int] = []
    for port in random.sample(range(_LOWEST, _HIGHEST), k=_HIGHEST - _LOWEST):
        if _is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"no free port between {_LOWEST} and {_HIGHEST} on {LOOPBACK}")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
