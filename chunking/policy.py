"""ChunkPolicy: how documents are cut, named and embedded, with its version and fingerprint. Read from YAML, checked by line.

Whatever can move a boundary or change an id enters the fingerprint, the library's own strategy versions included. A policy is
never changed in place: other content is another version and so another batch.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from chunking.document import Document
from chunking.identity import RECIPES
from chunking.policy_error import PolicyError as PolicyError
from chunking.strategies import STRATEGIES
from chunking.strategies.base import Strategy
from chunking.yaml_text import YamlFault, read_yaml


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def __copy__(self) -> Self:
        """A copy (`model_copy`) may get other fields, so what was reckoned from these ones stays behind."""
        return _without_reckoned(super().__copy__())

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return _without_reckoned(super().__deepcopy__(memo))


Closed = TypeVar("Closed", bound=_Closed)


def _without_reckoned(copied: Closed) -> Closed:
    for name in copied.__dict__.keys() - type(copied).model_fields.keys():
        del copied.__dict__[name]
    return copied


class When(_Closed):
    """Conditions of a rule; all that are given must hold. An empty `when` matches every document."""

    media_type: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    """Any of these labels."""
    language: tuple[str, ...] = ()
    """Prefix match: ``zh`` matches ``zh-CN``."""
    min_characters: int = Field(default=0, ge=0)
    max_characters: int | None = Field(default=None, ge=0)

    @field_validator("media_type", "kind", "labels", "language", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    def matches(self, document: Document) -> bool:
        """Return whether a document meets every given condition."""
        size = len(document.text)
        return (
            (not self.media_type or document.media_type in self.media_type)
            and (not self.kind or document.kind in self.kind)
            and (not self.labels or not document.labels.isdisjoint(self.labels))
            and (not self.language or document.language.startswith(self.language))
            and size >= self.min_characters
            and (self.max_characters is None or size <= self.max_characters)
        )


class Rule(_Closed):
    """The first rule whose `when` matches picks the strategy. `options` are those of the strategy's own model."""

    name: str = ""
    when: When = When()
    use: str
    options: dict[str, Any] = Field(default_factory=dict)


class Limits(_Closed):
    """Hard limits. max_tokens bounds the embed string, prefix and repeats included, by `tokenizer`."""

    max_tokens: int = Field(default=400, ge=16, le=32_000)
    tokenizer: str = "cl100k_base"
    """A tiktoken encoding, ``characters``, or ``file:PATH`` of a Hugging Face tokenizer.json."""
    max_chunks: int = Field(default=20_000, ge=1, le=100_000)


class Embedding(_Closed):
    """What makes the vectors. Every field enters the embedding spec: vectors of different specs never mix."""

    model: str = "use-multilingual-v3"
    dimensions: int = Field(default=512, gt=0, le=65_536)
    distance: Literal["cosine", "dot", "euclid"] = "cosine"
    document_prefix: str = ""
    query_prefix: str = ""
    max_tokens: int | None = Field(default=None, gt=0)
    """The model's own limit where it is known; `limits.max_tokens` may not be above it."""

    @cached_property
    def spec(self) -> str:
        """One line that names everything that shapes a vector."""
        return json.dumps([self.model, self.dimensions, self.distance, self.document_prefix, self.query_prefix])


class Sparse(_Closed):
    """A sparse vector of the words themselves (BM25) beside the dense one, for names, numbers and codes. Absent: dense alone.

    It is made of the embed string and nothing else, so that an equal chunk id means equal vectors. Every field enters the policy's
    fingerprint and the collection's metadata: documents and queries are cut into words by one versioned function.
    """

    model: Literal["bm25"] = "bm25"
    words: Literal["rjieba/1"] = "rjieba/1"
    """How text becomes words: Chinese by dictionary, everything else at what is no letter or digit."""
    k1: float = Field(default=1.2, gt=0, le=10)
    b: float = Field(default=0.75, ge=0, le=1)
    average_words: float = Field(default=110, gt=0)
    """Words of an average chunk. Fixed by the policy: measured on the run, it would change vectors as the index grows."""

    @property
    def spec(self) -> str:
        """One line that names everything that shapes a sparse vector."""
        return json.dumps([self.model, self.words, self.k1, self.b, self.average_words])


class EmbedTemplate(_Closed):
    """What the embedder reads beside the body. Costs: with `heading_path`, renaming a heading embeds its whole section anew (4.3
    chunks instead of 1.1, measured); with `title`, renaming a page embeds the whole page anew."""

    title: bool = False
    heading_path: bool = False


class Payload(_Closed):
    """Which of a document's attributes are stored beside the vectors; all others stay out."""

    attributes: tuple[str, ...] = ()


class ChunkPolicy(_Closed):
    """A checked policy. Make one with `load_policy`."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")
    version: int = Field(ge=1)
    identity: str = RECIPES[0]
    rules: tuple[Rule, ...] = (Rule(use="structure"),)
    limits: Limits = Limits()
    embed: EmbedTemplate = EmbedTemplate()
    embedding: Embedding = Embedding()
    sparse: Sparse | None = None
    payload: Payload = Payload()

    @field_validator("identity")
    @classmethod
    def _known_recipe(cls, value: str) -> str:
        if value not in RECIPES:
            raise ValueError(f"identity {value!r} is unknown; one of {', '.join(RECIPES)}")
        return value

    @model_validator(mode="after")
    def _complete(self) -> ChunkPolicy:
        if not self.rules or self.rules[-1].when != When():
            raise ValueError("the last rule must have no `when`, so that every document meets a rule")
        limit = self.embedding.max_tokens
        if limit is not None and self.limits.max_tokens > limit:
            raise ValueError(f"limits.max_tokens {self.limits.max_tokens} is above the model's {limit} (embedding.max_tokens)")
        for index, rule in enumerate(self.rules):
            if rule.use not in STRATEGIES:
                raise ValueError(f"rules.{index}.use: {rule.use!r} is unknown; one of {', '.join(sorted(STRATEGIES))}")
            STRATEGIES[rule.use].options(**rule.options)
        return self

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (64 hex digits) over all that can move a boundary or change an id or a payload."""
        content = self.model_dump(mode="json")
        if self.sparse is None:
            del content["sparse"]  # so that a policy without it keeps the fingerprint it had before there was any
        for rule in content["rules"]:
            strategy = STRATEGIES[rule["use"]]
            rule["options"] = strategy.options(**rule["options"]).model_dump(mode="json")
            rule["use"] = strategy.versioned_name
        canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("utf-8")).hexdigest()

    @property
    def batch_id(self) -> str:
        """``<policy>-v<version>-<fingerprint 8>``."""
        return f"{self.name}-v{self.version}-{self.fingerprint[:8]}"

    @cached_property
    def _choices(self) -> tuple[Picked, ...]:
        """What each rule picks."""
        strategies = [STRATEGIES[rule.use] for rule in self.rules]
        return tuple(
            Picked(strategy, strategy.options(**rule.options), rule.name or f"rules.{index}")
            for index, (rule, strategy) in enumerate(zip(self.rules, strategies, strict=True))
        )

    @cached_property
    def asks_model(self) -> bool:
        """Whether some rule's strategy cuts by sentence vectors of the model (`semantic` with ``vectors: model``)."""
        return any(getattr(choice.options, "vectors", None) == "model" for choice in self._choices)

    def pick(self, document: Document) -> Picked:
        """Return the strategy for a document, its options, and which rule chose it."""
        for rule, choice in zip(self.rules, self._choices, strict=True):
            if rule.when.matches(document):
                return choice
        raise PolicyError(f"policy {self.name}: no rule matches; the last rule must have no `when`")


@dataclass(frozen=True, slots=True)
class Picked:
    """The strategy that a policy's rules choose for one document."""

    strategy: Strategy
    options: BaseModel
    rule: str


def load_policy(text: str, source: str = "policy") -> ChunkPolicy:
    """Return the policy in YAML text. Raises PolicyError naming `source`, line and field."""
    try:
        root, content = read_yaml(text)
    except YamlFault as error:
        raise PolicyError(f"{source}{f':{error.line}' if error.line else ''}: {error}") from error
    if not isinstance(content, Mapping):
        raise PolicyError(f"{source}: a policy is a mapping with name, version and rules")
    try:
        return ChunkPolicy.model_validate(content)
    except ValidationError as error:
        raise PolicyError(_in_words(error, root, source)) from error


_NAMED_PLACE = re.compile(r"([a-z_]+(?:\.\w+)+): ")


def _in_words(error: ValidationError, root: yaml.Node | None, source: str) -> str:
    lines = []
    for fault in error.errors(include_url=False)[:5]:
        place = ".".join(str(step) for step in fault["loc"]) or "policy"
        words = "unknown key" if fault["type"] == "extra_forbidden" else fault["msg"].removeprefix("Value error, ")
        path = fault["loc"]
        if not path and (named := _NAMED_PLACE.match(words)):  # a check of the whole policy says itself where
            place, words = named[1], words[named.end() :]
            path = tuple(int(step) if step.isdigit() else step for step in place.split("."))
        lines.append(f"{source}:{line_of(root, path)}: {place}: {words}")
    return "\n".join(lines)


def line_of(node: yaml.Node | None, path: tuple[int | str, ...]) -> int:
    """Return the line (from 1) of the deepest node of `path` that exists."""
    line = 1
    for step in path:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == str(step)), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
    return line
