"""What every section of the configuration is."""

from msgspec import Struct


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every section."""
