"""DirectoryConnector: a folder of files as a source of documents. Scan, plan (`plan_sync`), execute.

The document id is the file's path in the folder (forward slashes, Unicode NFC), or what ``site.yaml`` says. Hidden files and
folders, ``site.yaml`` itself and files that no parser reads are passed over. Links to folders are not followed.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
import unicodedata
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from chunking.media_types import SUFFIXES
from schemas.document_change import DocumentChange
from schemas.record import DocumentId, TenantId
from streams.connectors.base import ChangeSender
from streams.connectors.content import change_of, content_of, fits, read_file, reference_to, too_large
from streams.connectors.known_files import KnownFiles
from streams.connectors.site_file import SITE_FILE, FileMetadata, load_site_file
from streams.connectors.sync_plan import SYNC_CONSENT, PlannedUpsert, Refusal, SourceFile, SyncPlan, plan_sync
from streams.connectors.sync_state import SentDocument, SyncState, default_state_path, load_state, save_state, sole_owner
from streams.errors import DocdeltaError, UsageError
from streams.topics import MAX_EVENT_BYTES

DEFAULT_MAX_BYTES = 32 << 20

_ID: TypeAdapter[str] = TypeAdapter(DocumentId)
_TENANT: TypeAdapter[str] = TypeAdapter(TenantId)


@dataclass(frozen=True, slots=True)
class FolderScan:
    """What a folder holds. `skipped`: files no parser reads. `unreadable`: folders that could not be listed, with the reason."""

    files: tuple[SourceFile, ...] = ()
    skipped: tuple[Path, ...] = ()
    unreadable: tuple[str, ...] = ()


@dataclass(slots=True)
class SyncReport:
    """What an execution did: changes the broker confirmed, and what it did not take."""

    confirmed: list[DocumentChange] = field(default_factory=list)
    failed: list[Refusal] = field(default_factory=list)


Progress = Callable[[str], None]
"""Called with the document id after each event that the broker confirmed or refused."""


class DirectoryConnector:
    """One folder for one tenant. Use `plan` and `execute` inside `owned()`, so that two runs never share a state file."""

    def __init__(
        self,
        root: Path,
        tenant: str,
        state_path: Path | None = None,
        *,
        by_reference: bool = False,
        max_bytes: int = DEFAULT_MAX_BYTES,
        new_event_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`by_reference`: send files that are too large for an event as ``content.ref``. `max_bytes`: no larger file is read."""
        try:
            self.tenant = _TENANT.validate_python(tenant)
        except ValidationError as error:
            raise UsageError(f"tenant {tenant!r}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error
        if not root.is_dir():
            raise UsageError(f"{root} is no folder")
        self.root = root
        self.state_path = state_path or default_state_path(root, tenant)
        self._by_reference = by_reference
        self._max_bytes = max_bytes
        self._new_event_id = new_event_id
        self._clock = clock

    @property
    def known_path(self) -> Path:
        """Where it is kept what was read of the folder's files."""
        return self.state_path.with_name(f"{self.state_path.name}.files")  # whatever the state file is called, another one

    def owned(self) -> AbstractContextManager[None]:
        """Hold the state file for this process. Raises UsageError when another process holds it."""
        return sole_owner(self.state_path)

    def scan(self, anew: bool = False) -> FolderScan:
        """Return what the folder holds now, in order of path. Reads files that may have changed since they were last read
        (known_files.py); with `anew` all of them."""
        known = KnownFiles(self.known_path, self._clock, anew)
        site = load_site_file(self.root)
        site_file = self.root / SITE_FILE
        site_time = _modified_us(site_file) if site_file.exists() else 0
        unreadable: list[str] = []
        files, skipped = [], []
        for path, place, found in _walk(self.root, unreadable):
            media_type = media_type_of(path)
            if media_type is None:
                skipped.append(path)
                continue
            relative = unicodedata.normalize("NFC", place)
            said = site.files.get(relative, _NOTHING_SAID)
            files.append(self._source_file(path, place, relative, found, media_type, said, site_time, known))
        known.save()
        return FolderScan(tuple(files), tuple(skipped), tuple(unreadable))

    def plan(self, *, everything: bool = False, delete: bool = False, force: bool = False, consent: str = SYNC_CONSENT) -> SyncPlan:
        """Return what a sync would send now. Sends nothing, and writes only what it has read (known_files.py). `everything`: also
        what is unchanged, and no file is taken for known. `consent`: how its user says that a loss is meant."""
        scan = self.scan(anew=everything)
        return plan_sync(
            load_state(self.state_path, self.tenant, self.root),
            scan.files,
            now_us=int(self._clock() * 1_000_000),
            everything=everything,
            delete=delete,
            force=force,
            complete=not scan.unreadable,
            consent=consent,
        )

    def execute(self, plan: SyncPlan, sender: ChangeSender, progress: Progress = lambda document_id: None) -> SyncReport:
        """Send a plan and return what became of it. Writes nothing when the plan is empty.

        ① write down the promised revisions ② send, await the broker ③ write down what was confirmed (also when ② is interrupted).
        """
        report = SyncReport()
        if not plan.size:
            return report
        state = _with_promises(load_state(self.state_path, self.tenant, self.root), plan)
        save_state(self.state_path, state)
        fingerprints: dict[str, str] = {}
        outcome: dict[str, SentDocument] = {}

        def confirmed(change: DocumentChange, error: DocdeltaError | None) -> None:
            if error is not None:
                report.failed.append(Refusal(change.document_id, str(error)))
            else:
                report.confirmed.append(change)
                outcome[change.document_id] = SentDocument(
                    fingerprint=fingerprints.get(change.document_id, ""),
                    revision=change.revision,
                    promised=change.revision,
                    deleted=change.op == "delete",
                )
            progress(change.document_id)

        try:
            sender.send(self._changes(plan, fingerprints, report), confirmed)
        finally:
            save_state(self.state_path, state.with_documents(outcome))
        return report

    def _changes(self, plan: SyncPlan, fingerprints: dict[str, str], report: SyncReport) -> Iterator[DocumentChange]:
        """Yield the events of a plan. A file that can't be read or sent any more goes to the report instead."""
        for upsert in plan.upserts:
            try:
                data = read_file(upsert.file.path)
                change = self._change(upsert, data)
            except OSError as error:
                report.failed.append(Refusal(upsert.file.document_id, f"{upsert.file.path} can't be read: {error.strerror}"))
                continue
            except UsageError as error:
                report.failed.append(Refusal(upsert.file.document_id, str(error)))
                continue
            # What is sent is what is remembered, also where the file changed since the scan.
            fingerprints[change.document_id] = _fingerprint(
                hashlib.sha256(data).hexdigest(), upsert.file.media_type, upsert.file.source_uri, upsert.file.metadata
            )
            yield change
        for delete in plan.deletes:
            yield DocumentChange(
                tenant_id=self.tenant,
                document_id=delete.document_id,
                revision=delete.revision,
                op="delete",
                occurred_at=datetime.fromtimestamp(self._clock(), UTC),
                event_id=self._new_event_id(),
            )

    def _change(self, upsert: PlannedUpsert, data: bytes) -> DocumentChange:
        file, said = upsert.file, upsert.file.metadata
        change = change_of(
            tenant_id=self.tenant,
            document_id=file.document_id,
            revision=upsert.revision,
            op="upsert",
            media_type=file.media_type,
            content=content_of(data, file.media_type),
            title=said.title,
            source_uri=file.source_uri,
            language=said.language,
            kind=said.kind,
            labels=said.labels,
            acl=said.acl,
            attributes=dict(said.attributes),
            occurred_at=datetime.fromtimestamp(self._clock(), UTC),
            event_id=self._new_event_id(),
        )
        if fits(change):
            return change
        if not self._by_reference:
            raise UsageError(too_large(file.path, len(data)))
        return change.model_copy(update={"content": reference_to(file.path, data)})

    def _source_file(
        self,
        path: Path,
        place: str,
        relative: str,
        found: os.stat_result | None,
        media_type: str,
        said: FileMetadata,
        site_time: int,
        known: KnownFiles,
    ) -> SourceFile:
        """Return one file of a scan; whatever is wrong with it stands in `problem`. `place`: its path in the folder, as it is
        written there; `relative`: the same in Unicode NFC."""
        document_id = said.id or relative
        source_uri = said.source_uri or relative
        fingerprint, problem, modified = "", "", 0
        try:
            document_id = _ID.validate_python(document_id)
            found = found or path.stat()
            modified = max(found.st_mtime_ns // 1_000, site_time)
            if found.st_size > self._max_bytes:
                problem = (
                    f"{path} has {found.st_size:,} bytes, above parser.max_document_bytes {self._max_bytes:,}; "
                    "split the page or raise it"
                )
            else:
                digest, at = known.digest(place, found), known.now()
                if digest is None:
                    data = read_file(path)
                    digest = hashlib.sha256(data).hexdigest()
                    if len(data) == found.st_size:
                        known.read(place, found, digest, at)
                    problem = self._size_problem(path, len(data))
                else:
                    problem = self._size_problem(path, found.st_size)
                fingerprint = _fingerprint(digest, media_type, source_uri, said)
        except ValidationError as error:
            fault = error.errors()[0]["msg"].removeprefix("Value error, ")
            problem = f"{relative!r}: {fault}; rename it or set an id in {SITE_FILE}"
        except OSError as error:
            problem = f"{path} can't be read: {error.strerror}"
        return SourceFile(document_id, path, media_type, fingerprint, modified, source_uri, said, problem)

    def _size_problem(self, path: Path, size: int) -> str:
        """Return why a file can't travel inside an event, where that is certain by its size alone."""
        return too_large(path, size) if size > MAX_EVENT_BYTES and not self._by_reference else ""


def media_type_of(path: Path) -> str | None:
    """Return the media type of a file by its name, or None where no parser reads it."""
    return SUFFIXES.get(os.path.splitext(path.name)[1].lower())


def _walk(root: Path, unreadable: list[str]) -> Iterator[tuple[Path, str, os.stat_result | None]]:
    """Yield visible files below a folder in order of path: each with its path in the folder, as it is written there, and its stat
    (None: it could not be had). Folders that can't be listed go to `unreadable`."""

    def note(error: OSError) -> None:
        unreadable.append(f"{error.filename}: {error.strerror}")

    for folder, folders, names in os.walk(root, onerror=note):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = Path(folder).relative_to(root).as_posix()
        before = "" if inside == "." else f"{inside}/"
        for name in sorted(names):
            if name.startswith(".") or (name == SITE_FILE and not before):
                continue
            whole = os.path.join(folder, name)
            try:
                found = os.stat(whole)
            except OSError:
                found = None
            if (found is not None and stat.S_ISREG(found.st_mode)) or os.path.islink(whole):
                yield Path(whole), before + name, found


_NOTHING_SAID = FileMetadata()


def _fingerprint(digest: str, media_type: str, source_uri: str, said: FileMetadata) -> str:
    """Return what tells one state of a file from another. `digest`: SHA-256 of its bytes."""
    metadata = _NOTHING_IN_JSON if said is _NOTHING_SAID else _in_json(said)
    return hashlib.sha256("\n".join((digest, media_type, source_uri, metadata)).encode("utf-8", "surrogatepass")).hexdigest()


def _in_json(said: FileMetadata) -> str:
    return json.dumps(said.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)


_NOTHING_IN_JSON = _in_json(_NOTHING_SAID)


def _modified_us(path: Path) -> int:
    return path.stat().st_mtime_ns // 1_000


def _with_promises(state: SyncState, plan: SyncPlan) -> SyncState:
    """Return the state with every revision of a plan promised."""
    revisions: Mapping[str, int] = {
        **{upsert.file.document_id: upsert.revision for upsert in plan.upserts},
        **{delete.document_id: delete.revision for delete in plan.deletes},
    }
    known = state.documents
    return state.with_documents(
        {
            name: (sent := known.get(name, SentDocument())).model_copy(update={"promised": max(sent.promised, revision)})
            for name, revision in revisions.items()
        }
    )
