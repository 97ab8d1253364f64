"""Writes the JSON Schema of every record to ``schemas/json``: ``python -m schemas.export [--check]``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from schemas.codec import RECORDS, schema_name
from schemas.record import Record

FOLDER = Path(__file__).parent / "json"


def json_schema(record: type[Record]) -> str:
    """Return the JSON Schema text of a record as it stands on the wire, `schema` field included."""
    document = record.model_json_schema()
    document["properties"] = {"schema": {"const": schema_name(record)}, **document["properties"]}
    document["required"] = ["schema", *document.get("required", [])]
    document["$id"] = schema_name(record)
    return json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def main(arguments: list[str]) -> int:
    """Write the schemas; with ``--check`` only compare, and return 1 when one differs."""
    differing = []
    for name, record in RECORDS.items():
        path = FOLDER / f"{name}.v{record.record_version}.json"
        text = json_schema(record)
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            differing.append(path.name)
    if differing:
        print(f"differs from the models: {', '.join(differing)}; run python -m schemas.export", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
