"""The shipped files are found in a checkout and in a wheel."""

import pytest

from gateway.config import files


def test_a_checkout_has_them_at_its_top():
    assert (files.config_folder() / "gateway.toml").is_file()
    assert (files.config_folder() / "examples").is_dir()


def test_a_wheel_has_them_in_the_package(tmp_path, monkeypatch):
    (tmp_path / "_config").mkdir()
    monkeypatch.setattr(files.resources, "files", lambda _: tmp_path)
    assert files.config_folder() == tmp_path / "_config"


def test_without_them_the_error_says_where_they_should_be(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_CHECKOUT", tmp_path)
    monkeypatch.setattr(files.resources, "files", lambda _: tmp_path)
    with pytest.raises(FileNotFoundError, match="config"):
        files.config_folder()
