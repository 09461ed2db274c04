"""What a reload may apply, key by key, and what waits for a restart."""

from typing import Any

import pytest
from msgspec import structs

from gateway.config import GatewayConfig, load_config
from gateway.config.changes import Change, compare
from gateway.config.render import render_reference
from gateway.config.schema import UpstreamConfig
from gateway.config.secret import Secret, SecretUrl
from gateway.config.tree import Leaf, format_path, gateway_tree, leaves

LEAVES = dict(leaves(gateway_tree()))
RUNNING = structs.replace(load_config().config, upstream=UpstreamConfig())


def other_value(leaf: Leaf) -> Any:
    """A value of the same kind that is not the default."""
    if leaf.secret:
        return SecretUrl("postgresql://u:s3cret@h/d") if leaf.base is SecretUrl else Secret("s3cret")
    if leaf.choices:
        choice = next(choice for choice in leaf.choices if choice != leaf.default)
        return choice if isinstance(leaf.default, str) else (choice,)
    if isinstance(leaf.default, bool):
        return not leaf.default
    if isinstance(leaf.default, tuple):
        return ("x",)
    return "x" if leaf.default is None or isinstance(leaf.default, str) else leaf.default + 1


def with_value(config: Any, path: tuple[str, ...], value: Any) -> Any:
    name, *below = path
    return structs.replace(config, **{name: with_value(getattr(config, name), tuple(below), value) if below else value})


@pytest.mark.parametrize("path", LEAVES, ids=format_path)
def test_each_key_applies_or_waits(path: tuple[str, ...]) -> None:
    leaf = LEAVES[path]
    read = with_value(RUNNING, path, other_value(leaf))
    reload = compare(RUNNING, read)
    (change,) = (*reload.applied, *reload.pending)
    assert change.path == format_path(path)
    assert change.old != change.new or leaf.secret
    assert "s3cret" not in f"{change.old} {change.new}"
    assert bool(reload.applied) == leaf.live
    assert reload.config == (read if leaf.live else RUNNING)


@pytest.fixture(scope="module")
def reference() -> str:
    return render_reference()


@pytest.mark.parametrize("path", LEAVES, ids=format_path)
def test_the_reference_tells_it(path: tuple[str, ...], reference: str) -> None:
    page = reference.partition(f"### `{format_path(path)}`\n")[2].partition("\n### ")[0]
    assert ("- Applies: on reload\n" in page) == LEAVES[path].live
    assert ("- Applies: after a restart\n" in page) == (not LEAVES[path].live)


def test_what_a_request_meets_is_live_and_what_a_process_is_made_of_is_not() -> None:
    live = {format_path(path) for path, leaf in LEAVES.items() if leaf.live}
    assert {key for key in map(format_path, LEAVES) if key.startswith(("responses.", "engine."))} <= live
    # The engine reads these, not the store.
    own = {"usage_interval_seconds", "usage_max_entries", "max_bytes_per_principal", "quota_revalidate_seconds"}
    assert {key for key in live if key.startswith(("admin.", "storage."))} == {f"storage.{key}" for key in own}
    assert not live & {"server.host", "server.port", "upstream.url", "upstream.dialect", "telemetry.log_format"}


def test_the_same_configuration_changes_nothing() -> None:
    reload = compare(RUNNING, structs.replace(RUNNING, upstream=None))
    assert (reload.applied, reload.pending, reload.config) == ((), (), RUNNING)


def test_what_waits_keeps_waiting_and_what_applied_is_done() -> None:
    read = with_value(with_value(RUNNING, ("server", "port"), 1), ("responses", "max_tools"), 1)
    first = compare(RUNNING, read)
    assert first.applied == (Change(path="responses.max_tools", old="1024", new="1"),)
    assert first.pending == (Change(path="server.port", old="9000", new="1"),)
    second = compare(first.config, read)
    assert (second.applied, second.pending, second.config) == ((), first.pending, first.config)
    assert compare(first.config, RUNNING).pending == ()


def test_values_are_shown_as_they_are_written() -> None:
    upstream = UpstreamConfig(models=("a",), aliases={"small": "a" * 200}, api_key=Secret("s3cret"))
    read = with_value(structs.replace(RUNNING, upstream=upstream), ("responses", "max_retained_bytes"), 2048)
    shown = {change.path: (change.old, change.new) for change in compare(RUNNING, read).applied}
    assert shown["responses.max_retained_bytes"] == ('"8MiB"', '"2KiB"')
    assert shown["upstream.models"] == ("[]", '["a"]')
    assert shown["upstream.api_key"] == ("none", "***")
    assert shown["upstream.aliases"][1].startswith('{"small": "aaaa')
    assert len(shown["upstream.aliases"][1]) < 130


# ---------------------------------------------------------------- what must not go ahead


@pytest.mark.parametrize("moved", [("server", "host"), ("admin", "bind")])
@pytest.mark.parametrize("list_", ["allowed_hosts", "allowed_origins"])
def test_who_may_call_waits_for_the_address_it_was_written_for(moved: tuple[str, ...], list_: str) -> None:
    read = with_value(with_value(RUNNING, moved, "127.0.0.2"), ("server", list_), ("x",))
    reload = compare(RUNNING, read)
    assert {change.path for change in reload.pending} == {format_path(moved), f"server.{list_}"}
    assert reload.config == RUNNING


def several(**servers: UpstreamConfig) -> GatewayConfig:
    return structs.replace(RUNNING, upstream=None, upstreams=servers)


def test_servers_change_together_or_not_at_all() -> None:
    running = several(a=UpstreamConfig(models=("x", "y")), b=UpstreamConfig(models=("z",)))
    read = several(
        a=UpstreamConfig(models=("x",)), b=UpstreamConfig(models=("y", "z"), url="http://new:1", api_key=Secret("k"))
    )
    reload = compare(running, read)
    assert reload.applied == ()
    paths = {"upstreams.a.models", "upstreams.b.models", "upstreams.b.url", "upstreams.b.api_key"}
    assert {change.path for change in reload.pending} == paths
    assert reload.config == running


def test_keys_of_several_servers_apply() -> None:
    running = several(a=UpstreamConfig(models=("x",)), b=UpstreamConfig(models=("y",)))
    read = several(a=UpstreamConfig(models=("y",)), b=UpstreamConfig(models=("x",)))
    reload = compare(running, read)
    assert {change.path for change in reload.applied} == {"upstreams.a.models", "upstreams.b.models"}
    assert reload.config == read


def test_servers_that_come_and_go_are_named_with_their_address() -> None:
    one, other = UpstreamConfig(url="http://one:1", models=("x",)), UpstreamConfig(url="http://other:2", models=("y",))
    running, read = several(a=one), several(a=structs.replace(one, models=("z",)), b=other)
    joined = compare(running, read)
    assert joined.pending == (
        Change(path="upstreams.b", old="none", new="http://other:2"),
        Change(path="upstreams.a.models", old='["x"]', new='["z"]'),
    )
    assert joined.config == running
    left = compare(read, running)
    assert left.pending[0] == Change(path="upstreams.b", old="http://other:2", new="none")


def test_one_server_may_be_written_in_either_form() -> None:
    running = structs.replace(RUNNING, upstream=UpstreamConfig(models=("x",)))
    assert compare(running, several(default=UpstreamConfig(models=("x",)))).pending == ()
    reload = compare(running, several(default=UpstreamConfig(models=("y",))))
    assert [change.path for change in reload.applied] == ["upstreams.default.models"]
    assert reload.config.upstream_map()["default"].models == ("y",)
