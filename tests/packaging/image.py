"""Check an unpacked image by running it, as a hardened runtime would and without one; `.ci/image` calls this.

    unshare --net sh -c 'ip link set lo up; .venv/bin/python tests/packaging/image.py BUNDLE IMAGE_JSON'

BUNDLE is what `umoci unpack` made, IMAGE_JSON what `buildah inspect` says. Containers are those of the default profile
of docker-compose.yml: the image's own user, directory, environment and entry point, the file's variables and command, a
read-only root, a tmpfs on /tmp, one writable data directory, processes of their own, and no capability. Needs root, and
ports of the image that nobody uses.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.client import client, open_create, read_until
from harness.compose import read_compose

GATEWAY, ADMIN, SIMULATOR, COLLECTOR = 9000, 9901, 8000, 4318
MODEL, TEXT = "fixture-640-8", "x" * 640
START_SECONDS, STOP_SECONDS = 30, 20

# The root is bound onto itself, so that it can be read-only here and stay as it is for everybody else.
ENTER = """
set -eu
root=$1 data=$2; shift 2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o size=16m,mode=755 tmpfs "$root/dev"
for device in null zero random urandom; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mount -t tmpfs -o size=64m,mode=1777,nosuid,nodev tmpfs "$root/tmp"
mount --bind "$data" "$root/var/lib/gateway"
# The services' names, which a runtime's own name server would know.
echo "127.0.0.1 localhost gateway simulator otel-collector" >"$root/dev/hosts"
touch "$root/etc/hosts"
mount --bind "$root/dev/hosts" "$root/etc/hosts"
mount -o remount,bind,ro "$root"
exec chroot "$root" "$@"
"""


class Image:
    """What the image says about itself.

    Args:
        bundle: the unpacked image.
        inspected: what buildah knows of it, in Docker's form too.
    """

    def __init__(self, bundle: Path, inspected: Path) -> None:
        process = json.loads((bundle / "config.json").read_text())["process"]
        self.root = bundle / "rootfs"
        self.environment: list[str] = process["env"]
        self.user: Mapping[str, Any] = process["user"]
        self.folder: str = process["cwd"]
        self.docker = json.loads(inspected.read_text())["Docker"]["config"]

    def enter(self, data: Path, environment: Mapping[str, str], arguments: Sequence[str]) -> list[str]:
        """Return the command line that runs a program in the image, its first process being that program."""
        uid, gid = str(self.user["uid"]), str(self.user["gid"])
        bare = ["--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs"]
        program = ["env", "-i", f"--chdir={self.folder}", *self.environment]
        program += [f"{name}={value}" for name, value in environment.items()]
        return [
            *("unshare", "--mount", "--pid", "--fork", "--propagation", "private"),
            *("sh", "-c", ENTER, "sh", str(self.root), str(data)),
            *("setpriv", f"--reuid={uid}", f"--regid={gid}", *bare, *program, *arguments),
        ]


class Container:
    """One running container of a service.

    Attributes:
        log: everything it wrote.
    """

    def __init__(self, image: Image, data: Path, service: Mapping[str, Any]) -> None:
        command = [*image.docker["Entrypoint"], *service.get("command", image.docker["Cmd"])]
        self._log = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - it lives as long as the container
        self._process = subprocess.Popen(
            image.enter(data, service.get("environment", {}), command),
            stdout=self._log,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
        )

    @property
    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    @property
    def init(self) -> int:
        """Process id, seen from outside, of the container's first process."""
        return children(self._process.pid)[0]

    @property
    def worker(self) -> int:
        """Process id, seen from outside, of the process behind tini."""
        return children(self.init)[0]

    def await_ready(self, port: int, path: str) -> None:
        """Wait until the path answers 200."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            require(self._process.poll() is None, f"the container runs on: {self.log}", quiet=True)
            require(time.monotonic() < deadline, f"{path} answers in {START_SECONDS} s: {self.log}", quiet=True)
            try:
                with client(port) as caller:
                    if caller.get(path).status == 200:
                        return
            except OSError:
                pass
            time.sleep(0.05)

    def stop(self) -> int:
        """Send what a runtime sends, and return the exit code."""
        os.kill(self.init, signal.SIGTERM)
        return self._process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """End it without asking: its first process, with which all others go."""
        if self._process.poll() is None:
            os.kill(self.init, signal.SIGKILL)
            self._process.wait(STOP_SECONDS)


def children(pid: int) -> list[int]:
    """Return the process ids of a process's children."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def running(image: Image, data: Path, service: Mapping[str, Any], port: int, path: str) -> Iterator[Container]:
    """A container that answers and is healthy, and is gone at the end."""
    container = Container(image, data, service)
    try:
        container.await_ready(port, path)
        check_health(image, data, service, service["healthcheck"]["test"], code=0)
        yield container
    finally:
        container.kill()


def main(bundle: str, inspected: str) -> int:
    image = Image(Path(bundle), Path(inspected))
    services = read_compose()["services"]
    gateway, simulator = services["gateway"], services["simulator"]
    check_labels(image)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        os.chown(data, image.user["uid"], image.user["gid"])
        with running(image, data, simulator, SIMULATOR, "/health"):
            with running(image, data, gateway, GATEWAY, "/readyz") as container:
                check_confinement(image, container, data)
                check_health(image, data, gateway, image.docker["Healthcheck"]["Test"], code=0)
                first = check_stream()
                check_drain(container)
                require("Traceback" not in container.log, f"its log is clean:\n{container.log}", quiet=True)
            check_health(image, data, gateway, gateway["healthcheck"]["test"], code=1)
            with running(image, data, gateway, GATEWAY, "/readyz") as container:
                check_kept(first)
                require(container.stop() == 0, "it exits with 0 again")
            with running(image, data, _without_posture(gateway), GATEWAY, "/readyz"):
                check_keys(image, data)
            traced = read_compose({"OTEL_TRACES_EXPORTER": "otlp"})["services"]["gateway"]
            with collecting() as spans, running(image, data, traced, GATEWAY, "/readyz") as container:
                check_stream()
                container.stop()
                require(spans.received, "it sends spans to the collector")
    return 0


class Collector(HTTPServer):
    """Stands for a collector of spans."""

    received = False


class Export(BaseHTTPRequestHandler):
    """One export by OTLP."""

    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received |= self.path == "/v1/traces" and b"responses-gateway" in body
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that answers where the compose file has one."""
    with Collector(("127.0.0.1", COLLECTOR), Export) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def check_labels(image: Image) -> None:
    """What registries and runtimes read."""
    labels = image.docker["Labels"]
    require(labels["org.opencontainers.image.title"] == "Responses Gateway", "labels name it")
    require(labels["org.opencontainers.image.revision"] != "unknown", "labels name the commit")
    require(image.docker["StopSignal"] in {"SIGTERM", "15"}, "it is stopped by SIGTERM")
    require(image.docker["User"] == "10001:10001", "it runs as 10001")
    require(image.docker["Healthcheck"]["Test"][-2:] == ["gateway", "health"], "it has a health check")


def check_confinement(image: Image, container: Container, data: Path) -> None:
    """Nobody's rights, and nowhere to write but where it should."""
    lines = Path(f"/proc/{container.worker}/status").read_text().splitlines()
    status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    require(set(status["Uid"]) == {"10001"} and set(status["Gid"]) == {"10001"}, "user and group are 10001")
    require(not any(int(status[name][0], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")), "no capability")
    require(status["NoNewPrivs"] == ["1"], "no new privileges")
    for path, code in (("/x", 1), ("/opt/gateway/x", 1), ("/etc/gateway/x", 1), ("/tmp/x", 0), ("x", 0)):
        said = run(image, data, "touch", path, code=code)
        require(code == 0 or "Read-only file system" in said, f"{path} is on a read-only system: {said}", quiet=True)
    require(True, "nothing can be written but /tmp and the data directory")


def check_health(image: Image, data: Path, service: Mapping[str, Any], test: Sequence[str], *, code: int) -> None:
    """A health check, as a runtime runs it."""
    kind, *command = test
    require(kind == "CMD", f"{test} needs no shell", quiet=True)
    run(image, data, *command, environment=service.get("environment", {}), code=code)
    require(True, f"{' '.join(word for word in command if ' ' not in word)} exits with {code}")


def check_stream() -> str:
    """A streamed answer and the metrics of it; returns the response's id."""
    with client(GATEWAY) as caller, client(ADMIN) as operator:
        refused = caller.call("GET", "/v1/models", headers={"Host": "rebound.example"})
        require(refused.status == 403, "it refuses names that are not its own")
        answer = caller.create({"model": MODEL, "input": "hi", "stream": True})
        require(answer.deltas() == TEXT, "it streams the whole answer")
        require(answer.final["status"] == "completed", "the stream ends with response.completed")
        require(b"gateway_responses_total{" in operator.get("/metrics").body, "metrics count it")
    return answer.final["id"]


def check_drain(container: Container) -> None:
    """An answer that runs when a runtime stops the container comes to its end."""
    stream = open_create(GATEWAY, {"model": "sim-slow-0.1", "input": "hi", "stream": True})
    with stream:
        read_until(stream, b"response.output_text.delta")
        code = container.stop()
        rest = read_until(stream, b"[DONE]")
    require(b"response.completed" in rest, "an answer that runs on SIGTERM comes to its end")
    require(code == 0, "then it exits with 0")


def check_kept(response_id: str) -> None:
    """What was stored before the restart is there, and goes on."""
    with client(GATEWAY) as caller:
        require(caller.get(f"/v1/responses/{response_id}").status == 200, "it kept the response")
        answer = caller.create({"model": MODEL, "input": "go on", "previous_response_id": response_id})
        require(answer.status == 200, "it continues the response")


def check_keys(image: Image, data: Path) -> None:
    """Unless it is told otherwise, callers need a key, and one can be made inside."""
    # The key alone is on stdout, which comes first.
    key = run(image, data, "gateway", "keys", "create", "--principal", "ada", code=0).splitlines()[0]
    with client(GATEWAY) as caller:
        require(caller.get("/v1/models").status == 401, "without the compose file's posture callers need a key")
        answer = caller.call("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})
        require(answer.status == 200, "a key that is made inside lets them in")


def _without_posture(service: Mapping[str, Any]) -> dict[str, Any]:
    environment = {name: value for name, value in service["environment"].items() if "_AUTH__" not in name}
    return {**service, "environment": environment}


def run(image: Image, data: Path, *command: str, code: int, environment: Mapping[str, str] | None = None) -> str:
    """Run one program in the image, which must end with this code, and return what it says."""
    entered = image.enter(data, environment or {}, command)
    done = subprocess.run(entered, capture_output=True, text=True, timeout=60, check=False)
    said = done.stdout + done.stderr
    require(done.returncode == code, f"{' '.join(command)} ends with {code}, not {done.returncode}: {said}", quiet=True)
    return said


def require(true: bool, what: str, *, quiet: bool = False) -> None:
    """Tell what holds, and stop at the first thing that does not."""
    if not true:
        sys.exit(f"does not hold: {what}")
    if not quiet:
        print(f"        {what}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
