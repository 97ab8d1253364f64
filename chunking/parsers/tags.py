"""HTML elements by what they do to text."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NEVER_READ = _words(
    "script style nav noscript template svg head iframe object embed canvas audio video map select textarea datalist "
    "annotation annotation-xml rt rp -comment"
)
HEADINGS = _words("h1 h2 h3 h4 h5 h6")
LISTS = _words("ul ol menu dl")
ITEMS = _words("li dt dd")
CELLS = _words("td th")
BREAKING = (
    _words(
        "p div section article main aside header footer address form fieldset legend figure figcaption hr details summary center "
        "body html pre blockquote table caption thead tbody tfoot tr td th hgroup search dialog optgroup option"
    )
    | HEADINGS
    | LISTS
    | ITEMS
)
"""Elements that begin and end a block."""
CONTENT = _words("main article section blockquote li")
"""Elements within which a header or footer belongs to the text."""
CLOSED_BY_PARSER = _words(
    "p li dt dd td th tr thead tbody tfoot option optgroup rt rp br hr img input meta link area base col embed source track wbr "
    "body html head"
)
"""Elements that never stay open, or only once: they make no tree deep."""
FURNITURE_ROLES = _words("navigation banner contentinfo search menubar")
