"""The keys of compaction, and of what is sealed."""

from typing import Annotated, Literal

from gateway.config.kinds import Count, CountOrZero, Duration, FilePath, SealKeys, SizeOrZero, doc
from gateway.config.schema.section import Section
from gateway.config.units import KIB


class SecurityConfig(Section, frozen=True, kw_only=True):
    """Keys for what clients carry for the gateway and must not read or change."""

    seal_keys: Annotated[
        SealKeys,
        doc(
            "Keys, the newest first, separated by spaces or line breaks: the first seals, all open. `gateway keys "
            "seal-key` makes them. Without any a key is made in a file beside a SQLite database; with PostgreSQL there "
            "is none, for all replicas need the same."
        ),
    ] = None
    seal_keys_file: Annotated[
        FilePath | None,
        doc("File that holds seal_keys, in the place of it: one key a line, lines that begin with # are comments."),
    ] = None


class CompactionConfig(Section, frozen=True, kw_only=True):
    """How long histories are replaced by notes of what they said."""

    mode: Annotated[
        Literal["auto", "on", "off"],
        doc(
            "Whether requests may ask for it. auto: wherever there are sealing keys, which is always so with SQLite; "
            "on: the gateway does not start without; off: such requests are refused."
        ),
    ] = "auto"
    default_threshold: Annotated[
        Count, doc("Tokens from which a window is compacted where a request asks for it without a number.", live=True)
    ] = 100_000
    multi_agent_default_threshold: Annotated[
        CountOrZero,
        doc(
            "Tokens from which an agent's window of a multi-agent response is compacted, which happens always, where a "
            "request names no number. 0 takes four fifths of the length that the inference server tells for the model "
            "(`max_model_len`), or 100,000 if it tells none.",
            live=True,
        ),
    ] = 0
    max_summary_tokens: Annotated[Count, doc("Longest note, in the model's tokens.", live=True)] = 2048
    timeout_seconds: Annotated[Duration, doc("Time for making one note; then it has failed.", live=True)] = 120.0
    max_failures: Annotated[
        Count,
        doc(
            "Notes that may fail in a row within one response; it fails then. Before that it goes on with the whole "
            "history.",
            live=True,
        ),
    ] = 2
    keep_user_bytes: Annotated[
        SizeOrZero,
        doc(
            "How much of the user's own messages stays beside the note, word for word and the newest first. The newest "
            "one stays whatever its size.",
            live=True,
        ),
    ] = 64 * KIB
