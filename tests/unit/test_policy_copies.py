"""A policy reckons its fingerprint once; a copy with other fields reckons its own."""

from __future__ import annotations

from copy import deepcopy

from chunking.policy import load_policy

YAML = "name: p\nversion: 1\nrules: [{use: structure}]\n"


def test_a_copy_with_another_version_has_another_fingerprint() -> None:
    policy = load_policy(YAML)
    before = policy.fingerprint
    assert policy.model_copy(update={"version": 2}).fingerprint == load_policy(YAML.replace("1", "2")).fingerprint != before
    assert policy.model_copy(update={"version": 2}, deep=True).fingerprint != before
    assert deepcopy(policy) == policy


def test_a_copy_with_another_model_has_another_spec() -> None:
    embedding = load_policy(YAML).embedding
    assert (
        embedding.spec
        != embedding.model_copy(update={"model": "other"}).spec
        == load_policy(YAML + "embedding: {model: other}\n").embedding.spec
    )


def test_what_was_reckoned_does_not_show() -> None:
    policy, same = load_policy(YAML), load_policy(YAML)
    assert policy.fingerprint == same.fingerprint
    policy.embedding.spec  # noqa: B018
    assert policy == same
    assert policy.model_dump() == same.model_dump()
    assert "fingerprint" not in policy.model_dump_json()
