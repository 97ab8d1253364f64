"""Where the sample site lies: beside the packages in a checkout, or below the current folder."""

from __future__ import annotations

from pathlib import Path

import streams
from streams.errors import NotPrepared


def sample_site() -> Path:
    """Return the folder of the sample site. NotPrepared where it is not there."""
    for folder in (Path(streams.__file__).resolve().parent.parent / "deploy" / "sample-site", Path("deploy/sample-site")):
        if folder.is_dir():
            return folder
    raise NotPrepared("the sample site is not here: run this command in a checkout of docdelta")
