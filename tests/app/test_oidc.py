"""What mode `oidc` needs to be built."""

import sys

import pytest

from gateway.app.access import build_authenticator
from gateway.app.errors import StartError
from gateway.app.parts import SystemClock
from gateway.config.schema import AuthConfig, GatewayConfig, OidcConfig
from gateway.telemetry.metrics import Metrics
from gateway.transport.oidc.authenticator import OidcAuthenticator


def build(**oidc):
    config = GatewayConfig(auth=AuthConfig(mode="oidc"), oidc=OidcConfig(issuer="https://id.example", **oidc))
    return build_authenticator(config, SystemClock(), Metrics())


def test_nothing_is_asked_before_the_start():
    assert isinstance(build(), OidcAuthenticator)


def test_an_installation_without_the_extra_is_told_which(monkeypatch):
    for module in [name for name in sys.modules if name.startswith(("joserfc", "gateway.transport.oidc"))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "joserfc", None)
    with pytest.raises(StartError, match=r"joserfc.*pip install 'responses-gateway\[auth\]'"):
        build()


def test_authorities_that_cannot_be_read_stop_the_start(tmp_path):
    with pytest.raises(StartError, match="ca_file"):
        build(ca_file=str(tmp_path / "none.pem"))
