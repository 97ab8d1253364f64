"""A worker with a thread that hangs in the kernel stops when it is told to, and loses nothing."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from schemas.document_change import Content
from streams.settings import KafkaSettings
from tests.stack.rig import Rig, a_page, rig, upsert

WORKER = """
import sys
from pathlib import Path
from streams.content_refs import ContentRefs

def read(self, name, most):  # as on a file system that is dead: no open returns
    Path(name + ".begun").touch()
    return open(name, "rb").read()

ContentRefs._from_folder = read
from streams.cli.main import run
sys.argv = ["docdelta", "worker"]
run()
"""


async def test_a_worker_whose_thread_hangs_in_the_kernel_leaves_and_its_record_comes_again(
    tansu_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    async with rig(tansu_settings, tmp_path, fresh) as stack:
        pipe = tmp_path / "page.md"
        os.mkfifo(pipe)
        _start_hanging(stack)
        page = upsert("d", 1, a_page("d"))
        await stack.put(page)
        content = Content(ref=str(pipe), sha256=hashlib.sha256(a_page("far").encode()).hexdigest())
        referred = upsert("far", 1, a_page("far")).model_copy(update={"content": content})
        await stack.send(referred)
        while not pipe.with_name("page.md.begun").exists():
            assert stack.workers["hanging"].poll() is None, stack.log("hanging")
            await asyncio.sleep(0.05)
        code = await stack.stop("hanging")  # without the exit it would be for ever
        assert code == 0, stack.log("hanging")
        assert "threads hang" in stack.log("hanging")

        pipe.unlink()
        pipe.write_text(a_page("far"), encoding="utf-8")
        stack.start(DOCDELTA_PARSER__REF_ROOTS=f'["{tmp_path}"]')
        outcomes = await stack.outcomes([referred.event_id])
        assert outcomes[referred.event_id].outcome == "indexed"
        await stack.check([page, upsert("far", 1, a_page("far"))])


def _start_hanging(stack: Rig) -> None:
    """Start a worker whose reads of files hang, with the state folder of worker `one`."""
    own = {"DOCDELTA_PARSER__REF_ROOTS": f'["{stack.folder}"]', "DOCDELTA_WORKER__STATE_DIR": str(stack.folder / "state-one")}
    with (stack.folder / "hanging.log").open("ab") as log:
        stack.workers["hanging"] = subprocess.Popen(
            [sys.executable, "-c", WORKER], env={**stack.environment, **own}, cwd=stack.folder, stdout=log, stderr=log
        )
