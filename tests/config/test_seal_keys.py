import pytest

from gateway.config import ConfigError, load_config
from gateway.config.seal_keys import list_seal_keys, parse_seal_keys

ONE = "A" * 43 + "="
TWO = "B" * 42 + "A="


@pytest.mark.parametrize("written", [f"{ONE} {TWO}", f"# the newest\n{ONE}\n\n  {TWO}\n", f"{ONE}, {TWO}", [ONE, TWO]])
def test_keys_are_written_in_several_ways(written):
    assert list_seal_keys(parse_seal_keys(written)) == [ONE, TWO]


@pytest.mark.parametrize("written", ["", "# nothing\n", "short", f"{ONE} s3cret", 7, ["A" * 44]])
def test_what_is_no_key_is_refused_and_not_repeated(written):
    with pytest.raises(ValueError, match=r"key|string") as refused:
        parse_seal_keys(written)
    assert "s3cret" not in str(refused.value)


def test_keys_come_from_a_file_and_are_never_shown(tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"# newest first\n{TWO}\n{ONE}\n")
    file.chmod(0o600)
    loaded = load_config(overrides=[f"security.seal_keys_file={file}", "storage.url=postgresql://h/d"])
    assert list_seal_keys(loaded.config.security.seal_keys) == [TWO, ONE]
    assert ONE not in repr(loaded.config)


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        (["compaction.mode=on"], True),
        (["compaction.mode=on", f"security.seal_keys={ONE}", "storage.url=postgresql://h/d"], True),
        (["storage.url=postgresql://h/d"], True),
        (["compaction.mode=on", "storage.url=postgresql://h/d"], False),
    ],
)
def test_where_compaction_must_be_had_replicas_need_keys(settings, starts):
    if starts:
        load_config(overrides=settings)
        return
    with pytest.raises(ConfigError, match="gateway keys seal-key"):
        load_config(overrides=settings)
