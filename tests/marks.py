"""Files of which commands write the parts between marks."""

import re
from collections.abc import Callable, Iterable

_END = "# End of what is generated."


def made_again(text: str, mark: re.Pattern[str], lines: Callable[[re.Match[str]], Iterable[str]]) -> str:
    """A text with the lines between its marks made again. The first group of a mark is its indentation."""
    made: list[str] = []
    skipping = False
    for line in text.splitlines():
        found = mark.match(line)
        skipping = skipping and line.strip() != _END
        if not skipping:
            made.append(line)
        if found is not None:
            made += [f"{found[1]}{part}".rstrip() for part in lines(found)]
            skipping = True
    return "\n".join(made) + "\n"
