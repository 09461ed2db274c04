"""Certificates of the gateway's own: what can be served with, and what is said of the rest."""

from datetime import UTC, datetime, timedelta

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from gateway.config.certificates import CertificateFileError, present_files, read_expiry


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def write(authority, tmp_path):
    """Write a pair of files whose certificate is valid for so long; returns their paths."""

    def write(left=timedelta(days=90), name="pair"):
        issued = authority.issue_cert("localhost", not_after=datetime.now(UTC) + left)
        cert, key = tmp_path / f"{name}.pem", tmp_path / f"{name}.key"
        issued.cert_chain_pems[0].write_to_path(cert)
        issued.private_key_pem.write_to_path(key)
        return cert, key

    return write


def section(cert, key):
    return f"[server]\ntls_cert_file = '{cert}'\ntls_key_file = '{key}'"


def test_a_pair_that_belongs_together(write, load):
    cert, key = write()
    assert present_files(str(cert), str(key), "1.3").minimum_version.name == "TLSv1_3"
    assert timedelta(days=89) < read_expiry(str(cert)) - datetime.now(UTC) < timedelta(days=90)
    loaded = load(section(cert, key))
    assert loaded.warnings == ()
    assert loaded.config.server.tls_min_version == "1.2"


@pytest.mark.parametrize("half", ["tls_cert_file", "tls_key_file"])
def test_one_without_the_other(write, problems, half):
    (finding,) = problems(f"server.{half} = '{write()[0]}'")
    assert finding.path == f"server.{half}"
    assert "is missing" in finding.message


def test_a_key_of_another_certificate(write, problems):
    (finding,) = problems(section(write()[0], write(name="other")[1]))
    assert "other.key: is not the key of the certificate in" in finding.message


def test_files_that_are_not_there_or_no_pem_are_named(write, problems, tmp_path):
    cert, key = write()
    rubbish = tmp_path / "rubbish"
    rubbish.write_text("rubbish")
    for pair, message in (
        ((cert, tmp_path / "none"), "none: No such file"),
        ((tmp_path / "none", key), "none: No such file"),
        ((cert, tmp_path), "Is a directory"),
        ((rubbish, key), "no certificate and key in PEM form"),
        ((cert, rubbish), "no certificate and key in PEM form"),
    ):
        (finding,) = problems(section(*pair))
        assert message in finding.message
    with pytest.raises(CertificateFileError, match="holds no certificate"):
        read_expiry(str(rubbish))


def test_a_key_with_a_passphrase_asks_nobody(write, problems):
    cert, key = write()
    private = load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"s3cret")))
    (finding,) = problems(section(cert, key))
    assert "needs a passphrase" in finding.message


@pytest.mark.parametrize(
    ("days", "message"), [(-1, "has expired"), (3.5, "expires in 3 days"), (13.5, "expires in 13 days"), (14.5, None)]
)
def test_a_certificate_that_ends_soon_is_a_warning(write, load, days, message):
    found = [str(finding) for finding in load(section(*write(timedelta(days=days)))).warnings]
    assert len(found) == (message is not None)
    assert all(message in line and "tls_cert_file" in line for line in found)
