"""`arranger serve` over TLS: files that can't be used are refused, and renewed ones are used without a restart."""

import json
import re
import shutil
import ssl
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from arranger.cli.main import main
from arranger.errors import UsageError
from arranger.web.certificate import Certificate
from tests.servers import Certificates, openssl
from tests.unit.test_web_api import HISTORY
from tests.unit.test_web_rights import Stepped


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return made_in(tmp_path / "made")


def made_in(folder: Path, *, days: int = 30) -> Certificates:
    folder.mkdir()
    return Certificates(folder, days=days)


def certificate(of: Certificates, clock: Stepped | None = None) -> Certificate:
    return Certificate(str(of.certificate_file), str(of.key_file), clock or Stepped())


def shown(by: Certificate, authority: Path) -> bytes:
    """The certificate that a handshake shows to a client that trusts an authority. Raises `ssl.SSLError`."""
    client = ssl.create_default_context(cafile=str(authority))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    other = by.context.wrap_bio(to_server, to_client, server_side=True)
    done: set[ssl.SSLObject] = set()
    while len(done) < 2:
        for side in (one, other):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
    found = one.getpeercert(binary_form=True)
    assert found
    return found


def test_renewed_files_are_shown_to_new_connections(made: Certificates, tmp_path: Path) -> None:
    clock = Stepped()
    served = certificate(made, clock)
    first = shown(served, made.ca_file)
    newer = made_in(tmp_path / "newer")
    shutil.copy(newer.key_file, made.key_file)  # half of the renewal: they don't belong together
    clock.at_s = 10
    assert shown(served, made.ca_file) == first
    shutil.copy(newer.certificate_file, made.certificate_file)
    assert shown(served, made.ca_file) == first, "the files aren't looked at in each handshake"
    clock.at_s = 20
    assert shown(served, newer.ca_file) != first
    with pytest.raises(ssl.SSLCertVerificationError):
        shown(served, made.ca_file)


@pytest.mark.parametrize("days", [3, -1], ids=["soon", "expired"])
def test_a_certificate_that_expires_soon_is_warned_of_once_a_day(
    days: int, made: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    old, clock = made_in(tmp_path / "old", days=days), Stepped()
    served = certificate(old, clock)

    def warnings(at_s: float) -> int:
        """How often it was warned of by then."""
        clock.at_s = at_s
        with suppress(ssl.SSLCertVerificationError):
            shown(served, old.ca_file)
        return caplog.messages.count("the certificate expires soon")

    day_s = 86_400
    assert [warnings(at_s) for at_s in (10, 20, day_s, day_s + 10, day_s + 20)] == [1, 1, 1, 2, 2]
    for name in ("certificate_file", "key_file"):
        shutil.copy(getattr(made, name), getattr(old, name))
    assert warnings(5 * day_s) == 2, "it was renewed"
    assert "the certificate was read again" in caplog.messages


def test_files_that_go_leave_the_last_certificate(made: Certificates) -> None:
    clock = Stepped()
    served = certificate(made, clock)
    first = shown(served, made.ca_file)
    made.key_file.unlink()
    clock.at_s = 10
    assert shown(served, made.ca_file) == first


def test_files_that_cant_be_used_are_refused_by_name(made: Certificates, tmp_path: Path) -> None:
    other = made_in(tmp_path / "other")
    with pytest.raises(UsageError, match=r"--tls-cert-file .* and --tls-private-key-file .* KEY_VALUES_MISMATCH"):
        Certificate(str(made.certificate_file), str(other.key_file), Stepped())
    with pytest.raises(UsageError, match=r"--tls-private-key-file: can't read .*none\.key: No such file"):
        Certificate(str(made.certificate_file), str(tmp_path / "none.key"), Stepped())
    secret = tmp_path / "secret.key"
    openssl("pkey", "-in", str(made.key_file), "-aes256", "-passout", "pass:word", "-out", str(secret))
    with pytest.raises(UsageError) as refused:
        Certificate(str(made.certificate_file), str(secret), Stepped())
    assert "the key has no passphrase" in refused.value.hint
    words = made.ca_file.parent / "words.crt"
    words.write_text("not PEM")
    with pytest.raises(UsageError, match="can't be used"):
        Certificate(str(words), str(made.key_file), Stepped())


def test_one_file_without_the_other_is_refused(made: Certificates, capsys: pytest.CaptureFixture[str]) -> None:
    for option, file, missing in (
        ("--tls-cert-file", made.certificate_file, "--tls-private-key-file"),
        ("--tls-private-key-file", made.key_file, "--tls-cert-file"),
    ):
        assert main(["serve", f"--log={HISTORY}", option, str(file)], prog_name="arranger") == 2
        assert f"{missing} is missing" in capsys.readouterr().err


def test_the_command_serves_https_alone(made: Certificates) -> None:
    files = (f"--tls-cert-file={made.certificate_file}", f"--tls-private-key-file={made.key_file}")
    command = [sys.executable, "-m", "arranger.cli.main", "serve", f"--log={HISTORY}", "--port=0", *files]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"https://\S+", process.stdout.readline())
            assert found
            trusted = ssl.create_default_context(cafile=str(made.ca_file))
            with urllib.request.urlopen(f"{found[0]}api/openapi.json", context=trusted, timeout=30) as answer:
                assert json.load(answer)["openapi"]
            with pytest.raises(OSError, match="certificate verify failed"):
                urllib.request.urlopen(found[0], timeout=30)
            with pytest.raises(OSError, match=r"."):
                urllib.request.urlopen(found[0].replace("https:", "http:"), timeout=30)
        finally:
            process.terminate()
        assert process.wait(30) == 0
