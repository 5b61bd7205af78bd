"""The invented next release reads what the present one wrote: its log by an upcast, and its snapshots by a bridge."""

import subprocess
import sys
from pathlib import Path

import msgspec

from arranger.events.codec import encode_batch
from arranger.projections import snapshot
from tests.next_release import NEW_TAG, next_release
from tests.world import World

_READS = """
import sys
from pathlib import Path

from arranger.events.codec import decode_batch, encode_batch
from arranger.projections import snapshot

folder = Path(sys.argv[1])
(folder / "snapshot").write_bytes(snapshot.encode(snapshot.restore((folder / "snapshot").read_bytes())))
(folder / "batch").write_bytes(encode_batch(decode_batch((folder / "batch").read_bytes(), 1)))
"""


def test_the_next_release_reads_an_earlier_event_in_a_log_and_in_a_snapshot(tmp_path: Path) -> None:
    world = World()
    world.node("n1", cpu=8)
    world.job("ppo", workers=2, min_workers=2)
    world.settle()
    decided = next(entry for entry in world.entries if b"StageDecided.1" in encode_batch(entry.batch))
    written = {"snapshot": snapshot.encode(world.state), "batch": encode_batch(decided.batch)}
    for name, content in written.items():
        (tmp_path / name).write_bytes(content)
    code = next_release(tmp_path / "next")
    subprocess.run([sys.executable, "-c", _READS, tmp_path], cwd=code, check=True)

    for name, content in written.items():
        renamed = content.replace(b"StageDecided.1", NEW_TAG.encode())
        assert renamed != content
        first, *others = msgspec.msgpack.decode((tmp_path / name).read_bytes())
        before, *expected = msgspec.msgpack.decode(renamed)
        assert others == expected
        assert first == (before + 1 if name == "snapshot" else before)
