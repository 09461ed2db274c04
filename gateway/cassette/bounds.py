"""How large a recording may get and how long each step may take."""

from msgspec import Struct


class Bounds(Struct, frozen=True, kw_only=True):
    """The limits of one recording.

    Attributes:
        max_frames: records of frames and HTTP pieces.
        max_bytes: payload of all of them.
        max_frame_bytes: one message of a WebSocket, one chunk or body of HTTP.
        max_injects: injects and steers that answer one create.
        max_creates: creates of one scenario.
        outstanding: injects of one response that may wait for their outcome; outcomes carry no number.
        connect_seconds: for a connection with its handshake.
        step_seconds: for one step of a scenario, until its response has ended.
        close_seconds: for the other side's goodbye.
    """

    max_frames: int = 250_000
    max_bytes: int = 128 * 1024 * 1024
    max_frame_bytes: int = 16 * 1024 * 1024
    max_injects: int = 100
    max_creates: int = 32
    outstanding: int = 1
    connect_seconds: float = 10.0
    step_seconds: float = 120.0
    close_seconds: float = 5.0
