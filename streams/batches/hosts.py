"""Hosts: whether any worker has taken a build up, and in their own words why those that tried have not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from schemas.batch import BatchRecord
from schemas.control import Control
from streams.controls.state import Controls
from streams.topics import TopicNames
from streams.words import counted


@dataclass(frozen=True, slots=True)
class Hosts:
    """Who hosts a build. `members`: workers in its group; None where the broker does not tell."""

    batch: str
    members: int | None
    refusals: tuple[Control, ...] = ()
    began: bool = False
    """Whether anything of it was ever committed: somebody had it once."""

    @property
    def refused(self) -> bool:
        """True when workers have tried, and none of them has it: nothing will move until a person does something."""
        nobody = self.members == 0 or (self.members is None and not self.began)
        return bool(self.refusals) and nobody

    @property
    def problem(self) -> str:
        """What is wrong, and the one thing to do; empty where workers are at it, or nothing is known."""
        if self.refused:
            return (
                f"no worker hosts {self.batch}: {self._said()}; mend that and restart the worker, "
                f"or give the build up: docdelta retire {self.batch}"
            )
        if self.refusals:
            others = f"; {counted(self.members, 'other builds', 'others build')} it" if self.members else ""
            return f"not every worker can host {self.batch}: {self._said()}{others}"
        if self.members == 0:
            return f"no worker hosts {self.batch}: start one: docdelta worker"
        return ""

    def _said(self) -> str:
        """Return what the first worker said, and how many more there are."""
        first, *rest = self.refusals
        more = f" ({counted(len(rest), 'more worker refuses', 'more workers refuse')} it)" if rest else ""
        return f"{first.by} says: {first.reason}{more}"


def refusals_by_group(batches: Iterable[BatchRecord], controls: Controls, topics: TopicNames) -> dict[str, tuple[Control, ...]]:
    """Return who can't host a build as it stands now, by the build's group; builds that nobody refuses are left out."""
    return {topics.batch_group(batch.batch): refusals for batch in batches if (refusals := controls.refusals_of(batch))}
