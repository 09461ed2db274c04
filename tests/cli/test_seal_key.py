"""`gateway keys seal-key`: printed, or put first in a file."""

import stat

from click.testing import CliRunner

from gateway.cli.keys import command
from gateway.config.seal_keys import list_seal_keys, parse_seal_keys


def run(*arguments):
    return CliRunner().invoke(command, ["seal-key", *arguments])


def test_a_key_stands_alone_on_stdout():
    one, other = run(), run()
    assert (one.exit_code, one.stderr) == (0, "")
    assert len(list_seal_keys(parse_seal_keys(one.stdout))) == 1
    assert one.stdout != other.stdout


def test_a_file_gets_the_newest_key_first(tmp_path):
    file = tmp_path / "keys"
    assert run("--file", str(file)).exit_code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (first,) = list_seal_keys(parse_seal_keys(file.read_text()))
    file.chmod(0o640)
    result = run("--file", str(file))
    second, old = list_seal_keys(parse_seal_keys(file.read_text()))
    assert (old, stat.S_IMODE(file.stat().st_mode)) == (first, 0o640)
    assert second not in result.output
    assert '"outcome":"done"' in result.stderr.replace(": ", ":").replace('" "', '""')


def test_what_is_no_file_of_keys_is_left_alone(tmp_path):
    file = tmp_path / "gateway.toml"
    file.write_text("[server]\n")
    result = run("--file", str(file))
    assert result.exit_code == 1
    assert "is no file of sealing keys" in result.stderr
    assert file.read_text() == "[server]\n"


def test_a_folder_that_is_not_there(tmp_path):
    result = run("--file", str(tmp_path / "no" / "keys"))
    assert result.exit_code == 1
    assert "cannot be written" in result.stderr
