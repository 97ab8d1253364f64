"""What a worker checks before it starts: every topic it needs is there and as it must be."""

from __future__ import annotations

from collections.abc import Sequence

from streams.errors import NotPrepared
from streams.kafka.admin import TopicPlan, describe_topics, plan_topics
from streams.kafka.client import make_admin
from streams.settings import KafkaSettings
from streams.topics import Topic


def missing_in_words(plan: TopicPlan) -> str:
    """Return what is missing and the command that makes it: where some are there, a release before this one made them."""
    missing = ", ".join(topic.name for topic in plan.create)
    if plan.unchanged or plan.differences:
        return f"topics are missing: {missing}; this release needs them: run `docdelta topics apply`, then start again"
    return f"topics are missing: {missing}; run `docdelta init --policy FILE` (or `docdelta topics apply`) first"


def require_as_planned(settings: KafkaSettings, wanted: Sequence[Topic]) -> None:
    """Return when all topics are as wanted. NotPrepared naming those that are missing or differ; NotReachable, NotAuthorised."""
    admin = make_admin(settings)
    plan = plan_topics(describe_topics(admin, [topic.name for topic in wanted]), wanted)
    if plan.create:
        raise NotPrepared(missing_in_words(plan))
    if plan.differences:
        raise NotPrepared("topics are not as they must be:\n" + "\n".join(str(each) for each in plan.differences))
