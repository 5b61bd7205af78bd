"""An invented next release: the present code, with one kind of event in a new version and another layout of snapshots.

It shows what a change of the format needs: the old struct with its tag, a function in `UPCASTS`, and a bridge. Nothing
is released yet, so there is no real release to run beside the present one.
"""

import shutil
from pathlib import Path

from arranger.projections.layouts import LAYOUT
from tests.servers import REPOSITORY

#: The kind isn't a part of any snapshot: else the bridge would have to convert it there, too.
_TAG = 'tag="CycleTaken.1"'
_NO_BRIDGES = "_BRIDGES: dict[int, Callable[[Parts], Parts]] = {}"
_UPCASTS = "        StageDecidedV1: stage_decided,\n"
_EARLIER = """
from arranger.events.kinds import CycleTaken


class CycleTakenV1(CycleTaken, frozen=True, array_like=True, gc=False, tag="CycleTaken.1"):
    pass  # the fields are the same


def cycle_taken(old: CycleTakenV1) -> CycleTaken:
    return CycleTaken(*[getattr(old, name) for name in old.__struct_fields__])
"""


def next_release(folder: Path, present: Path = REPOSITORY) -> Path:
    """A checkout of that release's code, made in a folder from a checkout of the present one."""
    code = folder / "arranger"
    shutil.copytree(present / "arranger", code, ignore=shutil.ignore_patterns("__pycache__", "static"))
    _change(code / "events" / "kinds.py", _TAG, 'tag="CycleTaken.2"')
    _change(code / "events" / "earlier.py", "\n_REASONS = ", f"{_EARLIER}\n\n_REASONS = ")
    _change(code / "events" / "earlier.py", _UPCASTS, f"{_UPCASTS}        CycleTakenV1: cycle_taken,\n")
    layouts = code / "projections" / "layouts.py"
    _change(layouts, f"\nLAYOUT = {LAYOUT}\n", f"\nLAYOUT = {LAYOUT + 1}\n")
    bridge = f"{{{LAYOUT}: lambda parts: [msgspec.Raw(msgspec.msgpack.encode({LAYOUT + 1})), *parts[1:]]}}"
    _change(layouts, _NO_BRIDGES, _NO_BRIDGES.replace("{}", bridge))
    return folder


def _change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, f"{file} has {text.count(old)} times {old!r}"
    file.write_text(text.replace(old, new))
