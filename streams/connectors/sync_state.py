"""SyncState: what a connector has sent, so that the next run sends only what changed, each time under a newer revision.

One JSON file a folder and tenant, replaced as a whole (write beside, fsync, rename). Losing it is harmless: see `plan_sync`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemas.record import REVISION_LIMIT
from streams.errors import UsageError


class SentDocument(BaseModel):
    """One document as it was last confirmed by the broker.

    fingerprint: of content and metadata; empty when nothing was ever confirmed. revision: the one it was confirmed under.
    promised: the highest revision ever handed to the broker, confirmed or not; new content must go above it.
    deleted: the last thing confirmed was a delete. Kept, since a file that comes back must go above the delete's revision.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    fingerprint: str = ""
    revision: int = Field(default=0, ge=0, lt=REVISION_LIMIT)
    promised: int = Field(default=0, ge=0, lt=REVISION_LIMIT)
    deleted: bool = False

    @property
    def certain(self) -> bool:
        """True when everything handed to the broker was confirmed. Otherwise a newer state may have landed unseen."""
        return self.promised <= self.revision

    @property
    def live(self) -> bool:
        """True when the index may hold this document."""
        return (not self.deleted and bool(self.fingerprint)) or not self.certain


class SyncState(BaseModel):
    """All documents of one folder and tenant, by document id."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = 1
    tenant: str
    root: str
    documents: Mapping[str, SentDocument] = Field(default_factory=dict)

    def with_documents(self, changed: Mapping[str, SentDocument]) -> SyncState:
        """Return the state with some documents replaced."""
        return self.model_copy(update={"documents": {**self.documents, **changed}})


def default_state_path(root: Path, tenant: str, base: Path = Path(".docdelta/sync")) -> Path:
    """Return where the state of a folder is kept: one file for each tenant and absolute folder."""
    digest = hashlib.sha256(str(root.resolve()).encode("utf-8", "surrogateescape")).hexdigest()
    return base / f"{tenant}-{digest[:16]}.json"


def load_state(path: Path, tenant: str, root: Path) -> SyncState:
    """Return the state in a file, or an empty one where there is none. Raises UsageError on a file that it did not write."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return SyncState(tenant=tenant, root=str(root))
    except OSError as error:
        raise UsageError(f"sync state {path} can't be read: {error.strerror}") from error
    try:
        state = SyncState.model_validate_json(text)
    except ValidationError as error:
        raise UsageError(f"sync state {path} is damaged; remove it (the next sync then sends every file again)") from error
    if state.version != 1 or state.tenant != tenant:
        found = f"tenant {state.tenant!r}, format {state.version}"
        raise UsageError(f"sync state {path} is of {found}; this needs {tenant!r}, format 1")
    return state


def save_state(path: Path, state: SyncState) -> None:
    """Replace the state file in one step: a crash leaves the old or the new one, never a half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(f".{os.getpid()}.new")
    with beside.open("w", encoding="utf-8") as file:
        file.write(state.model_dump_json(indent=1))
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


@contextmanager
def sole_owner(path: Path) -> Iterator[None]:
    """Hold the state for this process. Raises UsageError when another sync or `docdelta dev` of the same folder holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = f"another docdelta sync or dev of this folder is running (it holds {lock.name})"
            raise UsageError(f"{holder}; wait for it or stop it") from error
        yield
