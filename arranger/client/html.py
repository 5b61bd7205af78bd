"""HTML for notebooks: facts and tables in the colours of the page around them, so it is right in light and in dark.

All texts are escaped, also the control characters that no reader should see.
"""

import html
from collections.abc import Iterable, Sequence

from arranger.model.text import one_line

#: How many rows of a table are shown.
SHOWN = 30
_LINE = "1px solid color-mix(in srgb, currentColor 25%, transparent)"
_CELL = f"text-align:left;vertical-align:top;padding:2px 10px 2px 0;border:0;border-bottom:{_LINE};color:inherit"
_PRE = "margin:.3em 0;overflow:auto;max-height:45em;white-space:pre;color:inherit;background:none;line-height:1.3"
_TABLE = "border-collapse:collapse;background:none;color:inherit"


def block(*parts: str) -> str:
    return f'<div style="color:inherit;background:none;max-width:70em">{"".join(parts)}</div>'


def lines(text: str) -> str:
    """Text as it is, in lines whose columns stand under each other."""
    shown = "\n".join(map(_safe, text.split("\n")))
    return f'<pre style="{_PRE}">{shown}</pre>'


def sentence(text: str, *, strong: bool = False) -> str:
    return f'<p style="margin:.3em 0;font-weight:{"bold" if strong else "normal"}">{_safe(text)}</p>'


def facts(rows: Iterable[tuple[str, object]]) -> str:
    """A name and a text in each row."""
    lines = "".join(
        f'<tr style="background:none"><th scope="row" style="{_CELL};font-weight:normal;opacity:.75">{_safe(name)}</th>'
        f'<td style="{_CELL};white-space:normal">{_safe(text)}</td></tr>'
        for name, text in rows
    )
    return f'<table style="{_TABLE}"><tbody>{lines}</tbody></table>'


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str = "no rows") -> str:
    """The first rows under their columns' names, and how many there are."""
    if not rows:
        return sentence(empty)
    head = "".join(f'<th scope="col" style="{_CELL}">{_safe(name)}</th>' for name in columns)
    lines = "".join(
        f'<tr style="background:none">{"".join(f"""<td style="{_CELL}">{_safe(cell)}</td>""" for cell in row)}</tr>'
        for row in rows[:SHOWN]
    )
    more = sentence(f"and {len(rows) - SHOWN} more rows") if len(rows) > SHOWN else ""
    return (
        f'<div style="overflow-x:auto"><table style="{_TABLE}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>{more}"
    )


def _safe(text: object) -> str:
    return html.escape(one_line("-" if text is None else str(text)))
