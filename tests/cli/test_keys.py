"""`gateway keys`: made, listed, revoked; and what is told of it to whom."""

import json
import re
import time
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from gateway.app.access import build_key_book
from gateway.cli.keys import command
from gateway.config import load_config
from gateway.protocol.credentials import digest_key

KEY = re.compile(r"rgw_([a-z0-9]{12})_[0-9a-f]{64}\n")


@pytest.fixture(params=["file", "database"])
def place(request, tmp_path, monkeypatch):
    """The options that name an empty place for keys."""
    monkeypatch.setattr("os.environ", {"PATH": "", "LOGNAME": "eve"})
    monkeypatch.setattr("gateway.cli.audit.pwd.getpwuid", lambda _: SimpleNamespace(pw_name="ada"))
    if request.param == "file":
        return ("--set", f"auth.keys_file={tmp_path}/keys.toml", "--set", "auth.mode=api_keys")
    return ("--set", "auth.keys_in=database", "--database", f"sqlite:///{tmp_path}/responses.db")


def run(*arguments):
    return CliRunner().invoke(command, arguments)


def create(*arguments):
    """Make a key; returns its text and its id."""
    result = run("create", *arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout.strip(), KEY.fullmatch(result.stdout)[1]


def listed(*place):
    result = run("list", "--json", *place)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def audit(stderr):
    (line,) = [json.loads(line) for line in stderr.splitlines() if line.startswith("{")]
    assert line["logger"] == "gateway.audit"
    return line


def test_the_key_stands_alone_on_stdout_and_is_kept_as_a_hash(place):
    result = run("create", *place, "--principal", "team-a", "--name", "Ada's laptop")
    assert KEY.fullmatch(result.stdout)
    text = result.stdout.strip()
    assert text not in result.stderr
    (shown,) = listed(*place)
    assert text.split("_")[2] not in json.dumps(shown)
    assert (shown["principal"], shown["name"], shown["state"], shown["expires_at"]) == (
        *("team-a", "Ada's laptop", "active"),
        None,
    )
    overrides = [place[number + 1] for number, word in enumerate(place) if word == "--set"]
    if "--database" in place:
        overrides.append(f"storage.url={place[-1]}")
    book = build_key_book(load_config(None, {}, overrides).config)
    assert [key.digest for key in book.list_all()] == [digest_key(text)]
    book.close()


def test_no_two_keys_are_alike(place):
    assert len({create(*place, "--principal", "a") for _ in range(3)}) == 3
    assert len(listed(*place)) == 3


def test_what_was_done_is_logged_at_any_level(place):
    quiet = (*place, "--set", "telemetry.log_level=error", "--set", "telemetry.log_format=json")
    result = run("create", *quiet, "--principal", "team-a")
    key_id = KEY.fullmatch(result.stdout)[1]
    made = audit(result.stderr)
    assert [made[name] for name in ("action", "object", "outcome", "principal", "actor")] == (
        ["keys create", key_id, "done", "team-a", "ada"]
    )
    gone = audit(run("revoke", *quiet, key_id).stderr)
    assert [gone[name] for name in ("action", "object", "outcome", "principal")] == (
        ["keys revoke", key_id, "done", "team-a"]
    )
    mistyped = run("revoke", *quiet, f"x{KEY.fullmatch(result.stdout)[0]}")
    assert [audit(mistyped.stderr)[name] for name in ("object", "outcome")] == ["unknown", "failed"]


def test_a_key_is_revoked_by_its_id_or_as_it_is(place):
    (text, key_id), (_, other_id) = create(*place, "--principal", "a"), create(*place, "--principal", "b")
    for name in (text, other_id, key_id):
        assert run("revoke", *place, name).exit_code == 0
    assert {key["id"]: key["state"] for key in listed(*place)} == {key_id: "revoked", other_id: "revoked"}


def test_a_key_that_expires(place):
    before = int(time.time())
    _, key_id = create(*place, "--principal", "a", "--expires", "90d")
    (key,) = listed(*place)
    assert before <= key["expires_at"] - 90 * 86_400 <= time.time()
    table = run("list", *place).stdout
    assert re.search(rf"{key_id} +a +\d{{4}}-\d\d-\d\d +\d{{4}}-\d\d-\d\d +active", table)


def test_an_expired_key_is_listed_as_such(place, monkeypatch):
    create(*place, "--principal", "a", "--expires", "1s")
    now = time.time()
    monkeypatch.setattr("gateway.cli.keys.time.time", lambda: now + 10)
    assert listed(*place)[0]["state"] == "expired"


def test_no_key_to_revoke(place):
    result = run("revoke", *place, "nobody")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no key 'nobody'" in result.stderr


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((), "--principal"),
        (("--principal", "two words"), "--principal"),
        (("--principal", "a", "--name", "x" * 101), "--name"),
        (("--principal", "a", "--name", "a\nb"), "--name"),
        (("--principal", "a", "--expires", "soon"), "--expires"),
        (("--principal", "a", "--set", "auth.keys_in=cloud"), "auth.keys_in"),
    ],
)
def test_wrong_usage(options, named):
    result = run("create", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert named in result.stderr


def test_a_place_that_cannot_be_used(tmp_path):
    result = run("create", "--principal", "a", "--set", f"auth.keys_file={tmp_path}/missing/keys.toml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "The folder" in result.stderr
    database = ("--set", "auth.keys_in=database", "--database", "postgresql://a:s3cret@127.0.0.1:1/a")
    result = run("list", *database, "--set", "storage.busy_timeout_seconds=1")
    assert result.exit_code == 1
    assert "cannot be reached" in result.stderr
    assert "s3cret" not in result.stderr


def test_keys_that_nobody_asks_for_are_pointed_out(tmp_path):
    place = ("--set", f"auth.keys_file={tmp_path}/keys.toml")
    assert "asks nobody for such a key" in run("create", *place, "--principal", "a").stderr
    assert "asks nobody" not in run("list", *place, "--set", "auth.mode=api_keys").stderr


def test_who_has_no_name_is_noted_by_number(place, monkeypatch):
    """As in a container that runs as a user of no password file."""

    def fail(_):
        raise KeyError("getpwuid(): uid not found: 10001")

    monkeypatch.setattr("gateway.cli.audit.pwd.getpwuid", fail)
    result = run("create", *place, "--set", "telemetry.log_format=json", "--principal", "a")
    assert re.fullmatch(r"uid \d+", audit(result.stderr)["actor"])
