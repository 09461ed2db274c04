"""The keys of the database."""

from typing import Annotated, Literal

from msgspec import field

from gateway.config.kinds import Count, DatabaseUrl, Duration, DurationOrZero, FilePath, Size, SizeOrZero, doc
from gateway.config.schema.section import Section
from gateway.config.secret import SecretUrl
from gateway.config.units import MIB

_DEFAULT_DATABASE = "sqlite:///responses.db"


class StorageConfig(Section, frozen=True, kw_only=True):
    """Where responses are kept."""

    url: Annotated[
        DatabaseUrl,
        doc(
            "sqlite:///PATH (four slashes for an absolute path) or postgresql://USER:PASSWORD@HOST/DATABASE. "
            "The password is never shown.",
            extra_json_schema={"default": _DEFAULT_DATABASE},
        ),
    ] = field(default_factory=lambda: SecretUrl(_DEFAULT_DATABASE))
    url_file: Annotated[
        FilePath | None, doc("File that holds url, in the place of it; one trailing line break is dropped.")
    ] = None
    auto_migrate: Annotated[
        Literal["auto", "always", "never"],
        doc("Whether `gateway serve` migrates the database; auto does so for SQLite and not for PostgreSQL."),
    ] = "auto"
    sqlite_synchronous: Annotated[
        Literal["NORMAL", "FULL"],
        doc("NORMAL may lose the newest responses when the power fails, FULL does not and is slower."),
    ] = "NORMAL"
    busy_timeout_seconds: Annotated[
        DurationOrZero, doc("How long to wait for a connection, or for another process that holds the lock.", le=86_400)
    ] = 5.0
    readers: Annotated[Count, doc("Connections, and threads, that read.", le=1024, per_process=True)] = 4
    reader_max_entries: Annotated[
        Count,
        doc("Reads waiting or running at once; beyond that requests that need one fail with 503.", per_process=True),
    ] = 1024
    writer_max_entries: Annotated[
        Count, doc("Responses waiting to be written; beyond that new ones fail with 503.", per_process=True)
    ] = 1024
    writer_max_bytes: Annotated[
        Size,
        doc(
            "Bytes of responses waiting to be written; beyond that new ones fail with 503, but one always fits.",
            per_process=True,
        ),
    ] = 256 * MIB
    writer_batch_entries: Annotated[Count, doc("Responses committed together.")] = 256
    statement_timeout_seconds: Annotated[Duration, doc("A statement that runs longer is given up.", le=86_400)] = 30.0
    probe_timeout_seconds: Annotated[
        Duration, doc("How long a readiness check, or the check before an inference, waits for the database.", le=3600)
    ] = 5.0
    verify_after_seconds: Annotated[
        DurationOrZero,
        doc(
            "When the database has taken no write for so long, one is tried before the next inference whose response "
            "is to be stored or continues a stored one; 0 tries each time.",
            le=3600,
        ),
    ] = 1.0
    history_max_responses: Annotated[
        Count, doc("Responses that one chain of previous_response_id may have; a longer one is refused.")
    ] = 10_000
    history_max_bytes: Annotated[
        Size, doc("Items that one chain of previous_response_id may have, as serialized; a larger one is refused.")
    ] = 64 * MIB
    history_cache_bytes: Annotated[
        SizeOrZero,
        doc("Memory for the histories of chains that go on; 0 reads each from the database.", per_process=True),
    ] = 8 * MIB
    history_revalidate_seconds: Annotated[
        DurationOrZero,
        doc(
            "A history in memory is used for so long before the database is asked whether its response still exists, "
            "so this is how late a deletion by another process may be noticed; 0 asks every time.",
            le=86_400,
        ),
    ] = 5.0
    retention_seconds: Annotated[
        DurationOrZero,
        doc(
            "Responses are removed this long after the newest one that continues from the same first response; "
            "0 keeps them for ever.",
            le=36_500 * 86_400,
        ),
    ] = 30 * 86_400.0
    retention_interval_seconds: Annotated[
        Duration,
        doc(
            "How often to look for responses to remove. Deleted ones are kept that long, for what is being made "
            "from them.",
            le=30 * 86_400,
        ),
    ] = 3600.0
    retention_batch_responses: Annotated[Count, doc("Responses removed in one transaction.", le=10_000)] = 200
    lease_seconds: Annotated[
        Duration,
        doc(
            "How long what one process has for itself, such as a conversation that it writes to, stays so when the "
            "process dies; while it lives, it renews that three times as often.",
            le=3600,
        ),
    ] = 30.0
    max_bytes_per_principal: Annotated[
        SizeOrZero,
        doc(
            "How much one principal may have stored, as serialized, deleted responses that are not removed yet "
            "included; beyond that creates to be stored get 429. 0 for no limit.",
            live=True,
        ),
    ] = 0
    quota_revalidate_seconds: Annotated[
        DurationOrZero,
        doc(
            "How old the sum of a principal may be that is compared with max_bytes_per_principal; a process adds what "
            "it stores itself at once. 0 reads it before each create.",
            live=True,
            le=86_400,
        ),
    ] = 60.0
    usage_interval_seconds: Annotated[
        DurationOrZero,
        doc(
            "How often the tokens that principals used are added to the database; a process that is killed loses those "
            "since the last time. 0 counts none.",
            live=True,
            le=86_400,
        ),
    ] = 10.0
    usage_max_entries: Annotated[
        Count,
        doc(
            "Principals, each with a model and a day, whose tokens may wait to be added; at that many they are added "
            "at once, and while the database takes none, further ones do not count.",
            live=True,
            per_process=True,
        ),
    ] = 10_000
