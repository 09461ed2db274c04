"""Write a file, load it, look at the findings."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from gateway.config import ConfigError, Finding, LoadedConfig, load_config


@pytest.fixture
def toml(tmp_path: Path) -> Callable[[str], Path]:
    """Write a configuration file and return its path."""

    def write(text: str) -> Path:
        file = tmp_path / "gateway.toml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


@pytest.fixture
def load(toml: Callable[[str], Path]) -> Callable[..., LoadedConfig]:
    """Load a configuration from the text of a file, an environment and `--set` arguments."""

    def run(text: str | None = None, env: Mapping[str, str] | None = None, *overrides: str) -> LoadedConfig:
        return load_config(None if text is None else toml(text), env or {}, overrides)

    return run


@pytest.fixture
def problems(load: Callable[..., LoadedConfig]) -> Callable[..., Sequence[Finding]]:
    """Load a configuration that must be refused and return why."""

    def run(text: str | None = None, env: Mapping[str, str] | None = None, *overrides: str) -> Sequence[Finding]:
        with pytest.raises(ConfigError) as caught:
            load(text, env, *overrides)
        assert str(caught.value) == "\n".join(map(str, caught.value.problems))
        return caught.value.problems

    return run
