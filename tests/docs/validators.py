"""Runs the programs that know other people's formats."""

import subprocess
import sys
from pathlib import Path


def validate(program: str, *arguments: str | Path, cwd: Path | None = None) -> str:
    """Run a validator, which must find nothing, and return what it says.

    Args:
        program: one of the virtual environment's, or else of the system's.
        arguments: what to validate, and how.
        cwd: where to run it.
    """
    installed = Path(sys.executable).with_name(program)
    command = [installed if installed.exists() else program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50, cwd=cwd)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said
