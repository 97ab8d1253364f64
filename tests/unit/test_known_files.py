"""Claims about files that are known without being read: never a wrong digest, and no file read twice for nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streams.connectors.directory import DirectoryConnector
from streams.connectors.known_files import SETTLED_SECONDS, KnownFiles
from streams.connectors.sync_state import SyncState, load_state, save_state

NOW = 1_800_000_000.0
LATER = 4_000_000_000.0
"""By a clock that is far ahead of the machine's: whatever was written is settled."""


def looks(size: int = 5, modified: float = NOW - 60, changed: float = NOW - 60, inode: int = 7, device: int = 1) -> os.stat_result:
    """Return the stat of a file."""
    times = {"st_atime_ns": 0, "st_mtime_ns": int(modified * 1e9), "st_ctime_ns": int(changed * 1e9)}
    return os.stat_result((0o100644, inode, device, 1, 0, 0, size, 0, int(modified), int(changed)), {
        "st_atime": 0.0, "st_mtime": modified, "st_ctime": changed, **times,
    })  # fmt: skip


def remembered(folder: Path, found: os.stat_result, at: float = NOW) -> KnownFiles:
    """Return what is known in the next scan after a file that looked so was read at a time."""
    first = KnownFiles(folder / "known", lambda: at)
    first.read("a.md", found, "digest", at)
    first.save()
    return KnownFiles(folder / "known", lambda: at)


def test_a_file_that_looks_the_same_is_known(tmp_path: Path) -> None:
    assert remembered(tmp_path, looks()).digest("a.md", looks()) == "digest"


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(looks(size=6), id="size"),
        pytest.param(looks(modified=NOW - 59), id="modification-time"),
        pytest.param(looks(changed=NOW - 59), id="change-time-alone-where-the-other-was-set-back"),
        pytest.param(looks(inode=8), id="another-file-in-its-place"),
        pytest.param(looks(device=2), id="another-disk"),
    ],
)
def test_a_file_that_looks_different_is_read(tmp_path: Path, found: os.stat_result) -> None:
    assert remembered(tmp_path, looks()).digest("a.md", found) is None


@pytest.mark.parametrize("field", ["modified", "changed"])
@pytest.mark.parametrize(("age", "known"), [(0.0, None), (SETTLED_SECONDS - 0.5, None), (SETTLED_SECONDS + 0.5, "digest")])
def test_what_changed_just_before_it_was_read_is_not_remembered(tmp_path: Path, field: str, age: float, known: str | None) -> None:
    """It may change again within the same tick, and would look the same."""
    found = looks(modified=NOW - age) if field == "modified" else looks(changed=NOW - age)
    assert remembered(tmp_path, found).digest("a.md", found) == known


def test_what_was_not_looked_at_is_forgotten(tmp_path: Path) -> None:
    remembered(tmp_path, looks()).save()
    assert KnownFiles(tmp_path / "known", lambda: NOW).digest("a.md", looks()) is None


@pytest.mark.parametrize(
    "bytes_",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"version": 2, "files": {}}',
        b'{"version": 1, "files": {"a.md": [1]}}',
        b'{"version":1,"files":3}',
    ],
)
def test_a_damaged_memory_costs_one_reading(tmp_path: Path, bytes_: bytes) -> None:
    (tmp_path / "known").write_bytes(bytes_)
    known = KnownFiles(tmp_path / "known", lambda: NOW)
    assert known.digest("a.md", looks()) is None
    known.read("a.md", looks(), "digest", NOW)
    known.save()
    assert KnownFiles(tmp_path / "known", lambda: NOW).digest("a.md", looks()) == "digest"


def test_a_memory_that_can_not_be_written_is_let_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    known = KnownFiles(tmp_path / "file" / "known", lambda: NOW)
    known.read("a.md", looks(), "digest", NOW)
    known.save()


def test_a_reading_that_takes_long_does_not_hide_a_change_at_its_begin(tmp_path: Path) -> None:
    found = looks(changed=NOW - 1)
    first = KnownFiles(tmp_path / "known", lambda: NOW + 60)
    first.read("a.md", found, "digest", NOW)
    first.save()
    assert KnownFiles(tmp_path / "known", lambda: NOW + 60).digest("a.md", found) is None


@pytest.mark.parametrize("name", ["state.json", "state", "state.files", "state.prod", ".files"])
def test_what_is_known_never_lands_on_the_sync_state(tmp_path: Path, name: str) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "a.md").write_text("alpha")
    state = tmp_path / name
    made = DirectoryConnector(tmp_path / "site", "acme", state, clock=lambda: LATER)
    save_state(state, SyncState(tenant="acme", root="site"))
    made.scan()
    made.scan()
    assert load_state(state, "acme", tmp_path / "site").tenant == "acme"


def fingerprints(root: Path, anew: bool = False) -> dict[str, str]:
    made = DirectoryConnector(root, "acme", root.parent / "state.json", clock=lambda: LATER)
    return {file.document_id: file.fingerprint for file in made.scan(anew).files}


class TestAFolder:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        (tmp_path / "site" / "sub").mkdir(parents=True)
        (tmp_path / "site" / "a.md").write_text("alpha")
        (tmp_path / "site" / "sub" / "b.md").write_text("beta")
        return tmp_path / "site"

    def test_is_not_read_again_and_says_the_same(self, root: Path) -> None:
        first = fingerprints(root)
        kept = root.parent / "state.json.files"
        kept.write_bytes(
            kept.read_bytes().replace(b'"a.md"', b'"x.md"').replace(b'"sub/b.md"', b'"a.md"').replace(b'"x.md"', b'"z"')
        )
        assert fingerprints(root) == first, "what looks different is read, whatever is remembered under its name"
        assert fingerprints(root) == fingerprints(root, anew=True) == first

    def test_is_believed_until_it_looks_different(self, root: Path) -> None:
        """Damage done on purpose shows that the memory is used, and that `--all` does not use it."""
        first = fingerprints(root)
        kept = root.parent / "state.json.files"
        whole = kept.read_text()
        digest = whole.split('"a.md":[')[1].split('"')[1]
        kept.write_text(whole.replace(digest, "0" * 64))
        assert fingerprints(root)["a.md"] != first["a.md"]
        assert fingerprints(root, anew=True) == first
        assert fingerprints(root) == first, "and that `--all` mends it"
        kept.write_text(whole.replace(digest, "0" * 64))
        (root / "a.md").write_text("alpha, longer")
        (root / "a.md").write_text("alpha")
        os.utime(root / "a.md", (0, 0))
        assert fingerprints(root)["a.md"] == first["a.md"]

    def test_tells_its_metadata_apart_without_reading_anew(self, root: Path) -> None:
        first = fingerprints(root)
        (root / "site.yaml").write_text("files: {a.md: {title: Alpha}}")
        said = fingerprints(root)
        assert said["a.md"] != first["a.md"]
        assert said["sub/b.md"] == first["sub/b.md"]
        (root / "site.yaml").unlink()
        assert fingerprints(root) == first
