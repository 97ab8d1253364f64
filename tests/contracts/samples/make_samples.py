"""Writes a sample of a NEW record version. Samples that are there are never rewritten: they stand for bytes already in topics."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from schemas.batch import BatchRecord, EmbeddingRecord
from schemas.chunk_changes import ChunkChanges, ChunkRecord
from schemas.codec import encode
from schemas.control import Control, Decision, Figures
from schemas.dead_letter import DeadLetter
from schemas.document_change import Content, DocumentChange
from schemas.held_change import HeldChange
from schemas.letter_index import LetterCheckpoint, LetterClosing, LetterEntry
from schemas.parsed_document import ParsedBlock, ParsedDocument
from schemas.receipt import Receipt
from schemas.record import Record

NOON = datetime(2031, 5, 4, 12, 0, 0, 123456, tzinfo=UTC)
CHUNK = ChunkRecord(
    chunk_id="chk_" + "ab" * 32,
    embed_hash="cd" * 32,
    payload_hash="ef" * 16,
    order_key=1 << 20,
    embed_text="第十条 值班员每两小时巡查一次。",
    payload={"text": "第十条 值班员每两小时巡查一次。", "heading_path": ["总则"], "span": [0, 17], "acl": None},
)
SAMPLES: tuple[Record, ...] = (
    DocumentChange(
        tenant_id="acme",
        document_id="policies/duty.md",
        revision=1_900_000_000_000_001,
        op="upsert",
        media_type="text/markdown",
        content=Content(text="# 值班\n\n第十条 值班员每两小时巡查一次。\n"),
        title="值班办法",
        source_uri="https://cms.example/duty",
        language="zh-CN",
        kind="policy",
        labels=("duty", "night"),
        acl=("staff",),
        attributes={"owner": "security", "views": 11, "tags": ("a", "b")},
        occurred_at=NOON,
        event_id="evt-1",
    ),
    ParsedDocument(
        tenant_id="acme",
        document_id="policies/duty.md",
        revision=7,
        op="upsert",
        media_type="text/markdown",
        parser="markdown/1",
        text="# 值班\n\n第十条 值班员每两小时巡查一次。\n",
        blocks=(
            ParsedBlock(kind="heading", start=0, end=4, level=1, label="值班"),
            ParsedBlock(kind="paragraph", start=6, end=23, attributes={"x": "y"}, page=2),
        ),
        labels=("duty",),
        acl=(),
        occurred_at=NOON,
        received_at=NOON,
        event_id="evt-1",
    ),
    ChunkChanges(
        tenant_id="acme",
        document_id="policies/duty.md",
        batch="default-v1-0a1b2c3d",
        revision=7,
        part=2,
        parts=2,
        complete=True,
        added=(CHUNK,),
        removed=("chk_" + "01" * 32,),
        kept=("chk_" + "02" * 32,),
        chunks_added=3,
        chunks_updated=1,
        chunks_kept=1,
        received_at=NOON,
        event_id="evt-1",
    ),
    BatchRecord(
        batch="default-v1-0a1b2c3d",
        state="active",
        policy_yaml="name: default\nversion: 1\n",
        policy_fingerprint="0a1b2c3d" * 8,
        collection="default-v1-0a1b2c3d",
        embedding=EmbeddingRecord(model="use-multilingual-v3", dimensions=512),
        alias="docdelta",
        created_at=NOON,
        updated_at=NOON,
        note="first batch",
    ),
    Receipt(
        tenant_id="acme",
        document_id="policies/duty.md",
        revision=7,
        batch="default-v1-0a1b2c3d",
        stage="indexer",
        outcome="indexed",
        kept=4,
        added=1,
        updated=2,
        removed=1,
        embedded=1,
        event_id="evt-1",
        occurred_at=NOON,
        received_at=NOON,
        settled_at=NOON,
    ),
    DeadLetter(
        topic="docdelta.documents",
        partition=3,
        offset=41,
        key="YWNtZS9k",
        value="bm90IEpTT04=",
        headers={"source": "cms"},
        stage="parser",
        error="UndecodableRecord",
        reason="not JSON: Expecting value at character 0",
        facts={"place": "value"},
        attempts=1,
        tenant_id="acme",
        document_id="d",
        revision=2,
        failed_at=NOON,
    ),
    Control(
        kind="tripped",
        at=NOON,
        tenant_id="acme",
        reason="150 of 200 documents were deleted within 3600 s",
        by="worker@host (process 7)",
        partition=3,
        figures=Figures(counted=150, documents=200, window_seconds=3600, partitions=8),
        decision="0a1b",
        decisions=(Decision(id="0a1b", verdict="reject", ends={0: 4, 3: 17}, at=NOON, by="ops@host (process 9)"),),
    ),
    HeldChange(
        tenant_id="acme",
        document_id="policies/duty.md",
        revision=7,
        op="delete",
        event_id="evt-1",
        reason="breaker",
        why="150 of 200 documents were deleted within 3600 s; docdelta breaker list",
        since=NOON,
        partition=3,
        offset=41,
        value="bm90IEpTT04=",
        headers={"source": "cms"},
    ),
    LetterEntry(
        letter="3-17",
        topic="docdelta.documents",
        partition=3,
        offset=41,
        key="YWNtZS9k",
        size=8,
        stage="parser",
        error="UndecodableRecord",
        reason="not JSON: Expecting value at character 0",
        tenant_id="acme",
        document_id="d",
        revision=2,
        event_id="evt-1",
        failed_at=NOON,
    ),
    LetterClosing(letter="3-17", state="replayed", at=NOON, note="sent again as evt-1#replay-3-17"),
    LetterCheckpoint(letters={0: 4, 3: 18}, receipts={0: 900, 3: 1200}, at=NOON),
)

if __name__ == "__main__":
    for sample in SAMPLES:
        path = Path(__file__).parent / f"{sample.record_name}.v{sample.record_version}.json"
        if not path.exists():
            path.write_bytes(encode(sample) + b"\n")
            print("wrote", path.name)
