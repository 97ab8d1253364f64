"""The documents of every bench: made pages of a few sections, equal on every machine. Standard library only: peers read it too."""

from __future__ import annotations

import random

_SYLLABLES = (
    "ba",
    "ce",
    "di",
    "fo",
    "gu",
    "ha",
    "je",
    "ki",
    "lo",
    "mu",
    "na",
    "pe",
    "qui",
    "ro",
    "su",
    "ta",
    "ve",
    "wi",
    "xo",
    "yu",
)
SECTION_CHARACTERS = 950


def page(number: int, characters: int = 4096) -> str:
    """Return a Markdown page of about `characters` characters: a title, then sections of some 950 characters each."""
    dice = random.Random(f"page {number}")
    words = ["".join(dice.choices(_SYLLABLES, k=dice.choice((1, 2, 2, 3)))) for _ in range(400)]
    parts = [f"# Page {number}\n"]
    size, section = len(parts[0]), 0
    while size < characters:
        section += 1
        room = min(SECTION_CHARACTERS, characters - size)
        body = f"\n## Part {section} of page {number}\n"
        while len(body) < room:
            sentences = [" ".join(dice.choices(words, k=dice.randint(6, 14))).capitalize() + "." for _ in range(5)]
            body += "\n" + " ".join(sentences) + "\n"
        parts.append(body)
        size += len(body)
    return "".join(parts)


def edited(text: str, edit: int) -> str:
    """Return a page with one word more, in the first sentence of its second section."""
    head, mark, tail = text.partition("\n## Part 2")
    if not mark:
        return text + f"\nEdit {edit}.\n"
    heading, blank, body = tail.partition("\n\n")
    return f"{head}{mark}{heading}{blank}Edit {edit} {body}"


def pages(count: int, characters: int = 4096) -> dict[str, str]:
    """Return pages by name."""
    return {f"d{number:06}": page(number, characters) for number in range(count)}
