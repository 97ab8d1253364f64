"""A policy by file name or by the name of one that comes with docdelta (``deploy/policies``)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import streams
from chunking.policy import ChunkPolicy, PolicyError, load_policy
from streams.errors import UsageError
from streams.words import unreadable

DEFAULT_POLICY = "default"


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A checked policy with its text as it was given and where it came from."""

    policy: ChunkPolicy
    text: str
    source: str


def policy_folders() -> list[Path]:
    """Return the folders that hold policies to start from: beside the package in a checkout, and below the current folder."""
    return [Path(streams.__file__).resolve().parent.parent / "deploy" / "policies", Path("deploy/policies")]


def packaged_policies() -> dict[str, Path]:
    """Return the policies that come with docdelta, by name."""
    return {path.stem: path for folder in reversed(policy_folders()) for path in sorted(folder.glob("*.yaml"))}


def read_policy(name: str) -> NamedPolicy:
    """Return the policy in a file or of a name. Raises UsageError with file, line and field."""
    path = Path(name)
    if not path.is_file():
        known = packaged_policies()
        if name not in known:
            names = ", ".join(sorted(known)) or "none found"
            raise UsageError(f"policy {name}: no such file, and none of the policies that come with docdelta ({names})")
        path = known[name]
    try:
        text = path.read_text(encoding="utf-8-sig")
        return NamedPolicy(load_policy(text, str(path)), text, str(path))
    except PolicyError as error:
        raise UsageError(str(error)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"policy {path} can't be read: {unreadable(error)}") from error
