"""row_sentence(): a table row read out with its header names, 区域：华东；预计时效：两天。"""

from __future__ import annotations

import re

from chunking.document import Block

_HAN = re.compile("[\u3400-\u9fff]")


def row_sentence(names: tuple[str, ...], row: Block) -> str:
    """Return the row as one sentence: ``name：cell；…。`` in Chinese, ``name: cell; ….`` otherwise. Blank cells are left out."""
    cells = [(names[index] if index < len(names) else "", cell) for index, cell in enumerate(row.cells)]
    pairs = [(" ".join(name.split()), " ".join(cell.split())) for name, cell in cells]
    pairs = [pair for position, pair in enumerate(pairs) if pair[1] and pair not in pairs[:position]]
    chinese = any(_HAN.search(name + cell) for name, cell in pairs)
    colon, joint, stop = ("：", "；", "。") if chinese else (": ", "; ", ".")
    return joint.join(f"{name}{colon}{cell}" if name else cell for name, cell in pairs) + (stop if pairs else "")
