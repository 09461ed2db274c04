"""What is sealed opens for its owner alone, as what it was sealed as, under any of the keys."""

import stat

import pytest
from cryptography.fernet import Fernet
from hypothesis import given
from hypothesis import strategies as st

from gateway.ports import SealMismatch
from gateway.protocol.errors import Unavailable
from gateway.storage.sealing import FernetSealer, GivenKeys, OwnKeyFile

OLD, NEW = (Fernet.generate_key().decode() for _ in range(2))


def sealer(*keys):
    return FernetSealer(GivenKeys(keys))


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(["compaction", "message"]), st.binary())
def test_whatever_was_sealed_comes_back(principal, kind, plaintext):
    ours = sealer(NEW)
    token = ours.seal(principal, kind, plaintext)
    assert plaintext not in token.encode() or len(plaintext) < 8
    assert ours.unseal(principal, kind, token) == plaintext


@pytest.mark.checklist(712)
@pytest.mark.parametrize(
    ("principal", "kind"), [("bob", "compaction"), ("ada", "message"), ("", ""), ("ada\n", "compaction")]
)
def test_nobody_else_and_nothing_else(principal, kind):
    ours = sealer(NEW)
    with pytest.raises(SealMismatch):
        ours.unseal(principal, kind, ours.seal("ada", "compaction", b"note"))


def test_a_binding_cannot_be_forged_by_a_line_break():
    ours = sealer(NEW)
    with pytest.raises(SealMismatch):
        ours.unseal("ada", "compaction", ours.seal('a","compaction"]\n', "compaction", b"note"))


@pytest.mark.checklist(712)
def test_the_first_key_seals_and_all_open():
    before = sealer(OLD).seal("ada", "compaction", b"note")
    rotated = sealer(NEW, OLD)
    assert rotated.unseal("ada", "compaction", before) == b"note"
    assert sealer(NEW).unseal("ada", "compaction", rotated.seal("ada", "compaction", b"new")) == b"new"
    assert sealer(NEW).unseal("ada", "compaction", before) is None


@pytest.mark.parametrize(
    "token",
    ["", "gAAAA", "\ud800", "ä" * 50, Fernet(Fernet.generate_key()).encrypt(b"x").decode()],
    ids=["empty", "short", "surrogate", "letters", "another key"],
)
def test_what_is_not_ours_is_nothing(token):
    assert sealer(NEW).unseal("ada", "compaction", token) is None


def test_a_changed_token_is_nothing():
    ours = sealer(NEW)
    token = ours.seal("ada", "compaction", b"note")
    assert ours.unseal("ada", "compaction", token[:-8] + "AAAAAAA=") is None


# ---------------------------------------------------------------- the file beside the database


def test_the_file_is_made_once_for_its_owner_alone(tmp_path):
    path = tmp_path / "responses.db.seal-keys"
    token = FernetSealer(OwnKeyFile(path)).seal("ada", "compaction", b"note")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert FernetSealer(OwnKeyFile(path)).unseal("ada", "compaction", token) == b"note"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_nothing_is_made_before_it_is_needed(tmp_path):
    FernetSealer(OwnKeyFile(tmp_path / "keys"))
    assert list(tmp_path.iterdir()) == []


def test_who_makes_the_file_at_the_same_time_wins(tmp_path, monkeypatch):
    path = tmp_path / "keys"
    other = Fernet.generate_key()
    monkeypatch.setattr("gateway.storage.sealing.os.fsync", lambda _: path.write_bytes(other + b"\n"))
    assert list(OwnKeyFile(path).keys()) == [other]


@pytest.mark.parametrize("content", [b"", b"not a key\n"])
def test_a_file_without_keys_is_no_key(tmp_path, content):
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(Unavailable):
        FernetSealer(OwnKeyFile(path)).seal("ada", "compaction", b"note")


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(Unavailable):
        FernetSealer(OwnKeyFile(tmp_path / "no" / "keys")).seal("ada", "compaction", b"note")
