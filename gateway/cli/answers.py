"""What a running gateway answers to a command that asks it."""

import http.client
import ssl
from urllib.parse import urlsplit

from msgspec import Struct

_MAX_BYTES = 4 * 1024 * 1024


class NoAnswer(Exception):
    """The gateway did not answer; the text says why."""


class Answer(Struct, frozen=True):
    """One answer.

    Attributes:
        status: the HTTP status.
        body: at most 4 MiB of its body.
    """

    status: int
    body: bytes


def ask(url: str, path: str, timeout: float, tls: ssl.SSLContext | None = None) -> Answer:
    """Return what a gateway answers to a GET; proxies of the environment are not used.

    Args:
        url: where the gateway is, `http://HOST:PORT`, as `parse_http_url` returns it.
        path: what to ask for.
        timeout: longest wait in seconds for a connection, and then each time for more of the answer.
        tls: how an https gateway is checked; None for the authorities that the system trusts.

    Raises:
        NoAnswer: no connection, no answer in time, or no HTTP.
    """
    parts = urlsplit(url)
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=timeout, context=tls)
    else:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
    try:
        connection.request("GET", parts.path.rstrip("/") + path, headers={"connection": "close"})
        response = connection.getresponse()
        return Answer(response.status, response.read(_MAX_BYTES))
    except TimeoutError as error:
        raise NoAnswer(f"no answer within {timeout:g} seconds") from error
    except ssl.SSLCertVerificationError as error:
        raise NoAnswer(f"its certificate is not trusted: {error.verify_message}") from error
    except OSError as error:
        raise NoAnswer(error.strerror or str(error)) from error
    except http.client.HTTPException as error:
        raise NoAnswer(f"what answers there does not speak HTTP ({type(error).__name__})") from error
    finally:
        connection.close()


def local_url(host: str, port: int, scheme: str = "http") -> str:
    """Return the URL at which this machine reaches what listens at a host and port; of a wildcard its loopback."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"{scheme}://[{reached}]:{port}" if ":" in reached else f"{scheme}://{reached}:{port}"
