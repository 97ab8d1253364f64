"""Limits: when a breaker trips."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """`share`: of the documents that were there, 0 to 1. `churn_share` 0: changes are not counted. `minimum`: of a whole tenant."""

    enabled: bool = True
    share: float = 0.5
    churn_share: float = 0.0
    minimum: int = 100
    window_seconds: float = 3600.0
