"""A test that ends its process is one failure of the test run, which goes on to its end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

CONFTEST = "from tests.conftest import pytest_xdist_make_scheduler as pytest_xdist_make_scheduler\n"
ENDS = "import os\ndef test_ends_its_process():\n    os._exit(3)\n"
PASSES = "def test_passes():\n    pass\n"


@pytest.mark.parametrize("after", [0, 1, 3])
def test_the_others_of_its_file_and_of_other_files_are_run_once(tmp_path: Path, after: int) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_a.py").write_text(PASSES)
    (tmp_path / "test_b.py").write_text(
        PASSES + ENDS + "".join(f"def test_after_{number}():\n    pass\n" for number in range(after))
    )
    command = (sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider", str(tmp_path))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert f"1 failed, {2 + after} passed" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("replacing crashed worker") == 1 and done.returncode == 1
