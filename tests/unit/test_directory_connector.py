"""Claims about the directory connector: what is sent, under which revisions, and what is never sent."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.document_change import DocumentChange
from streams.connectors import directory
from streams.connectors.base import Confirmed
from streams.connectors.directory import DirectoryConnector, SyncReport
from streams.connectors.sync_plan import SourceFile, plan_sync
from streams.connectors.sync_state import SentDocument, SyncState, load_state, save_state
from streams.errors import DocdeltaError, NotReachable, UsageError
from streams.topics import MAX_EVENT_BYTES

NOW_US = 1_800_000_000_000_000
HOUR_US = 3_600_000_000


@dataclass
class Broker:
    """A log in memory that takes what it is given, or fails in a chosen way."""

    taken: list[DocumentChange] = field(default_factory=list)
    refuses: frozenset[str] = frozenset()
    dies_after: int | None = None
    silent_for: frozenset[str] = frozenset()
    """Documents whose event is stored, but whose confirmation is lost."""

    def send(self, changes: Iterable[DocumentChange], confirmed: Confirmed) -> None:
        for count, change in enumerate(changes):
            if self.dies_after is not None and count >= self.dies_after:
                raise NotReachable("gone")
            if change.document_id in self.refuses:
                confirmed(change, DocdeltaError("not taken"))
                continue
            self.taken.append(change)
            if change.document_id in self.silent_for:
                confirmed(change, NotReachable("timed out"))
            else:
                confirmed(change, None)


@pytest.fixture(autouse=True)
def only_markdown_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """These claims hold for any table of parsers."""
    monkeypatch.setattr(directory, "media_type_of", lambda path: "text/markdown" if path.suffix == ".md" else None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "site"
    write(root / "a.md", "# A\n\nalpha\n", at=NOW_US - 3 * HOUR_US)
    write(root / "sub" / "b.md", "# B\n\nbeta\n", at=NOW_US - 2 * HOUR_US)
    write(root / "c.md", "# C\n\ngamma\n", at=NOW_US - HOUR_US)
    return root


def write(path: Path, text: str | bytes, at: int) -> None:
    """Write a file whose modification time is `at` microseconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    os.utime(path, ns=(at * 1_000, at * 1_000))


def connector(root: Path, at: int = NOW_US, **options: object) -> DirectoryConnector:
    state = root.parent / "state" / "sync.json"
    return DirectoryConnector(root, "acme", state, clock=lambda: at / 1_000_000, **options)  # type: ignore[arg-type]


def sync(root: Path, broker: Broker, at: int = NOW_US, **options: bool) -> SyncReport:
    made = connector(root, at)
    return made.execute(made.plan(**options), broker)


def sent(broker: Broker) -> list[tuple[str, str]]:
    return [(change.op, change.document_id) for change in broker.taken]


def revision_of(broker: Broker, document_id: str) -> int:
    return max(change.revision for change in broker.taken if change.document_id == document_id)


def newest(broker: Broker) -> dict[str, str | None]:
    """What the index holds once the log is drained: the text of the highest revision; the first of equal revisions stays."""
    held: dict[str, DocumentChange] = {}
    for change in broker.taken:
        if change.document_id not in held or change.revision > held[change.document_id].revision:
            held[change.document_id] = change
    return {name: change.content.text if change.content else None for name, change in held.items()}


def test_the_first_sync_sends_every_file_under_its_modification_time(folder: Path) -> None:
    broker = Broker()
    sync(folder, broker)
    assert sent(broker) == [("upsert", "a.md"), ("upsert", "c.md"), ("upsert", "sub/b.md")]
    assert revision_of(broker, "a.md") == NOW_US - 3 * HOUR_US
    assert {change.tenant_id for change in broker.taken} == {"acme"}


def test_a_second_sync_of_an_unchanged_folder_sends_and_writes_nothing(folder: Path) -> None:
    sync(folder, Broker())
    state = folder.parent / "state" / "sync.json"
    before = state.stat().st_mtime_ns
    broker = Broker()
    sync(folder, broker)
    assert broker.taken == []
    assert state.stat().st_mtime_ns == before


def test_touching_a_file_is_no_change(folder: Path) -> None:
    sync(folder, Broker())
    os.utime(folder / "a.md")
    broker = Broker()
    sync(folder, broker)
    assert broker.taken == []


@pytest.mark.parametrize("how", ["all", "lost state"])
def test_sending_an_unchanged_folder_again_repeats_the_revisions(folder: Path, how: str) -> None:
    broker = Broker()
    sync(folder, broker)
    first = {(change.document_id, change.revision) for change in broker.taken}
    if how == "lost state":
        (folder.parent / "state" / "sync.json").unlink()
    again = Broker()
    sync(folder, again, at=NOW_US + HOUR_US, everything=how == "all")
    assert {(change.document_id, change.revision) for change in again.taken} == first


def test_an_edit_goes_out_above_everything_sent_before_even_with_an_old_file_time(folder: Path) -> None:
    broker = Broker()
    sync(folder, broker)
    write(folder / "c.md", "# C\n\nrestored\n", at=NOW_US - 9 * HOUR_US)
    sync(folder, broker)
    assert sent(broker)[3:] == [("upsert", "c.md")]
    assert newest(broker)["c.md"] == "# C\n\nrestored\n"


def test_a_file_time_in_the_future_counts_as_now(folder: Path) -> None:
    broker = Broker()
    write(folder / "a.md", "# A\n", at=NOW_US + 1000 * HOUR_US)
    sync(folder, broker)
    assert revision_of(broker, "a.md") == NOW_US


def test_a_change_of_metadata_alone_is_a_change(folder: Path) -> None:
    sync(folder, Broker())
    write(folder / "site.yaml", "files:\n  a.md:\n    title: 退款政策\n    labels: policy\n", at=NOW_US - HOUR_US)
    broker = Broker()
    sync(folder, broker)
    assert [(change.document_id, change.title, change.labels) for change in broker.taken] == [("a.md", "退款政策", ("policy",))]


def test_what_the_site_file_says_about_a_file_travels_with_it(folder: Path) -> None:
    said = "files:\n  sub/b.md: {id: faq, title: FAQ, language: en, kind: faq, source_uri: https://example.org/faq, acl: [staff]}\n"
    write(folder / "site.yaml", said, at=NOW_US)
    broker = Broker()
    sync(folder, broker)
    change = next(change for change in broker.taken if change.document_id == "faq")
    assert (change.title, change.language, change.kind, change.source_uri, change.acl) == (
        "FAQ",
        "en",
        "faq",
        "https://example.org/faq",
        ("staff",),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("files:\n  a.md: {titel: x}\n", "files.a.md.titel: unknown key", id="misspelt-key"),
        pytest.param("files: [\n", "site.yaml:2: not YAML", id="not-yaml"),
    ],
)
def test_a_wrong_site_file_is_refused_by_place(folder: Path, text: str, words: str) -> None:
    write(folder / "site.yaml", text, at=NOW_US)
    with pytest.raises(UsageError) as caught:
        sync(folder, Broker())
    assert words in str(caught.value)


def test_files_that_no_parser_reads_and_hidden_ones_are_passed_over(folder: Path) -> None:
    write(folder / "logo.png", b"\x89PNG", at=NOW_US)
    write(folder / ".git" / "x.md", "x", at=NOW_US)
    write(folder / ".draft.md", "x", at=NOW_US)
    scan = connector(folder).scan()
    assert [file.document_id for file in scan.files] == ["a.md", "c.md", "sub/b.md"]
    assert [path.name for path in scan.skipped] == ["logo.png"]


def test_document_ids_are_normalised(folder: Path) -> None:
    write(folder / unicodedata.normalize("NFD", "é.md"), "x", at=NOW_US)
    assert unicodedata.normalize("NFC", "é.md") in [file.document_id for file in connector(folder).scan().files]


def test_two_files_of_one_id_are_refused_by_name_and_the_first_is_sent(folder: Path) -> None:
    write(folder / unicodedata.normalize("NFC", "é.md"), "composed", at=NOW_US)
    write(folder / unicodedata.normalize("NFD", "é.md"), "decomposed", at=NOW_US)
    plan = connector(folder).plan()
    assert [refusal.document_id for refusal in plan.refused] == [unicodedata.normalize("NFC", "é.md")]
    assert len(plan.upserts) == 4


@pytest.mark.parametrize("name", ["tab\there.md", "x" * 200 + "/" + "y" * 200 + "/" + "z" * 200 + ".md"])
def test_a_name_that_can_be_no_document_id_is_refused_and_the_rest_is_sent(folder: Path, name: str) -> None:
    write(folder / name, "x", at=NOW_US)
    plan = connector(folder).plan()
    assert len(plan.refused) == 1
    assert "site.yaml" in plan.refused[0].reason
    assert len(plan.upserts) == 3


def test_bytes_that_are_no_clean_text_travel_as_they_are(folder: Path) -> None:
    write(folder / "gbk.md", "退款政策".encode("gbk"), at=NOW_US)
    write(folder / "nul.md", b"a\x00b", at=NOW_US)
    broker = Broker()
    sync(folder, broker)
    bodies = {change.document_id: change.content for change in broker.taken}
    assert all(bodies[name] is not None and bodies[name].base64 for name in ("gbk.md", "nul.md"))
    assert bodies["a.md"] is not None
    assert bodies["a.md"].text == "# A\n\nalpha\n"


def test_a_file_too_large_for_an_event_is_refused_with_what_to_do_or_sent_by_reference(folder: Path) -> None:
    write(folder / "big.md", b"x" * (MAX_EVENT_BYTES + 1), at=NOW_US)
    plan = connector(folder).plan()
    assert [refusal.document_id for refusal in plan.refused] == ["big.md"]
    assert "--ref" in plan.refused[0].reason
    broker = Broker()
    referring = connector(folder, by_reference=True)
    referring.execute(referring.plan(), broker)
    big = next(change for change in broker.taken if change.document_id == "big.md")
    assert big.content is not None
    assert big.content.ref == (folder / "big.md").resolve().as_uri()
    assert big.content.sha256 is not None


def test_a_text_that_only_its_escapes_make_too_large_is_refused_by_name(folder: Path) -> None:
    write(folder / "big.md", b"\x01" * (MAX_EVENT_BYTES // 2), at=NOW_US)
    broker = Broker()
    report = sync(folder, broker)
    assert [refusal.document_id for refusal in report.failed] == ["big.md"]
    assert len(broker.taken) == 3


class TestDeletes:
    def test_a_missing_file_is_only_named_unless_deletes_are_asked_for(self, folder: Path) -> None:
        sync(folder, Broker())
        (folder / "a.md").unlink()
        plan = connector(folder).plan()
        assert plan.size == 0
        assert plan.missing == ("a.md",)

    def test_a_removed_file_ends_its_document_once(self, folder: Path) -> None:
        broker = Broker()
        sync(folder, broker)
        (folder / "a.md").unlink()
        sync(folder, broker, delete=True)
        sync(folder, broker, delete=True)
        assert sent(broker)[3:] == [("delete", "a.md")]
        assert newest(broker)["a.md"] is None

    def test_a_file_that_comes_back_with_its_old_time_comes_back_in_the_index(self, folder: Path) -> None:
        broker = Broker()
        sync(folder, broker)
        text = (folder / "a.md").read_text()
        (folder / "a.md").unlink()
        sync(folder, broker, delete=True)
        write(folder / "a.md", text, at=NOW_US - 3 * HOUR_US)
        sync(folder, broker, delete=True)
        assert newest(broker)["a.md"] == text

    def test_more_than_half_are_held_back_unless_forced(self, folder: Path) -> None:
        sync(folder, Broker())
        (folder / "a.md").unlink()
        (folder / "c.md").unlink()
        write(folder / "d.md", "new", at=NOW_US)
        plan = connector(folder).plan(delete=True)
        assert (plan.deletes, plan.held) == ((), ("a.md", "c.md"))
        assert "sync again with --delete --force" in plan.held_reason
        assert "do something else" in connector(folder).plan(delete=True, consent="do something else").held_reason
        assert [upsert.file.document_id for upsert in plan.upserts] == ["d.md"]
        assert len(connector(folder).plan(delete=True, force=True).deletes) == 2

    def test_an_empty_folder_is_taken_for_a_missing_one(self, folder: Path) -> None:
        sync(folder, Broker())
        for name in ("a.md", "c.md", "sub/b.md"):
            (folder / name).unlink()
        assert len(connector(folder).plan(delete=True).held) == 3

    def test_a_folder_that_can_not_be_listed_deletes_nothing_even_when_forced(self) -> None:
        state = state_of(
            a=SentDocument(fingerprint="1", revision=5, promised=5), b=SentDocument(fingerprint="1", revision=5, promised=5)
        )
        plan = plan_sync(state, [file("b", "1")], now_us=NOW_US, delete=True, force=True, complete=False)
        assert plan.deletes == ()
        assert plan.held == ("a",)

    def test_sending_everything_again_repeats_deletes_under_their_revision(self, folder: Path) -> None:
        broker = Broker()
        sync(folder, broker)
        (folder / "a.md").unlink()
        sync(folder, broker, delete=True)
        again = Broker()
        sync(folder, again, at=NOW_US + HOUR_US, delete=True, everything=True)
        assert revision_of(again, "a.md") == revision_of(broker, "a.md")


class TestInterruptions:
    def test_what_was_confirmed_before_the_broker_went_is_not_sent_again(self, folder: Path) -> None:
        broker = Broker(dies_after=2)
        with pytest.raises(NotReachable):
            sync(folder, broker)
        broker.dies_after = None
        sync(folder, broker)
        assert sorted(name for _, name in sent(broker)) == ["a.md", "c.md", "sub/b.md"]

    def test_a_refused_event_is_reported_and_tried_again(self, folder: Path) -> None:
        broker = Broker(refuses=frozenset({"c.md"}))
        assert [refusal.document_id for refusal in sync(folder, broker).failed] == ["c.md"]
        broker.refuses = frozenset()
        sync(folder, broker)
        assert sent(broker)[-1] == ("upsert", "c.md")

    def test_going_back_after_an_unconfirmed_edit_that_did_land_still_wins(self, folder: Path) -> None:
        broker = Broker()
        sync(folder, broker)
        write(folder / "a.md", "edited", at=NOW_US)
        broker.silent_for = frozenset({"a.md"})
        sync(folder, broker)
        broker.silent_for = frozenset()
        write(folder / "a.md", "# A\n\nalpha\n", at=NOW_US - 3 * HOUR_US)
        sync(folder, broker)
        assert newest(broker)["a.md"] == "# A\n\nalpha\n"

    def test_a_document_whose_only_event_was_not_confirmed_is_still_deleted(self, folder: Path) -> None:
        broker = Broker(silent_for=frozenset({"a.md"}))
        sync(folder, broker)
        (folder / "a.md").unlink()
        sync(folder, broker, delete=True)
        assert newest(broker)["a.md"] is None

    def test_a_file_that_goes_between_plan_and_send_is_reported(self, folder: Path) -> None:
        made = connector(folder)
        plan = made.plan()
        (folder / "a.md").unlink()
        report = made.execute(plan, Broker())
        assert [refusal.document_id for refusal in report.failed] == ["a.md"]

    def test_a_file_that_changes_between_plan_and_send_is_remembered_as_sent(self, folder: Path) -> None:
        made, broker = connector(folder), Broker()
        plan = made.plan()
        write(folder / "a.md", "later", at=NOW_US)
        made.execute(plan, broker)
        assert newest(broker)["a.md"] == "later"
        assert made.plan().size == 0


class TestState:
    def test_a_state_reads_back_as_written(self, tmp_path: Path) -> None:
        state = state_of(a=SentDocument(fingerprint="f", revision=3, promised=4), b=SentDocument(revision=9, deleted=True))
        save_state(tmp_path / "s.json", state)
        assert load_state(tmp_path / "s.json", "acme", tmp_path) == state

    @pytest.mark.parametrize("text", ["", "{", '{"tenant": "acme"}', '{"version": 1, "tenant": "other", "root": ""}'])
    def test_a_damaged_or_foreign_state_is_refused_by_name(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "s.json").write_text(text)
        with pytest.raises(UsageError, match=r"s\.json"):
            load_state(tmp_path / "s.json", "acme", tmp_path)

    def test_only_one_run_holds_a_folder(self, folder: Path) -> None:
        with connector(folder).owned(), pytest.raises(UsageError, match="another docdelta sync"), connector(folder).owned():
            pass

    @pytest.mark.parametrize("tenant", ["", "a/b", "-x", "x" * 65])
    def test_a_tenant_that_can_not_be_a_key_is_refused(self, folder: Path, tenant: str) -> None:
        with pytest.raises(UsageError, match="tenant"):
            DirectoryConnector(folder, tenant)

    def test_a_missing_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="no folder"):
            DirectoryConnector(tmp_path / "none", "acme")


def state_of(**documents: SentDocument) -> SyncState:
    return SyncState(tenant="acme", root="site", documents=documents)


def file(name: str, fingerprint: str, modified_us: int = 1_000) -> SourceFile:
    return SourceFile(name, Path(name), "text/markdown", fingerprint, modified_us)


Edit = Callable[[dict[str, tuple[str, int]]], None]
NAMES = st.sampled_from(["a", "b", "c"])
TIMES = st.integers(0, 50)
STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "remove", "lose confirmation", "crash", "all"]), NAMES, st.sampled_from("xyz"), TIMES),
    max_size=25,
)


@given(STEPS)
def test_after_any_history_with_a_kept_state_the_newest_revision_is_what_the_folder_holds(
    steps: list[tuple[str, str, str, int]],
) -> None:
    """Old file times, lost confirmations, crashes before the state is written: the last sync always wins."""
    state, folder, log = state_of(), dict[str, tuple[str, int]](), list[tuple[str, int, str | None]]()
    clock = 100

    def run(lost: str = "", crash: bool = False, everything: bool = False) -> None:
        nonlocal state, clock
        clock += 1
        files = [file(name, text, time) for name, (text, time) in sorted(folder.items())]
        plan = plan_sync(state, files, now_us=clock, delete=True, force=True, everything=everything)
        events: list[tuple[str, int, str | None]] = [
            (each.file.document_id, each.revision, each.file.fingerprint) for each in plan.upserts
        ]
        events += [(each.document_id, each.revision, None) for each in plan.deletes]
        promised = directory._with_promises(state, plan)
        log.extend(events)
        state = promised
        if not crash:
            done = {
                name: SentDocument(fingerprint=text or "", revision=revision, promised=revision, deleted=text is None)
                for name, revision, text in events
                if name != lost
            }
            state = promised.with_documents(done)

    for step, name, text, time in steps:
        if step == "write":
            folder[name] = (text, time)
        elif step == "remove":
            folder.pop(name, None)
        run(lost=name if step == "lose confirmation" else "", crash=step == "crash", everything=step == "all")
    run()
    held: dict[str, tuple[int, str | None]] = {}
    for name, revision, content in log:
        if name not in held or revision > held[name][0]:
            held[name] = (revision, content)
    assert {name: text for name, (_, text) in held.items() if text is not None} == {
        name: text for name, (text, _) in folder.items()
    }


def test_a_moved_file_with_an_id_of_its_own_stays_the_same_document_with_a_new_address(folder: Path) -> None:
    write(folder / "site.yaml", "files:\n  a.md: {id: page}\n  moved.md: {id: page}\n", at=NOW_US - HOUR_US)
    broker = Broker()
    sync(folder, broker)
    (folder / "a.md").rename(folder / "moved.md")
    sync(folder, broker, delete=True)
    assert [(change.op, change.source_uri) for change in broker.taken if change.document_id == "page"] == [
        ("upsert", "a.md"),
        ("upsert", "moved.md"),
    ]


def test_a_link_to_what_never_ends_is_refused_by_name_and_the_rest_is_sent(folder: Path) -> None:
    os.mkfifo(folder.parent / "pipe")
    (folder / "b-pipe.md").symlink_to(folder.parent / "pipe")
    (folder / "b-zero.md").symlink_to("/dev/zero")
    plan = connector(folder).plan()
    assert [each.document_id for each in plan.refused] == ["b-pipe.md", "b-zero.md"]
    assert all("device, pipe or socket" in each.reason for each in plan.refused)
    broker = Broker()
    connector(folder).execute(plan, broker)
    assert [document for _, document in sent(broker)] == ["a.md", "c.md", "sub/b.md"]


def test_metadata_that_fits_no_event_stops_its_own_file_only(folder: Path) -> None:
    (folder / "site.yaml").write_text(f"files: {{a.md: {{language: {'x' * 40}}}}}", encoding="utf-8")
    broker = Broker()
    report = sync(folder, broker)
    assert [(each.document_id, each.reason.partition(":")[0]) for each in report.failed] == [("a.md", "language")]
    assert [document for _, document in sent(broker)] == ["c.md", "sub/b.md"]
