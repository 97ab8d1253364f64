"""One run of `docdelta demo`: the sample site arrives, is edited, and a policy is rolled out. See `streams/cli/demo.py`."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from streams.batches.site import site_of
from streams.cli.change_table import ChangeTable
from streams.cli.evaluate import tell
from streams.cli.exits import FAILED, OK
from streams.cli.output import note, progress_bar, say
from streams.cli.policies import read_policy
from streams.cli.rollback import roll_back
from streams.cli.rollout import Wish, roll_out
from streams.cli.switch import switch_to
from streams.connectors.directory import DirectoryConnector
from streams.connectors.sender import KafkaSender
from streams.embedded.sample_edits import Edit
from streams.embedded.stack import EmbeddedStack, ReceiptBook
from streams.errors import UsageError
from streams.reading.search import Question, search
from streams.words import counted

TENANT = "demo"
POLICY = "default"
NEXT_POLICY = "default-v2"
GOLDEN = "golden.yaml"
QUESTIONS = (
    "出差住宿费最多能报销多少？",
    "How do I reset the gateway to factory settings?",
    "数据泄露要在多长时间内上报？",
    "Who repairs the clock in the story?",
    "How long may I work from abroad?",
)


@dataclass(slots=True)
class DemoSession:
    """One run of the demo."""

    stack: EmbeddedStack
    connector: DirectoryConnector
    edits: tuple[Edit, ...]

    async def run(self) -> int:
        """Return the exit code."""
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
        note("starting broker, model and worker ...")
        table = ChangeTable()
        async with self.stack as stack, ReceiptBook(stack, table.add) as book:
            sender = await asyncio.to_thread(KafkaSender, stack.settings.kafka)
            table.note("The site arrives: every chunk is embedded once.")
            await self._sync(sender, book)
            built = (table.totals(), table.embedded, await stack.index.count(stack.batch.collection))
            wrong = []
            for edit in self.edits:
                before = table.embedded
                table.note(f"{edit.title}  (must cost {counted(edit.embeddings, 'embedding')})")
                edit.apply(self.connector.root)
                if not await self._sync(sender, book):
                    table.note("Nothing is sent: the file holds what was sent before.")
                if table.embedded - before != edit.embeddings:
                    wrong.append(f"{edit.title}: {counted(table.embedded - before, 'embedding')} instead of {edit.embeddings}")
            table.note("The whole site is sent once more, unchanged.")
            before = table.embedded
            await self._sync(sender, book, everything=True)
            if table.embedded != before:
                wrong.append(f"re-sync of an unchanged site: {counted(table.embedded - before, 'embedding')} instead of 0")
            count = await stack.index.count(stack.batch.collection)
            wrong += await self._roll_out()
            await self._search()
        say("")
        after = f"After {counted(len(self.edits), 'edit')}: {counted(count, 'chunk')}, {table.embedded - built[1]} embedded anew."
        say(f"Built: {built[0]}. {after}")
        for fault in wrong:
            say(f"WRONG: {fault}")
        say("Next: `docdelta dev YOUR-FOLDER` keeps a folder of yours in sync; `docdelta --help` shows the rest.")
        return FAILED if wrong else OK

    async def _sync(self, sender: KafkaSender, book: ReceiptBook, everything: bool = False) -> int:
        """Send what changed and wait until every event has its outcome. Returns how many were sent."""
        plan = await asyncio.to_thread(lambda: self.connector.plan(everything=everything, delete=True))
        report = await asyncio.to_thread(self.connector.execute, plan, sender)
        refused = [*plan.refused, *report.failed]
        if refused or plan.held:
            raise UsageError("; ".join(f"{each.document_id}: {each.reason}" for each in refused) or plan.held_reason)
        with progress_bar("indexing", len(report.confirmed)) as bar:
            for change in report.confirmed:
                await book.of([change.event_id])
                bar.advance()
        return len(report.confirmed)

    async def _search(self) -> None:
        say("")
        say("Searches:")
        embedder = self.stack.worker.embedder(self.stack.batch)  # both versions of the policy name the same model
        for question in QUESTIONS:
            hits = await search(self.stack.index, lambda _: embedder, self.stack.batch.alias, Question(TENANT, question, limit=1))
            say(f"  {question}")
            for hit in hits:
                text = " ".join(hit.text.split())
                say(f"    {hit.score:.2f}  {hit.document_id}  {' > '.join(hit.heading_path)}")
                say(f"          {text[:96]}{'…' if len(text) > 96 else ''}")

    async def _roll_out(self) -> list[str]:
        """Roll the second version of the policy out, back, and out again. Returns what went wrong."""
        say("")
        site = site_of(self.stack.settings, self.stack.index)
        golden, chosen = self.connector.root / GOLDEN, read_policy(NEXT_POLICY)
        first, second = self.stack.batch.batch, chosen.policy.batch_id
        wrong = []
        steps: tuple[tuple[str, Callable[[], Awaitable[int]], str], ...] = (
            (f"rollout {NEXT_POLICY} --golden {GOLDEN} --auto", lambda: roll_out(site, chosen, Wish(golden, auto=True)), second),
            ("rollback", lambda: roll_back(site), first),
            (f"switch {second} --golden {GOLDEN}", lambda: switch_to(site, second, golden), second),
        )
        for words, run, target in steps:
            say(f"$ docdelta {words}")
            code, sees = await run(), await self.stack.index.alias_target(self.stack.batch.alias)
            if code != OK or sees != target:
                wrong.append(f"docdelta {words} ended with {code}, readers see {sees}")
                return wrong
            say("")
        await self._compare(golden, (first, second))
        return wrong

    async def _compare(self, golden: Path, batches: tuple[str, ...]) -> None:
        from streams.evaluation.golden import load_golden
        from streams.evaluation.run import evaluate

        say(f"$ docdelta evaluate --golden {GOLDEN} " + " ".join(f"--batch {batch}" for batch in batches))
        questions, embedder = load_golden(golden), self.stack.worker.embedder(self.stack.batch)
        tell(
            replace(questions, source=GOLDEN), [await evaluate(self.stack.index, each, embedder, questions) for each in batches], 0
        )
