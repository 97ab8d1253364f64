"""The dev file: where a running `docdelta dev` says how to reach its broker and index, for other commands in the same folder."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from streams.settings import KafkaSettings, QdrantSettings, Settings

DEV_FILE = Path(".docdelta/dev.json")


def _now() -> datetime:
    return datetime.now(UTC)


class DevFile(BaseModel):
    """What a running `docdelta dev` serves. `process_start` tells the process from a later one with the same pid."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: int
    process_start: str = ""
    bootstrap_servers: str
    topic_prefix: str = "docdelta"
    partitions: int = 1
    single_record_batches: bool = False
    qdrant_url: str
    alias: str = "docdelta"
    tenant: str = ""
    folder: str = ""
    metrics_url: str = ""
    """Where its worker tells its metrics."""
    started_at: AwareDatetime = Field(default_factory=_now)

    @property
    def alive(self) -> bool:
        """True while the process that wrote the file runs."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return not self.process_start or process_start(self.pid) in ("", self.process_start)


def process_start(pid: int) -> str:
    """Return when a process began, in the kernel's own ticks, or an empty text where that can't be told."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    # The command stands in brackets and may hold blanks; the start time is field 22, the 20th after the bracket.
    fields = text.rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else ""


def dev_file_for(
    settings: Settings, *, qdrant_url: str, tenant: str = "", folder: Path | None = None, metrics_url: str = ""
) -> DevFile:
    """Return the dev file of this process, which serves with `settings`; `qdrant_url` is where its index answers over REST."""
    kafka = settings.kafka
    return DevFile(
        pid=os.getpid(),
        process_start=process_start(os.getpid()),
        bootstrap_servers=kafka.bootstrap_servers,
        topic_prefix=kafka.topic_prefix,
        partitions=kafka.partitions,
        single_record_batches=kafka.single_record_batches,
        qdrant_url=qdrant_url,
        alias=settings.qdrant.alias,
        tenant=tenant,
        folder=str(folder) if folder else "",
        metrics_url=metrics_url,
    )


def write_dev_file(content: DevFile, path: Path = DEV_FILE) -> None:
    """Write the file in one step, readable by its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(f".{os.getpid()}.new")
    beside.write_text(content.model_dump_json(indent=1), encoding="utf-8")
    beside.chmod(0o600)
    beside.replace(path)


def read_dev_file(path: Path = DEV_FILE) -> DevFile | None:
    """Return what a running `docdelta dev` wrote, or None: no file, not ours, or its process is gone."""
    try:
        found = DevFile.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    return found if found.alive else None


def remove_dev_file(path: Path = DEV_FILE) -> None:
    """Remove the file if this process wrote it."""
    try:
        found = DevFile.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return
    if found.pid == os.getpid():
        path.unlink(missing_ok=True)


def dev_file_in_use(settings: Settings, path: Path = DEV_FILE) -> DevFile | None:
    """Return what a `docdelta dev` running here serves; None where none runs or the settings name a broker or an index."""
    if _named(settings, "kafka", "bootstrap_servers") or _named(settings, "qdrant", "url", "path"):
        return None
    return read_dev_file(path)


def with_dev_file(settings: Settings, path: Path = DEV_FILE) -> Settings:
    """Return the settings pointed at the `docdelta dev` in use, or as they are where there is none."""
    found = dev_file_in_use(settings, path)
    if found is None:
        return settings
    kafka = KafkaSettings.model_validate(
        {
            **settings.kafka.model_dump(),
            "bootstrap_servers": found.bootstrap_servers,
            "topic_prefix": found.topic_prefix,
            "partitions": found.partitions,
            "single_record_batches": found.single_record_batches,
        }
    )
    qdrant = QdrantSettings.model_validate({**settings.qdrant.model_dump(), "url": found.qdrant_url, "alias": found.alias})
    return settings.model_copy(update={"kafka": kafka, "qdrant": qdrant})


def _named(settings: Settings, part: str, *names: str) -> bool:
    """Return whether the environment or the settings file set one of the names of a part."""
    return part in settings.model_fields_set and not getattr(settings, part).model_fields_set.isdisjoint(names)
