"""`docdelta demo`: a sample site travels into the index, then an editor's session, with the figures of every edit."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from streams.cli.options import invocation
from streams.cli.policies import read_policy
from streams.connectors.directory import DirectoryConnector
from streams.embedded.sample_site import sample_site
from streams.errors import UsageError
from streams.settings import load_settings


def demo(
    context: typer.Context,
    keep: Annotated[Path | None, typer.Option("--keep", help="Work in this folder and keep it.", show_default=False)] = None,
) -> int:
    """Watch a bilingual sample site travel through Kafka into the index, edit it and see what each edit costs; roll a policy out.

    The second version of the policy is built beside the first, proven by golden questions, switched to, taken back, switched to.
    Starts everything on this machine and stops it again; takes a minute or two. Exit code 1 when an edit did not cost what it must,
    or the rollout did not go through.

    Example:  docdelta demo --keep my-demo
    """
    from streams.cli.demo_session import POLICY, TENANT, DemoSession  # brings Faust, the broker and the model with it
    from streams.embedded.sample_edits import load_edits
    from streams.embedded.stack import EmbeddedStack
    from streams.logs import configure_logs

    settings = load_settings(invocation(context).config)
    configure_logs("warning" if settings.log_level == "info" else settings.log_level, settings.log_format)
    folder = keep or Path(tempfile.mkdtemp(prefix="docdelta-demo-"))
    site = folder / "site"
    if site.exists():
        raise UsageError(f"--keep {folder}: it holds a site already; name a new folder")
    try:
        shutil.copytree(sample_site(), site)
        policy = read_policy(POLICY)
        stack = EmbeddedStack(folder / "stack", policy.policy, policy.text, settings)
        connector = DirectoryConnector(site, TENANT, folder / "sync-state.json")
        return asyncio.run(DemoSession(stack, connector, load_edits(site)).run())
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
