"""What a process holds open, as the system tells it."""

from pathlib import Path


def list_descriptors(pid: int | str = "self") -> list[str]:
    """Return what each descriptor of a process leads to; those that are closed meanwhile are left out."""
    names = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            names.append(str(entry.readlink()))
        except FileNotFoundError:
            continue
    return names


def find_sockets(port: int) -> set[str]:
    """Return what both ends of every connection to a loopback port are called among descriptors, whoever has them.

    So connections to an inference server can be left out. Its own count is of no use for that: gateways of other tests
    keep connections to it too, and drop them some time.
    """
    found = set()
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if port in (int(address.partition(":")[2], 16) for address in fields[1:3]):
            found.add(f"socket:[{fields[9]}]")
    return found
