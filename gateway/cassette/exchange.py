"""One recorded HTTP exchange: the request, the head of the answer, and its body in the pieces in which it was read."""

import asyncio
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

import httpcore2

from gateway.cassette.bounds import Bounds
from gateway.cassette.recorder import BoundReached, Recorder
from gateway.cassette.redact import fold_headers
from gateway.cassette.socket import TransportFailed


async def post(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    recorder: Recorder,
    bounds: Bounds,
    tls: ssl.SSLContext | None = None,
) -> tuple[int, Mapping[str, str], bytes]:
    """Post a body and return status, headers and body of the answer.

    Raises:
        TransportFailed: no answer, or not all of it in time.
        BoundReached: the answer is larger than it may be.
    """
    session = recorder.start_session()
    parts = urlsplit(url)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    sent: dict[str, str] = {**headers, "host": parts.netloc.rpartition("@")[2], "content-length": str(len(body))}
    timeouts = {"connect": bounds.connect_seconds, "read": bounds.step_seconds, "write": bounds.step_seconds}
    recorder.note_request(session, "POST", path, sent, body)
    content = bytearray()
    try:
        async with (
            asyncio.timeout(bounds.connect_seconds + bounds.step_seconds),
            httpcore2.AsyncConnectionPool(ssl_context=tls or ssl.create_default_context()) as pool,
            pool.stream(
                "POST", url, headers=list(sent.items()), content=body, extensions={"timeout": timeouts}
            ) as answer,
        ):
            shown = fold_headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers)
            recorder.note_answer(session, answer.status, shown)
            async for chunk in answer.aiter_stream():
                content += chunk
                if len(content) > bounds.max_frame_bytes:
                    raise BoundReached(f"the answer is larger than {bounds.max_frame_bytes} bytes; --max-frame-bytes")
                recorder.note_chunk(session, chunk)
            recorder.note_chunk(session, b"", is_last=True)
    except (httpcore2.TimeoutException, TimeoutError) as error:
        raise TransportFailed(f"no answer in time ({type(error).__name__})") from error
    except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as error:
        raise TransportFailed(f"no answer: {error or type(error).__name__}") from error
    return answer.status, shown, bytes(content)
