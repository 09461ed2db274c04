"""Find the configuration files that ship with the gateway."""

from importlib import resources
from pathlib import Path

_CHECKOUT = Path(__file__).parents[2]


def config_folder() -> Path:
    """Return the folder with the template, the schema and the examples: inside a wheel `_config`, else the checkout's.

    Raises:
        FileNotFoundError: neither is there.
    """
    packaged = Path(str(resources.files("gateway").joinpath("_config")))
    folder = packaged if packaged.is_dir() else _CHECKOUT / "config"
    if not folder.is_dir():
        raise FileNotFoundError(f"the configuration files are missing: {folder}")
    return folder
