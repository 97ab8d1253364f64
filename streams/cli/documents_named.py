"""How commands of repair name documents: TENANT/DOCUMENT, or DOCUMENT beside --tenant or a running `docdelta dev`."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime, timedelta

from streams.cli.options import Invocation
from streams.cli.sending import checked
from streams.errors import UsageError
from streams.settings import load_settings

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def document_named(argument: str, tenant: str, invocation: Invocation) -> tuple[str, str]:
    """Return (tenant, document) of a command's argument.

    With `tenant` the argument is the document's id. Beside a running `docdelta dev` it is too, unless it begins with its tenant
    and a slash. Otherwise it is taken apart at the first slash. UsageError: no tenant told, or ids that can't be.
    """
    from streams.embedded.dev_file import dev_file_in_use

    running = None if tenant else dev_file_in_use(load_settings(invocation.config))
    if tenant or (running is not None and running.tenant and not argument.startswith(f"{running.tenant}/")):
        owner, document = tenant or (running.tenant if running else ""), argument
    else:
        owner, slash, document = argument.partition("/")
        if not slash:
            raise UsageError(f"which tenant? write TENANT/{argument}, or give --tenant NAME")
    checked("--tenant", owner)
    checked("--id", document)
    return owner, document


def meant_otherwise(command: str, argument: str, named: tuple[str, str]) -> str:
    """Return how to say it where an argument was read as an id beside `docdelta dev`, and may have been meant as TENANT/DOCUMENT.

    `named` is what `document_named` made of an argument without --tenant. Nothing where it was taken apart, or has no slash.
    """
    tenant, _, document = argument.partition("/")
    if named[1] != argument or not document:
        return ""
    meant = f"{command} {shlex.quote(document)} --tenant {shlex.quote(tenant)}"
    return f"beside docdelta dev an id belongs to its tenant, {named[0]}; if {tenant} is the tenant: {meant}"


def duration(text: str, option: str) -> timedelta:
    """Return a length of time written as 90d, 12h, 30m or 45s. UsageError naming the option."""
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    if found is None:
        raise UsageError(f"{option} {text!r}: write a number and s, m, h or d, such as 90d")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def moment(text: str, option: str, now: datetime | None = None) -> datetime:
    """Return a moment written as a length of time before now (2h, 3d) or in ISO 8601. Without a zone it is UTC."""
    if re.fullmatch(r"[0-9]+[smhd]", text):
        return (now or datetime.now(UTC)) - duration(text, option)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{option} {text!r}: write 2h, 3d, or a date such as 2026-11-30T08:00:00Z") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def plain(text: str) -> str:
    """Return text of unknown origin fit for a terminal: control characters written out."""
    return "".join(character if character.isprintable() else character.encode("unicode_escape").decode() for character in text)
