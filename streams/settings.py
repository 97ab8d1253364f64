"""Settings: environment (``DOCDELTA_…``) over ``docdelta.toml`` over defaults. Frozen, checked once at start, secrets masked.

Nested names use a double underscore: ``DOCDELTA_KAFKA__BOOTSTRAP_SERVERS``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, TypeGuard

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from streams.crash_points import VARIABLE as CRASH_VARIABLE
from streams.errors import UsageError
from streams.steps.limits import Limits
from streams.topics import TopicNames

PRODUCE_TIMEOUT_SECONDS = 60.0
"""How long one try to write a record may take. Faust's default of 20 minutes would hide an outage."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class KafkaSettings(_Part):
    """How to reach the broker."""

    bootstrap_servers: str = "127.0.0.1:9092"
    """Comma-separated host:port."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    sasl_username: str = ""
    sasl_password: SecretStr = SecretStr("")
    ssl_ca_file: Path | None = None
    ssl_certificate_file: Path | None = None
    ssl_key_file: Path | None = None
    topic_prefix: str = Field(default="docdelta", pattern=r"^[a-zA-Z0-9._-]{1,60}$")
    partitions: int = Field(default=8, ge=1, le=1024)
    replication_factor: int = Field(default=1, ge=1, le=7)
    single_record_batches: bool = False
    """Tansu counts offsets right only when every batch holds one record. Set by the embedded mode, never needed on Apache Kafka."""
    session_timeout_seconds: float = Field(default=30, gt=0)
    heartbeat_seconds: float = Field(default=3, gt=0)
    rebalance_timeout_seconds: float = Field(default=120, gt=0)


class QdrantSettings(_Part):
    """How to reach the index. Exactly one of `url`, `path` or memory (neither)."""

    url: str = ""
    path: Path | None = None
    api_key: SecretStr = SecretStr("")
    timeout_seconds: float = Field(default=60, gt=0)
    alias: str = Field(default="docdelta", pattern=r"^[a-zA-Z0-9._-]{1,80}$")
    """The stable name that searches use."""

    @model_validator(mode="after")
    def _one_place(self) -> QdrantSettings:
        if self.url and self.path:
            raise ValueError("qdrant.url and qdrant.path exclude each other: set one")
        return self


class EmbedderSettings(_Part):
    """Which embedder runs. What it must produce stands in the policy (`embedding`)."""

    kind: Literal["fastembed", "hashing"] = "fastembed"
    directory: Path | None = None
    """A local model directory for models that `directories` does not name. Unset: the offline model, or fastembed's own cache."""
    directories: Mapping[str, Path] = Field(default_factory=dict)
    """Local directories by the name that policies give the model: during a rollout to another model a worker runs both."""
    threads: int = Field(default=2, ge=1, le=256)
    """Runs of the network at once, each on one core."""
    batch_size: int = Field(default=4, ge=1, le=512)
    """Texts a run, at most 16. On one core four are as fast as sixteen, with less padding."""
    offline: bool = True
    """Never ask a model hub."""


class ParserSettings(_Part):
    """Limits of one parse. Each document is parsed in a process of a pool."""

    processes: int = Field(default=2, ge=1, le=64)
    timeout_seconds: float = Field(default=30, gt=0)
    memory_bytes: int = Field(default=1 << 30, ge=64 << 20)
    max_document_bytes: int = Field(default=32 << 20, ge=1024)
    ref_roots: tuple[Path, ...] = ()
    """Folders that `content.ref` may name files in. Empty: no file is fetched."""
    ref_hosts: tuple[str, ...] = ()
    """Hosts that `content.ref` may name over http(s). Empty: nothing is fetched from the network."""
    ref_patience_seconds: float = Field(default=600, ge=0)
    """How long one URL may fail while its host is there for others, before its event becomes a dead letter."""


class WorkerSettings(_Part):
    """How the worker runs."""

    state: Literal["rocksdb", "memory"] = "rocksdb"
    state_dir: Path = Path(".docdelta/state")
    in_flight: int = Field(default=32, ge=1, le=1000)
    """Documents handled at once per agent; bounds the drain time of a rebalance."""
    batch_documents: int = Field(default=32, ge=1, le=1000)
    batch_seconds: float = Field(default=0.05, ge=0)
    """The indexer gathers up to so many records; of [bulk] and builds as many as come in this time, live ones wait for none."""
    poison_attempts: int = Field(default=3, ge=1, le=20)
    """How often an error of an unknown kind is tried before the record is dead-lettered."""
    drain_seconds: float = Field(default=8, gt=0)
    trim_seconds: float = Field(default=600, ge=0)
    """How often [changes] is trimmed behind the indexer. 0: never."""
    changes_kept: int = Field(default=1000, ge=1)
    """Records of [changes] that stay behind the indexer, a partition."""
    handover_grace_seconds: float | None = Field(default=None, ge=0, le=240)
    """How long what was done for a partition taken over is kept uncommitted, to be checked again: longer than anything its last
    owner has under way. Unset: the longest of index timeout, session timeout and one try to write to Kafka. 0: off."""
    metrics_host: str = "127.0.0.1"
    metrics_port: int = Field(default=9464, ge=0, le=65535)
    """`/metrics`, `/livez` and `/readyz`. 0: off."""
    lag_seconds: float = Field(default=15, ge=1)
    """How often lag is read from the broker."""
    canary_tenant: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,63})?$")
    """Tenant of the freshness probe's document. Empty: no probe."""


class BatchesSettings(_Part):
    """What the gate of a rollout asks for, and how long a batch that was replaced is kept."""

    max_lag: int = Field(default=100, ge=0)
    """Records that a batch may be behind when readers are moved to it."""
    recall_tolerance: float = Field(default=0.02, ge=0, le=1)
    """How much recall@k on golden questions may be lost against the served batch."""
    grace_seconds: float = Field(default=86_400, ge=0)
    """How long a replaced batch is kept warm before `retire` takes it without `--force`."""


class BreakerSettings(_Part):
    """When deletes of a tenant are too many at once, and are held until a person decides (streams/steps/breaker.py)."""

    enabled: bool = True
    share: float = Field(default=0.5, gt=0, le=1)
    """Of a tenant's documents that may be deleted within the window."""
    churn_share: float = Field(default=0.0, ge=0, le=1)
    """Of a tenant's documents that may be changed within the window. 0: any. Off unless asked for: a new template or a new
    export changes every page of a site and loses nothing."""
    minimum: int = Field(default=100, ge=1)
    """So many documents of a tenant may always be deleted (or changed): small sites are not guarded."""
    window_seconds: float = Field(default=3600, ge=1)

    @property
    def limits(self) -> Limits:
        """As the decision takes them."""
        return Limits(self.enabled, self.share, self.churn_share, self.minimum, self.window_seconds)


class DashboardSettings(_Part):
    """Where the operations page listens, for `docdelta dashboard` and `docdelta dev`."""

    host: str = "127.0.0.1"
    """Anything but loopback demands a token."""
    port: int = Field(default=9465, ge=0, le=65535)
    """0: a free one. Under `dev` a port that is taken is replaced by a free one."""
    token: SecretStr = SecretStr("")
    """What a reader must know, at least 16 characters. Empty: none on loopback, one that is made and shown elsewhere."""


class AuditSettings(_Part):
    """The continuous audit of every worker."""

    points_per_second: float = Field(default=200, ge=0)
    """How many points are compared (or read) a second, for each batch and worker. 0: no audit."""
    every_seconds: float = Field(default=20, gt=0)
    """Rest before each round, the first one included."""


class OtelSettings(_Part):
    """Where spans of OpenTelemetry go. Needs the extra ``docdelta[otel]``."""

    endpoint: str = Field(default="", pattern=r"^(https?://\S+)?$")
    """The whole URL of an OTLP/HTTP receiver, such as http://collector:4318/v1/traces. Empty: no spans."""


class Settings(BaseSettings):
    """All settings. Read with `load_settings`."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix="DOCDELTA_", env_nested_delimiter="__", toml_file="docdelta.toml"
    )

    kafka: KafkaSettings = KafkaSettings()
    qdrant: QdrantSettings = QdrantSettings()
    embedder: EmbedderSettings = EmbedderSettings()
    parser: ParserSettings = ParserSettings()
    worker: WorkerSettings = WorkerSettings()
    batches: BatchesSettings = BatchesSettings()
    otel: OtelSettings = OtelSettings()
    audit: AuditSettings = AuditSettings()
    dashboard: DashboardSettings = DashboardSettings()
    breaker: BreakerSettings = BreakerSettings()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"

    @property
    def topics(self) -> TopicNames:
        """Topic names under the configured prefix."""
        return TopicNames(self.kafka.topic_prefix)

    @property
    def handover_grace_seconds(self) -> float:
        """The grace of a handover, chosen from the other limits where it is not set."""
        chosen = self.worker.handover_grace_seconds
        limits = (self.qdrant.timeout_seconds, self.kafka.session_timeout_seconds, PRODUCE_TIMEOUT_SECONDS)
        return max(limits) if chosen is None else chosen

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments over environment over file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load_settings(file: Path | None = None) -> Settings:
    """Return the settings. `file` (or ``DOCDELTA_CONFIG``) replaces ``docdelta.toml``. Raises UsageError naming the setting."""
    named = file or (Path(os.environ["DOCDELTA_CONFIG"]) if os.environ.get("DOCDELTA_CONFIG") else None)
    if named is not None and not named.is_file():
        raise UsageError(f"settings file {named} does not exist")

    class FromFile(Settings):
        model_config = SettingsConfigDict(toml_file=named or "docdelta.toml")

    known = {"DOCDELTA_CONFIG", CRASH_VARIABLE}
    stray = [name for name in os.environ if name.startswith("DOCDELTA_") and name not in known and not _is_setting(name)]
    if stray:
        words = f"environment variable {stray[0]} is no setting of docdelta"
        raise UsageError(f"{words}{_meant(stray[0])}; see the settings table in the README")
    try:
        settings = FromFile()
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in fault["loc"])
        words = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            words = f"no such setting{_meant(place)}"
        raise UsageError(f"setting {place}: {words} (in {_source(fault['loc'], named)})") from error
    except SettingsError as error:
        lists = " or ".join(name for name in sorted(os.environ) if _takes_json(name)) or "an environment variable"
        raise UsageError(f'{lists}: takes a JSON list, such as ["first", "second"]') from error
    except (ValueError, OSError) as error:
        raise UsageError(f"settings file {named or 'docdelta.toml'}: {error}") from error
    for contradiction in _contradictions(settings.kafka):
        raise UsageError(f"setting kafka.{contradiction}")
    return settings


def _meant(name: str) -> str:
    """Return a question that names the setting closest to a name that is none, or nothing where none is close."""
    dotted = [
        ".".join((part, inner)) if inner else part
        for part, field in Settings.model_fields.items()
        for inner in (field.annotation.model_fields if _is_part(field.annotation) else [""])
    ]
    variable = name.startswith("DOCDELTA_")
    known = ["DOCDELTA_" + one.replace(".", "__").upper() for one in dotted] if variable else dotted
    close = get_close_matches(name, known, n=1, cutoff=0.8)
    return f" (did you mean {close[0]}?)" if close else ""


def _source(place: tuple[int | str, ...], file: Path | None) -> str:
    """Return where a setting was read: the environment variable that is set, or else the settings file."""
    variable = "DOCDELTA_" + "__".join(str(step) for step in place[:2]).upper()
    inside = next((name for name in sorted(os.environ) if name.upper() == variable or name.upper().startswith(variable + "__")), "")
    return inside or str(file or "docdelta.toml")


def _contradictions(kafka: KafkaSettings) -> Iterator[str]:
    """Yield what can't work, or would silently not be used, before anybody waits for a broker."""
    for server in kafka.bootstrap_servers.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or "/" in server or not (port.isdecimal() and 0 < int(port[:6]) < 65536):
            yield f"bootstrap_servers: {server.strip()!r} is no host:port"
    for name in ("ssl_ca_file", "ssl_certificate_file", "ssl_key_file"):
        file: Path | None = getattr(kafka, name)
        if file is not None and not kafka.security_protocol.endswith("SSL"):
            yield f"{name}: is not used with security_protocol {kafka.security_protocol}; set SSL or SASL_SSL"
        if file is not None and not (file.is_file() and os.access(file, os.R_OK)):
            yield f"{name}: {file} is no file that can be read"
    if (kafka.ssl_key_file is None) != (kafka.ssl_certificate_file is None):
        yield "ssl_certificate_file: certificate and key (ssl_key_file) go together; set both or neither"
    named = bool(kafka.sasl_username or kafka.sasl_password.get_secret_value())
    if kafka.security_protocol.startswith("SASL"):
        if not (kafka.sasl_username and kafka.sasl_password.get_secret_value()):
            yield f"security_protocol: {kafka.security_protocol} needs sasl_username and sasl_password"
    elif named:
        yield f"sasl_username: is not used with security_protocol {kafka.security_protocol}; set SASL_SSL or SASL_PLAINTEXT"
    if kafka.heartbeat_seconds >= kafka.session_timeout_seconds:
        yield "heartbeat_seconds: must be below session_timeout_seconds; a third of it is usual"


def _takes_json(variable: str) -> bool:
    """Return whether an environment variable names a setting that is a list."""
    part, _, name = variable.removeprefix("DOCDELTA_").lower().partition("__")
    field = Settings.model_fields.get(part) if variable.upper().startswith("DOCDELTA_") else None
    model = field.annotation if field is not None else None
    inner = model.model_fields.get(name) if _is_part(model) else None
    return inner is not None and str(inner.annotation).startswith("tuple")


def _is_setting(variable: str) -> bool:
    part, _, name = variable.removeprefix("DOCDELTA_").lower().partition("__")
    field = Settings.model_fields.get(part)
    if field is None:
        return False
    model = field.annotation
    if _is_part(model):
        return name in model.model_fields
    return not name


def _is_part(model: object) -> TypeGuard[type[_Part]]:
    return isinstance(model, type) and issubclass(model, _Part)
