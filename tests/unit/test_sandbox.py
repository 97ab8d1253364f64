"""The parse pool: one hostile document costs its own process and nothing else. Real processes, real kills."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chunking.document import Document
from streams.errors import InvariantBroken, PoisonRecord, Stopping, Unavailable
from streams.sandbox import Limits, ParsePool
from streams.settings import ParserSettings

HOSTILE = '''
import ctypes, os, signal, sys, time
from chunking.document import Block, BlockKind, Document, Span


def document(text):
    blocks = (Block(BlockKind.PARAGRAPH, Span(0, len(text))),) if text.strip() else ()
    return Document(text=text, blocks=blocks, parser="hostile/1")


class Sneaky:
    def __reduce__(self):
        return os.mkdir, (os.environ["HOME"] + "/escaped",)


def parse(data, media_type, *, title, language, kind, labels):
    """Do what the text says."""
    word, _, rest = (data if isinstance(data, str) else data.decode()).partition(" ")
    if word == "loop":
        while True:
            pass
    if word == "hang-in-c":
        ctypes.PyDLL(None).sleep(600)  # holds the interpreter lock
    if word == "eat":
        hoard = []
        while True:
            hoard.append(bytearray(8 << 20))
    if word == "exit":
        os._exit(7)
    if word == "system-exit":
        sys.exit(3)
    if word == "segfault":
        ctypes.string_at(0)
    if word == "kill-me":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "kill-me-once":
        if not os.path.exists(rest):
            open(rest, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
    if word == "recurse":
        return parse(data, media_type, title=title, language=language, kind=kind, labels=labels)
    if word == "garbage":
        return {"text": data}
    if word == "sneak":
        return Document(text="", blocks=(), title=Sneaky())
    if word == "raise":
        raise KeyError("secret words of the document")
    if word == "print":
        print("noise on standard output", flush=True)
        os.write(1, b"more noise")
        sys.stdin.read()
    if word == "large":
        return document("word " * (1 << 20))
    if word == "keep":
        globals().setdefault("hoard", []).append(bytearray(int(rest)))
    if word == "pid":
        return document(f"{os.getpid()} {os.getppid()}")
    if word == "flood":
        for descriptor in range(3, 20):
            try:
                os.write(descriptor, (1 << 40).to_bytes(8, "big") + bytes(16 << 20))
            except OSError:
                pass
    if word == "environment":
        return document(" ".join(sorted(os.environ)))
    if word == "terminate-me":
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    if word == "wait-for":
        deadline = time.monotonic() + 20
        while not os.path.exists(rest) and time.monotonic() < deadline:
            time.sleep(0.005)
    return document("|".join([word, rest, media_type, title, language, kind, *labels]))
'''


@pytest.fixture(autouse=True)
def _hostile_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hostile_parser.py").write_text(HOSTILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))


@asynccontextmanager
async def pool(
    parser: str = "hostile_parser:parse", limits: dict[str, Limits] | None = None, **settings: object
) -> AsyncIterator[ParsePool]:
    made = ParsePool(ParserSettings(**{"processes": 1, **settings}), parser=parser, limits=limits)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        await made.close()


async def refusal(parsers: ParsePool, data: str, **more: str) -> PoisonRecord:
    with pytest.raises(PoisonRecord) as caught:
        await parsers.parse(data, "text/plain", **more)
    return caught.value


def children() -> list[str]:
    found = []
    for task in Path("/proc/self/task").iterdir():
        found += (task / "children").read_text().split()
    return found


def parsers_left() -> list[str]:
    """Return this process's children that run the sandbox's code; other tests keep brokers."""
    return [pid for pid in children() if "sandbox_child" in _command_line(pid)]


def _command_line(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def gone(pid: int) -> bool:
    """True when a process is no more, or only waits to be reaped by its new parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except OSError:
        return True


async def test_a_document_crosses_with_all_its_metadata() -> None:
    async with pool() as parsers:
        got = await parsers.parse("say 你好 👋", "text/plain", title="t", language="zh", kind="k", labels=["a", "b"])
    assert isinstance(got, Document)
    assert got.text == "say|你好 👋|text/plain|t|zh|k|a|b"
    assert got.text_of(got.blocks[0]) == got.text


async def test_processes_are_used_again() -> None:
    async with pool() as parsers:
        first = await parsers.parse("pid", "text/plain")
        second = await parsers.parse("pid", "text/plain")
    assert first.text == second.text


@pytest.mark.parametrize(
    ("data", "words", "error"),
    [
        pytest.param("loop", "parse timed out after 0.3 s", "ParseTimedOut", id="endless-loop"),
        pytest.param("hang-in-c", "parse timed out after 0.3 s", "ParseTimedOut", id="hang-with-the-interpreter-lock"),
        pytest.param("exit", "parser process died (exit code 7)", "ParserDied", id="exit"),
        pytest.param("segfault", "parser process died (SIGSEGV)", "ParserDied", id="segfault"),
        pytest.param("kill-me", "parser process died (SIGKILL)", "ParserDied", id="killed-twice"),
        pytest.param("recurse", "nested too deeply", "NestedTooDeeply", id="recursion"),
        pytest.param("garbage", "parser returned dict", "NoDocument", id="not-a-document"),
        pytest.param("sneak", "parser returned an object of posix.mkdir", "NoDocument", id="a-pickle-that-runs-code"),
        pytest.param("raise", "parser failed: KeyError at hostile_parser.py:", "ParserFailed", id="unexpected-error"),
        pytest.param("system-exit", "parser failed: SystemExit at hostile_parser.py:", "ParserFailed", id="sys-exit"),
    ],
)
async def test_a_hostile_document_is_refused_by_name_and_the_next_one_is_parsed(
    data: str, words: str, error: str, tmp_path: Path
) -> None:
    timeout = 0.3 if "timed out" in words else 30
    async with pool(limits={"text/plain": Limits(timeout, 256 << 20, 1024)}) as parsers:
        poison = await refusal(parsers, data, place="demo/handbook@7")
        assert words in poison.message
        assert "secret" not in str(poison)
        assert poison.facts == {"error": error, "document": "demo/handbook@7", "media_type": "text/plain", "bytes": len(data)}
        assert (await parsers.parse("fine", "text/markdown")).text.startswith("fine|")
    assert not (tmp_path / "escaped").exists()


async def test_memory_is_limited_per_document_and_the_pool_goes_on() -> None:
    async with pool(memory_bytes=64 << 20) as parsers:
        poison = await refusal(parsers, "eat")
        assert poison.message.startswith("parser ran out of memory at 64 MiB")
        assert (await parsers.parse("keep 33554432", "text/plain")).text.startswith("keep|")


async def test_a_process_that_has_grown_is_replaced() -> None:
    async with pool(memory_bytes=64 << 20) as parsers:
        before = await parsers.parse("pid", "text/plain")
        await parsers.parse(f"keep {40 << 20}", "text/plain")
        after = await parsers.parse("pid", "text/plain")
    assert before.text != after.text


async def test_a_kill_from_outside_costs_a_second_try_not_the_document(tmp_path: Path) -> None:
    async with pool() as parsers:
        got = await parsers.parse(f"kill-me-once {tmp_path / 'once'}", "text/plain")
    assert got.text.startswith("kill-me-once|")


async def test_a_process_killed_while_idle_is_not_noticed_by_the_next_document() -> None:
    async with pool() as parsers:
        pid = int((await parsers.parse("pid", "text/plain")).text.split()[0])
        os.kill(pid, signal.SIGKILL)
        assert (await parsers.parse("fine", "text/plain")).text.startswith("fine|")


async def test_a_draining_worker_can_finish() -> None:
    async with pool() as parsers:
        assert (await parsers.parse("terminate-me", "text/plain")).text.startswith("terminate-me|")


async def test_what_a_parser_prints_or_reads_does_not_touch_the_wire() -> None:
    async with pool() as parsers:
        assert (await parsers.parse("print", "text/plain")).text.startswith("print|")


async def test_passwords_stay_out_of_the_parser_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCDELTA_KAFKA__SASL_PASSWORD", "hush")
    async with pool() as parsers:
        names = (await parsers.parse("environment", "text/plain")).text.split()
    assert "PATH" in names
    assert not [name for name in names if name.startswith("DOCDELTA")]


async def test_too_large_a_document_starts_no_process() -> None:
    before = children()
    async with pool(max_document_bytes=1024) as parsers:
        poison = await refusal(parsers, "字" * 400)
        assert poison.message.startswith("document is larger than 1024 bytes")
        assert children() == before


async def test_limits_follow_the_media_type() -> None:
    slow = {"text/slow": Limits(seconds=0.2, memory_bytes=64 << 20, input_bytes=8)}
    async with pool(limits=slow) as parsers:
        with pytest.raises(PoisonRecord, match=r"timed out after 0.2 s"):
            await parsers.parse("loop", "text/slow")
        with pytest.raises(PoisonRecord, match="larger than 8 bytes"):
            await parsers.parse("say hello", "Text/Slow; charset=utf-8")
        assert (await parsers.parse("say hello", "text/plain")).text.startswith("say|hello")


async def test_other_documents_and_the_loop_go_on_beside_a_hostile_one(tmp_path: Path) -> None:
    async with pool(processes=2) as parsers:
        stuck = asyncio.create_task(parsers.parse(f"wait-for {tmp_path / 'go'}", "text/plain"))
        others = [await parsers.parse(f"say {number}", "text/plain") for number in range(5)]
        assert not stuck.done()
        (tmp_path / "go").touch()
        assert (await stuck).text.startswith("wait-for|")
    assert [got.text.split("|")[1] for got in others] == ["0", "1", "2", "3", "4"]


async def test_a_large_document_comes_whole() -> None:
    async with pool() as parsers:
        assert len((await parsers.parse("large", "text/plain")).text) == 5 << 20


@pytest.mark.filterwarnings("error")
async def test_a_flood_on_the_wire_ends_the_process_and_leaves_nothing_open() -> None:
    async with pool() as parsers:
        await parsers.parse("fine", "text/plain")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            poison = await refusal(parsers, "flood")
            assert poison.message.startswith(f"parser returned a reply of {1 << 40} bytes")
        await parsers.parse("fine", "text/plain")
        assert len(os.listdir("/proc/self/fd")) == before
    gc.collect()  # a pipe that was left to the collector warns here


async def test_a_cancelled_parse_takes_its_process_along() -> None:
    async with pool() as parsers:
        first = (await parsers.parse("pid", "text/plain")).text
        task = asyncio.create_task(parsers.parse("loop", "text/plain"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert gone(int(first.split()[0]))
        assert (await parsers.parse("pid", "text/plain")).text != first


async def test_close_ends_what_runs_and_refuses_what_comes() -> None:
    async with pool(processes=2) as parsers:
        running = [asyncio.create_task(parsers.parse("loop", "text/plain"))]
        await parsers.parse("say", "text/plain")
        running += [asyncio.create_task(parsers.parse("loop", "text/plain")) for _ in range(3)]
        await asyncio.sleep(0)
        await parsers.close()
        assert parsers_left() == []
        outcomes = await asyncio.gather(*running, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {Stopping}
        with pytest.raises(Stopping):
            await parsers.parse("say", "text/plain")
        await parsers.close()


async def test_nothing_leaks_over_200_kills() -> None:
    async with pool(processes=2) as parsers:
        await asyncio.gather(*(refusal(parsers, "exit") for _ in range(4)))
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(100):
            await asyncio.gather(refusal(parsers, "exit"), refusal(parsers, "exit"))
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) <= before
        assert parsers_left() == []


async def test_a_parser_that_cannot_be_loaded_is_our_fault_not_the_documents() -> None:
    async with pool(parser="hostile_parser:absent") as parsers:
        with pytest.raises(InvariantBroken, match="parser can't be loaded: AttributeError"):
            await parsers.parse("say", "text/plain")
        assert parsers_left() == []


async def test_a_process_that_cannot_be_started_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    async with pool() as parsers:
        with pytest.raises(Unavailable, match="no parser process can be started"):
            await parsers.parse("say", "text/plain")


@pytest.mark.parametrize("busy", [True, False], ids=["in-a-parse", "idle"])
def test_processes_end_with_a_parent_that_is_killed(busy: bool, tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import asyncio, sys
        from streams.sandbox import ParsePool
        from streams.settings import ParserSettings

        async def main():
            parsers = ParsePool(ParserSettings(processes=1, timeout_seconds=600), parser="hostile_parser:parse")
            print((await parsers.parse("pid", "text/plain")).text, flush=True)
            await (parsers.parse("loop", "text/plain") if sys.argv[1] == "True" else asyncio.Event().wait())

        asyncio.run(main())
    """)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    with subprocess.Popen([sys.executable, "-c", script, str(busy)], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        child, its_parent = map(int, parent.stdout.readline().split())
        assert its_parent == parent.pid
        assert not gone(child)
        parent.kill()
    deadline = time.monotonic() + 10
    while not gone(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gone(child)


async def test_the_real_parsers_answer_through_the_pool() -> None:
    async with pool(parser="chunking.parsers:parse_document") as parsers:
        got = await parsers.parse("# 标题\n\n一段话。\n", "text/markdown", language="zh")
        assert [block.kind for block in got.blocks] == ["heading", "paragraph"]
        with pytest.raises(PoisonRecord) as caught:
            await parsers.parse("x", "application/x-unheard-of")
        assert caught.value.facts["error"] == "UnsupportedMediaType"
