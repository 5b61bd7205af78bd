"""The known names that somebody who wrote an unknown one probably meant."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

#: How alike two names are at least, from 0 to 1 as `difflib` measures it: `quick` and `quickstart` are, `vision` and
#: `session` aren't. A name that was hardly meant helps nobody.
_ALIKE = 0.65
#: A longer name isn't misspelt. It is cut, because it may be of any length.
_LONGEST = 100
#: Names that people use for a field whose own name isn't near, in small letters: what is known of these is meant.
_ALSO_CALLED = {
    name: ("schedulerPolicy", "basicPolicy") for name in ("policy", "podpolicy", "placementpolicy", "schedulingpolicy")
}
#: Digits that are read as letters, or typed for them: in a short name, one of these is much of it.
_READ_AS = str.maketrans("10", "lo")


def near_names(
    name: str, known: Iterable[str], *, most: int = 1, alike: float = _ALIKE, digits: bool = False
) -> list[str]:
    """The known names that are like this one whatever the case of their letters, the nearest first; at most `most`.
    With `digits`, a 1 is an l and a 0 an o: for names that people made up, not for those of resources and fields."""
    read_as = _READ_AS if digits else {}
    folded: dict[str, str] = {}
    for one in sorted(known):
        folded.setdefault(one.casefold().translate(read_as), one)
    asked = name[:_LONGEST].casefold().translate(read_as)
    close = [folded[of] for of in get_close_matches(asked, folded, n=most, cutoff=alike)]
    called = [one for one in _ALSO_CALLED.get(asked, ()) if one in folded.values()]
    return [*called, *(one for one in close if one not in called)][:most]


def did_you_mean(close: Sequence[str], otherwise: str = "") -> str:
    """A hint with similar names, or `otherwise` if there are none."""
    return f"did you mean {' or '.join(close)}?" if close else otherwise
