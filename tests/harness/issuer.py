"""An issuer of tokens: keys made for the test, its two documents, and a server for them on loopback."""

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

DISCOVERY = "/.well-known/openid-configuration"
AUDIENCE = "gateway"
_MAKERS = {"RS256": lambda: RSAKey.generate_key(2048), "ES256": lambda: ECKey.generate_key("P-256")}


class Issuer:
    """Signs tokens and publishes the keys to check them with.

    Attributes:
        url: the issuer's name.
        published: what its JWK set holds, by key id; take one out to withdraw it.
        asked: paths that were fetched, in order.
        broken: answer every fetch with 500.
    """

    def __init__(self, url: str = "http://127.0.0.1:1") -> None:
        self.url = url
        self.published: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.broken = False
        self._private: dict[str, Any] = {}
        self.add_key("first")

    def add_key(self, kid: str, algorithm: str = "ES256", **members: Any) -> None:
        """Make a key and publish it."""
        key = self._private[kid] = _MAKERS.get(algorithm, lambda: OKPKey.generate_key("Ed25519"))()
        self.published[kid] = {**key.as_dict(private=False), "kid": kid, "use": "sig", **members}

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Return good claims; None takes one out."""
        now = int(changed.pop("now", time.time()))
        good = {"iss": self.url, "sub": "alice", "aud": AUDIENCE, "iat": now, "exp": now + 300}
        return {name: value for name, value in {**good, **changed}.items() if value is not None}

    def token(
        self,
        claims: dict[str, Any] | bytes | None = None,
        *,
        kid: str = "first",
        header: dict[str, Any] | None = None,
        **changed: Any,
    ) -> str:
        """Return a token signed with one of the keys, published or not."""
        payload = claims if isinstance(claims, bytes) else json.dumps(claims or self.claims(**changed)).encode()
        key = self._private[kid]
        algorithm = {"RSA": "RS256", "EC": "ES256", "OKP": "Ed25519"}[key.key_type]
        full = {"alg": algorithm, "kid": kid, "typ": "at+jwt", **(header or {})}
        full = {name: value for name, value in full.items() if value is not None}
        head, body = encode_part(full), encode_part(payload)
        signature = jws.JWSRegistry.algorithms[algorithm].sign(f"{head}.{body}".encode(), key)
        return f"{head}.{body}.{encode_part(signature)}"

    def document(self, path: str) -> dict[str, Any] | None:
        """Return what it publishes at a path, or None."""
        if path == DISCOVERY:
            return {"issuer": self.url, "jwks_uri": f"{self.url}/jwks"}
        return {"keys": list(self.published.values())} if path == "/jwks" else None


def encode_part(part: Any) -> str:
    """Return one part of a token."""
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class ServedIssuer(Issuer):
    """An issuer whose documents are served over HTTP; use it as a context manager."""

    def __init__(self) -> None:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                document = issuer.document(self.path)
                body = json.dumps(document).encode()
                self.send_response(500 if issuer.broken else 404 if document is None else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        super().__init__(f"http://127.0.0.1:{self._server.server_port}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()
