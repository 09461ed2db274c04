"""What is peculiar to keys in a file."""

import os
import stat

import pytest

from gateway.ports import KeysUnreadable
from gateway.storage.key_file import KeyFile
from tests.storage.test_key_books import make_key

SOUND = f"[keys.key000000001]\nprincipal = 'a'\nsha256 = '{'0' * 64}'\ncreated_at = 2026-11-30T00:00:00Z\n"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "keys.toml"


@pytest.fixture
def book(path):
    return KeyFile(path, max_keys=3)


def test_the_file_is_its_owners_alone(book, path):
    book.add(make_key())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    book.add(make_key(2))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(path.parent.iterdir()) == [path]


def test_the_digest_is_all_that_is_kept_of_a_key(book, path):
    book.add(make_key(name="laptop"))
    lines = path.read_text().split("\n\n")[1].splitlines()
    assert lines[0] == "[keys.key000000001]"
    assert {line.partition(" = ")[0] for line in lines[1:]} == {"principal", "sha256", "created_at", "name"}


def test_a_file_that_has_not_changed_is_not_read_again(book, path):
    book.add(make_key())
    first = book.read()
    assert book.read() is first
    KeyFile(path, max_keys=3).add(make_key(2))
    assert len(book.read()) == 2


def test_a_link_stays_one(tmp_path, path):
    (tmp_path / "elsewhere").mkdir()
    path.symlink_to(tmp_path / "elsewhere" / "real.toml")
    book = KeyFile(path, max_keys=3)
    book.add(make_key())
    assert path.is_symlink()
    assert len(book.read()) == 1
    assert [file.name for file in (tmp_path / "elsewhere").iterdir()] == ["real.toml"]


def test_no_file(book, path):
    with pytest.raises(KeysUnreadable, match=r"no file .*keys\.toml.*gateway keys create"):
        book.read()


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write(book, path, mode):
    book.add(make_key())
    path.chmod(mode)
    for use in (book.read, book.list_all, lambda: book.add(make_key(2)), lambda: book.revoke("key000000001", 1)):
        with pytest.raises(KeysUnreadable, match="chmod go-w"):
            use()


def test_a_pipe_is_not_waited_for(book, path):
    os.mkfifo(path, 0o600)
    for use in (book.read, book.list_all, lambda: book.add(make_key())):
        with pytest.raises(KeysUnreadable, match="no regular file"):
            use()


@pytest.mark.parametrize(
    "text",
    [
        "keys",
        "key = {}",
        "[keys.key000000001]\nprincipal = 'a'",
        SOUND.replace("0" * 64, "x"),
        SOUND.replace("Z", ""),
        SOUND.replace("'a'", "'a b'"),
        SOUND.replace("key000000001", "KEY"),
        f"{SOUND}revoked = true",
        "\xff",
    ],
)
def test_a_file_that_is_not_as_it_should_be(book, path, text):
    path.write_bytes(text.encode("latin-1"))
    path.chmod(0o600)
    with pytest.raises(KeysUnreadable, match="is not as it should be"):
        book.read()


def test_a_file_that_was_written_by_hand(book, path):
    path.write_text(SOUND)
    path.chmod(0o600)
    assert book.read() == {"key000000001": make_key(digest="0" * 64, created_at=1_795_996_800)}


def test_a_file_without_keys(book, path):
    path.write_text("")
    assert book.read() == {}


def test_a_file_that_is_too_large(book, path, monkeypatch):
    book.add(make_key())
    monkeypatch.setattr("gateway.storage.key_file._MAX_BYTES", 100)
    with pytest.raises(KeysUnreadable, match="larger than 100 bytes"):
        book.read()


def test_a_folder_that_is_not_there(tmp_path):
    book = KeyFile(tmp_path / "missing" / "keys.toml", max_keys=3)
    with pytest.raises(KeysUnreadable, match=r"The folder .*missing cannot be used: No such file"):
        book.add(make_key())


def test_a_file_that_is_a_folder(book, path):
    path.mkdir(mode=0o700)
    with pytest.raises(KeysUnreadable, match="is no regular file"):
        book.read()


def test_what_cannot_be_written_changes_nothing(book, path, monkeypatch):
    book.add(make_key())
    before = path.read_bytes()

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gateway.storage.key_file.os.fsync", fail)
    with pytest.raises(KeysUnreadable, match="No space left on device"):
        book.add(make_key(2))
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_place_that_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(KeysUnreadable, match=r"file/keys\.toml cannot be used: Not a directory"):
        KeyFile(tmp_path / "file" / "keys.toml", max_keys=3).read()
