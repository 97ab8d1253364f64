"""Tables with merged cells: a grid in which every row is complete. Hostile spans are bounded; cells are never lost."""

from __future__ import annotations

from dataclasses import dataclass, field

_MOST_COLUMNS = 512
_MOST_CELLS = 200_000
_MOST_REPEATED = 2_000_000
_LONGEST_REPEATED = 200


@dataclass(slots=True)
class Cell:
    """One cell as it was written. rowspan 0 means: down to the last row."""

    text: str
    colspan: int = 1
    rowspan: int = 1
    is_header: bool = False


@dataclass(slots=True)
class Row:
    """One row as it was written; `in_head` where it stands in the table's head."""

    cells: list[Cell] = field(default_factory=list)
    in_head: bool = False


def resolve(rows: list[Row]) -> list[tuple[str, ...]]:
    """Return the rows with merged cells repeated in every row and column they cover, all of one width.

    Repeats stop at 512 columns, 200,000 cells and two million characters, and a text above 200 characters is not repeated;
    covered positions are blank then.
    """
    grid: list[tuple[str, ...]] = []
    hanging: dict[int, tuple[int, str]] = {}
    cells_left, characters_left = _MOST_CELLS, _MOST_REPEATED
    for number, row in enumerate(rows):
        line: dict[int, str] = {}
        for column, (last, text) in list(hanging.items()):
            if cells_left > 0 and characters_left >= len(text):
                line[column] = text
                cells_left -= 1
                characters_left -= len(text)
            if last <= number:
                del hanging[column]
        covered = set(line)
        column = 0
        for cell in row.cells:
            while column in covered:
                column += 1
            line[column] = cell.text
            repeated = cell.text if len(cell.text) <= _LONGEST_REPEATED else ""
            width = max(1, min(cell.colspan, _MOST_COLUMNS - column))
            last_row = number + cell.rowspan - 1 if cell.rowspan > 0 else len(rows) - 1
            for offset in range(width):
                if offset and (column + offset in covered or cells_left <= 0 or characters_left < len(repeated)):
                    break
                if offset:
                    line[column + offset] = repeated
                    cells_left -= 1
                    characters_left -= len(repeated)
                if last_row > number and column + offset < _MOST_COLUMNS:
                    hanging[column + offset] = (last_row, repeated)
            column += width
        grid.append(tuple(line.get(place, "") for place in range(max(line, default=-1) + 1)))
    if sum(map(len, grid)) == 0:
        return grid
    width = max(map(len, grid))
    if width * len(grid) > 4 * _MOST_CELLS:
        return grid
    return [line + ("",) * (width - len(line)) for line in grid]


def header_rows(rows: list[Row]) -> int:
    """Return how many leading rows are the table's header: those in its head, else those made of header cells only."""
    count = 0
    while count < len(rows) and rows[count].in_head:
        count += 1
    if count:
        return count
    while count < len(rows) and rows[count].cells and all(cell.is_header for cell in rows[count].cells):
        count += 1
    return count if count < len(rows) else min(count, 1)


def column_names(header: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Return one name per column: the different words of its header cells from top to bottom."""
    if not header:
        return ()
    width = max(map(len, header))
    names = []
    for column in range(width):
        words = dict.fromkeys(line[column] for line in header if column < len(line) and line[column])
        names.append(" ".join(words))
    return tuple(names)
