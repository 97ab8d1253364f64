"""Topics as they must be: a plan that compares, its execution, and the removal of topics and groups.

Nothing that exists is ever changed: a topic that differs is named with what differs and what to do, and the plan is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from streams.errors import NotPrepared, NotReachable
from streams.kafka.client import REQUEST_SECONDS, KafkaAdmin, cluster_topics, in_our_words, in_words, make_admin, patiently
from streams.kafka.offsets import PartitionLag, end_offsets, group_lag
from streams.kafka.read import follow, read_topic
from streams.settings import KafkaSettings
from streams.topics import UNCOMPACTED, Topic
from streams.words import counted

__all__ = [
    "Difference", "PartitionLag", "TopicPlan", "TopicState", "apply_topics", "check_topics", "delete_groups", "delete_topics",
    "describe_topics", "end_offsets", "execute_topics", "follow", "group_lag", "plan_topics", "read_topic",
]  # fmt: skip
_COMPARED = ("cleanup.policy", "max.message.bytes", "retention.ms")


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as the cluster has it. `config` holds the compared settings that the broker tells."""

    name: str
    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing in which an existing topic is not as it must be."""

    topic: str
    setting: str
    found: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.setting} is {self.found}, must be {self.wanted}; {self._advice}"

    @property
    def _advice(self) -> str:
        if self.setting == "partitions":
            return (
                f"keys would land elsewhere, so it can't be changed in place: set DOCDELTA_KAFKA__PARTITIONS={self.found}, "
                "or use another DOCDELTA_KAFKA__TOPIC_PREFIX"
            )
        return f"kafka-configs.sh --alter --entity-type topics --entity-name {self.topic} --add-config {self.setting}={self.wanted}"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What stands between the cluster and the wanted topics."""

    create: tuple[Topic, ...]
    differences: tuple[Difference, ...]
    unchanged: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"create {topic.name} ({counted(topic.partitions, 'partition')}, {_written(topic.config)})" for topic in self.create
        ]
        lines += [f"refuse {difference}" for difference in self.differences]
        lines += [f"keep   {name}" for name in self.unchanged]
        return "\n".join(lines)


def plan_topics(existing: Mapping[str, TopicState], wanted: Iterable[Topic]) -> TopicPlan:
    """Return which of the wanted topics to create, which differ from what exists, and which are as they must be."""
    create: list[Topic] = []
    differences: list[Difference] = []
    unchanged: list[str] = []
    for topic in wanted:
        state = existing.get(topic.name)
        if state is None:
            create.append(topic)
        elif found := list(_differences(state, topic)):
            differences += found
        else:
            unchanged.append(topic.name)
    return TopicPlan(tuple(create), tuple(differences), tuple(unchanged))


def describe_topics(admin: KafkaAdmin, names: Iterable[str]) -> dict[str, TopicState]:
    """Return the state of those of `names` that exist."""
    asked = set(names)
    partitions = {name: count for name, count in cluster_topics(admin).items() if name in asked}
    if not partitions:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in partitions]

    def ask() -> dict[str, TopicState]:
        answers = admin.describe_configs(resources, request_timeout=REQUEST_SECONDS)
        return {resource.name: _state(resource.name, partitions[resource.name], answer) for resource, answer in answers.items()}

    return patiently(admin, ask)


def topic_ids(settings: KafkaSettings, names: Iterable[str]) -> dict[str, str]:
    """Return the id of each topic: another one when it was deleted and made again. NotReachable when the broker gives no answer.

    Left out is what does not exist, may not be seen by this user, or has none (brokers before 2.8).
    """
    admin = make_admin(settings)
    found = {}
    for name, answer in admin.describe_topics(TopicCollection(list(names)), request_timeout=REQUEST_SECONDS).items():
        try:
            number = str(answer.result().topic_id)
        except KafkaException as error:
            fault = in_words(error.args[0], admin, name)
            if isinstance(fault, NotReachable):
                raise fault from error
            continue
        if number.strip("A="):
            found[name] = number
    return found


def apply_topics(settings: KafkaSettings, wanted: Iterable[Topic]) -> TopicPlan:
    """Make the cluster have the wanted topics and return what that took. Safe to repeat. Errors of `execute_topics`."""
    wanted = list(wanted)
    admin = make_admin(settings)
    plan = plan_topics(describe_topics(admin, [topic.name for topic in wanted]), wanted)
    execute_topics(admin, plan, settings.replication_factor)
    return plan


def check_topics(settings: KafkaSettings, wanted: Iterable[Topic]) -> None:
    """Return if every wanted topic exists as it must be; else NotPrepared, naming each that is missing or differs."""
    wanted = list(wanted)
    plan = plan_topics(describe_topics(make_admin(settings), [topic.name for topic in wanted]), wanted)
    _refuse_differences(plan)
    if plan.create:
        missing = ", ".join(topic.name for topic in plan.create)
        words = f"topic {missing} does not exist; run `docdelta topics apply`, or `docdelta init` first"
        raise NotPrepared(words, bootstrap_servers=settings.bootstrap_servers)


def execute_topics(admin: KafkaAdmin, plan: TopicPlan, replication_factor: int = 1, patience: float = 30.0) -> None:
    """Create what the plan creates and wait until the metadata shows it. Safe to repeat, and to run twice at once.

    NotPrepared with every difference, before anything is created, when there is one.
    """
    _refuse_differences(plan)
    if not plan.create:
        return
    new = [
        NewTopic(each.name, num_partitions=each.partitions, replication_factor=replication_factor, config=dict(each.config))
        for each in plan.create
    ]
    for name, answer in admin.create_topics(new, request_timeout=REQUEST_SECONDS).items():
        try:
            answer.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR:
                words = f"topic {name}: fewer than {replication_factor} brokers; lower DOCDELTA_KAFKA__REPLICATION_FACTOR"
                raise NotPrepared(words) from error
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another one was first: checked below
                raise in_words(error.args[0], admin, name) from error
    _wait_until_as_planned(admin, plan.create, patience)


def delete_topics(admin: KafkaAdmin, names: Iterable[str], patience: float = 30.0) -> None:
    """Delete those of `names` that exist and wait until they are gone. Safe to repeat."""
    doomed = set(names)
    here = sorted(doomed & cluster_topics(admin).keys())
    if not here:
        return
    for name, answer in admin.delete_topics(here, request_timeout=REQUEST_SECONDS).items():
        with in_our_words(admin, name, unless=(KafkaError.UNKNOWN_TOPIC_OR_PART,)):
            answer.result()
    deadline = time.monotonic() + patience
    while left := doomed & cluster_topics(admin).keys():
        if time.monotonic() > deadline:
            raise NotReachable(f"topics are still there after {patience:.0f} s: {', '.join(sorted(left))}")
        admin.poll(0.1)


def delete_groups(admin: KafkaAdmin, groups: Iterable[str]) -> None:
    """Delete the consumer groups that exist. NotPrepared when one still has members. Safe to repeat."""
    for group in groups:
        (answer,) = admin.delete_consumer_groups([group], request_timeout=REQUEST_SECONDS).values()
        try:
            answer.result()
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.NON_EMPTY_GROUP:
                raise NotPrepared(f"group {group} still has running members; stop its workers first") from error
            if code != KafkaError.GROUP_ID_NOT_FOUND:
                raise in_words(error.args[0], admin) from error


def _refuse_differences(plan: TopicPlan) -> None:
    if plan.differences:
        raise NotPrepared("topics are not as they must be:\n" + "\n".join(str(each) for each in plan.differences))


def _wait_until_as_planned(admin: KafkaAdmin, wanted: tuple[Topic, ...], patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        plan = plan_topics(describe_topics(admin, [topic.name for topic in wanted]), wanted)
        _refuse_differences(plan)  # somebody else made it at the same time, otherwise
        if not plan.create:
            return
        if time.monotonic() > deadline:
            missing = ", ".join(topic.name for topic in plan.create)
            raise NotReachable(f"topics were created but are not there after {patience:.0f} s: {missing}")
        admin.poll(0.1)


def _state(name: str, partitions: int, answer: Future[dict[str, Any]]) -> TopicState:
    entries = answer.result()
    config = {key: str(entries[key].value) for key in _COMPARED if key in entries and entries[key].value is not None}
    return TopicState(name, partitions, config)


def _differences(state: TopicState, wanted: Topic) -> Iterator[Difference]:
    if state.partitions != wanted.partitions:
        yield Difference(wanted.name, "partitions", str(state.partitions), str(wanted.partitions))
    for setting, value in wanted.config.items():
        if setting == UNCOMPACTED:
            continue
        found = state.config.get(setting)
        if found is None or not _serves(setting, found, value):
            yield Difference(wanted.name, setting, found if found is not None else "not set", value)


def _serves(setting: str, found: str, wanted: str) -> bool:
    """Return whether a found setting does what the wanted one must: larger limits and longer retention do."""
    if setting == "max.message.bytes":
        return int(found) >= int(wanted)
    if setting == "retention.ms":
        return int(found) == -1 or (int(wanted) != -1 and int(found) >= int(wanted))
    return set(found.split(",")) == set(wanted.split(","))


def _written(config: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(config.items()))
