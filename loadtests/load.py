"""Put a gateway under load and report what it did.

    PYTHONPATH=tests .venv/bin/python loadtests/load.py run
    PYTHONPATH=tests .venv/bin/python loadtests/load.py capacity
    PYTHONPATH=tests .venv/bin/python loadtests/load.py run --target http://127.0.0.1:9000

Without a target it starts a simulated inference server and a gateway of its own, on free ports, with SQLite in a
temporary folder. Exits with 1 when a turn failed, with 2 when it cannot begin.
"""

import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import click
import msgspec
import tomli_w
from chain_report import write_tables
from document import Block, render_html, render_markdown, write_plots
from facts import Gauge, describe_machine, describe_versions, hash_plan
from http_caller import NoModel, find_model
from journal import COURSE_FILE, TURNS_FILE, read_course
from measure import FAILED, read_turns
from msgspec import Struct
from msgspec.structs import replace
from plan import KEY_VARIABLES, KINDS, PLAN_FILE, Plan, PlanError, load_plan, read_api_key
from processors import pinned
from report import Facts, Results, build_report

_ROOT = Path(__file__).parents[1]
_LOCUSTFILE = Path(__file__).with_name("locustfile.py")
_PAGE_MARK = "measured"
# After its master a worker ends by itself, unless the machine is very busy.
_END_SECONDS = 60.0


class Place(Struct, frozen=True, kw_only=True):
    """Who is asked.

    Attributes:
        target: URL of the gateway.
        upstream: URL of its inference server, to be asked directly; None is unknown.
        admin: URL of its admin listener; None is unknown.
        described: what the inference server is.
        settings: of the gateway.
        cpus: where the users run.
    """

    target: str
    upstream: str | None
    admin: str | None
    described: str
    settings: str
    cpus: frozenset[int]


class Crowd(Struct, frozen=True):
    """Who asks.

    Attributes:
        workers: processes on this machine; 0 has the one that reports ask too.
        remote: processes that come from elsewhere.
        bind: `host:port` where those find the one that reports.
    """

    workers: int
    remote: int
    bind: str


def _check_url(_: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/"):
        raise click.BadParameter("expected http://HOST:PORT without a path", param=parameter)
    if "@" in parts.netloc:
        raise click.BadParameter("credentials do not belong into it; use LOAD_API_KEY", param=parameter)
    return value.rstrip("/")


_OPTIONS = (
    click.option("--target", envvar="TARGET", metavar="URL", callback=_check_url, help="A gateway that runs already."),
    click.option(
        "--upstream",
        envvar="UPSTREAM",
        metavar="URL",
        callback=_check_url,
        help="The target's inference server, to be asked directly afterwards.",
    ),
    click.option(
        "--upstream-description",
        envvar="UPSTREAM_DESCRIPTION",
        metavar="TEXT",
        help="What that is: engine, version, model, hardware.",
    ),
    click.option(
        "--admin",
        envvar="ADMIN",
        metavar="URL",
        callback=_check_url,
        help="The target's admin listener, for its metrics.",
    ),
    click.option(
        "--plan", "file", envvar="LOAD_PLAN", type=click.Path(path_type=Path), default=PLAN_FILE, help="A TOML file."
    ),
    click.option("--set", "overrides", multiple=True, metavar="SECTION.KEY=VALUE", help="One key of the plan."),
    click.option("--users", envvar="USERS", type=int, help="Short for --set run.users=N."),
    click.option("--seconds", envvar="DURATION", type=float, help="Short for --set run.seconds=N."),
    click.option("--model", envvar="MODEL", help="Short for --set request.model=NAME."),
    click.option(
        "--workers", envvar="WORKERS", type=click.IntRange(0), default=0, help="Processes that ask; 0 needs none."
    ),
    click.option("--remote-workers", type=click.IntRange(0), default=0, help="Further ones, started elsewhere."),
    click.option("--bind", default="127.0.0.1:5557", show_default=True, help="Where those find this one."),
    click.option(
        "--out", envvar="OUT", type=click.Path(path_type=Path), help="Folder for the report; default: build/load/TIME."
    ),
    click.option(
        "--page", type=click.Path(path_type=Path), help="A Markdown page that gets the report between its marks."
    ),
)


# What make hands over.
_VARIABLES = {
    "target": "TARGET",
    "upstream": "UPSTREAM",
    "upstream_description": "UPSTREAM_DESCRIPTION",
    "admin": "ADMIN",
    "users": "USERS",
    "seconds": "DURATION",
    "model": "MODEL",
    "workers": "WORKERS",
}


@click.group(help=__doc__.partition("\n")[0])
def main() -> None: ...


def _with_options(command):
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@main.command()
@_with_options
def run(**options) -> None:
    """Load a gateway as the plan says and report what it did."""
    sys.exit(_lead("Load run", options, {}))


@main.command()
@_with_options
def capacity(**options) -> None:
    """Take more and more users until the objectives are missed, and report the highest step that met them."""
    sys.exit(_lead("Capacity", options, {"run": {"shape": "steps"}, "control": {"seconds": 0.0}}))


def _lead(title: str, options: dict, fixed: Mapping[str, Mapping[str, object]]) -> int:
    # Whatever was started is stopped.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _run(title, options, fixed)
    except (PlanError, NoModel) as error:
        click.echo(f"error: {error}", err=True)
        return 2


def _run(title: str, options: dict, fixed: Mapping[str, Mapping[str, object]]) -> int:
    environ = dict(os.environ)
    plan = _choose_plan(options, environ).vary(**fixed)
    if plan.run.shape == "manual":
        raise PlanError("run.shape: manual is for Locust alone: locust -f loadtests/locustfile.py")
    read_api_key(environ)
    began = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    out: Path = options["out"] or _ROOT / "build" / "load" / time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    crowd = Crowd(options["workers"], options["remote_workers"], options["bind"])
    with _find_place(options, plan) as (place, plan):
        click.echo(f"{place.target} is asked by {_count_users(plan)}", err=True)
        results = _measure(place.target, plan, place, crowd, out, admin=place.admin)
        control = _measure_directly(plan, place, crowd, out)
    facts = Facts(
        title=title,
        began=began,
        target=place.target if options["target"] else "a gateway started for this run, on loopback",
        upstream=place.described,
        machine=describe_machine(),
        versions=describe_versions(),
        settings=place.settings,
        digest=hash_plan(results.plan),
        command=_repeat_command("capacity" if plan.run.shape == "steps" else "load", options, environ),
    )
    _write(out, facts, results, control, options["page"])
    click.echo(f"report: {out / 'report.html'}", err=True)
    return _conclude(results, control)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _choose_plan(options: dict, environ: Mapping[str, str]) -> Plan:
    short = {"run.users": "users", "run.seconds": "seconds", "request.model": "model"}
    given = [f"{key}={options[name]}" for key, name in short.items() if options[name] is not None]
    return load_plan(options["file"], environ, [*given, *options["overrides"]])


@contextmanager
def _find_place(options: dict, plan: Plan) -> Iterator[tuple[Place, Plan]]:
    """Yield who is asked, started if there is no target, and the plan that fits."""
    cpus = frozenset(os.sched_getaffinity(0))
    if options["target"]:
        yield (
            Place(
                target=options["target"],
                upstream=options["upstream"],
                admin=options["admin"],
                described=options["upstream_description"] or "not described; UPSTREAM_DESCRIPTION says what it is",
                settings="those of the target",
                cpus=cpus,
            ),
            plan,
        )
        return
    # Only here, because it comes with databases and all else that tests need.
    from chain_rig import Rig  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="gateway-load-") as folder, Rig(Path(folder), ["sqlite"]) as rig:
        pace = plan.rig.pace_seconds
        request = {"model": f"sim-slow-{pace:.6f}", "echo": True}
        place = Place(
            target=f"http://127.0.0.1:{rig.port('sqlite')}",
            upstream=f"http://127.0.0.1:{rig.port('none')}",
            admin=rig.admin_url("sqlite"),
            described=f"gateway simulate on the same machine: no model and no GPU, a token each {pace * 1000:g} ms",
            settings="defaults with SQLite, logging errors only; alone on one CPU if there are several",
            cpus=frozenset(sorted(cpus)[1:]) or cpus,
        )
        yield place, plan.vary(request=request)


def _measure(host: str, plan: Plan, place: Place, crowd: Crowd, out: Path, *, admin: str | None = None) -> Results:
    """Have Locust ask a server, and return what it measured."""
    if not plan.request.model:
        plan = plan.vary(request={"model": find_model(host, read_api_key(os.environ))})
    out.mkdir(parents=True, exist_ok=True)
    (out / "plan.toml").write_text(tomli_w.dumps(msgspec.to_builtins(plan)))
    # What an earlier run left is no result of this one.
    (out / COURSE_FILE).unlink(missing_ok=True)
    with Gauge(admin) as gauge:
        code = _run_locust(host, plan, place, crowd, out)
    if not (out / COURSE_FILE).exists():
        click.echo(f"error: Locust ended with {code} and measured nothing; see {out / 'locust.log'}", err=True)
        sys.exit(2)
    return Results(plan=plan, turns=list(read_turns(out / TURNS_FILE)), course=read_course(out), usage=gauge.usage)


def _measure_directly(plan: Plan, place: Place, crowd: Crowd, out: Path) -> Results | None:
    """Ask the inference server itself, if that is known and wanted."""
    if place.upstream is None or not plan.control.seconds:
        return None
    direct = plan_control(plan)
    click.echo(f"the inference server is asked directly by {_count_users(direct)}", err=True)
    # Workers from elsewhere have ended with the run they came for.
    return _measure(place.upstream, direct, place, replace(crowd, remote=0), out / "control")


def plan_control(plan: Plan) -> Plan:
    """Return the plan that asks an inference server what a gateway asks it, with as many requests at once."""
    weights = plan.weights
    at_once = {kind: weight * (plan.lanes.count if kind == "lanes" else 1) for kind, weight in weights.items()}
    total, json = sum(at_once.values()), at_once.get("json", 0)
    return plan.vary(
        run={
            "shape": "constant",
            "users": max(round(plan.run.users * total / sum(weights.values())), 1),
            "seconds": plan.control.seconds,
            "warmup_seconds": min(plan.run.warmup_seconds, plan.control.seconds / 3),
        },
        # An inference server knows neither WebSockets nor what it said before.
        mix={**dict.fromkeys(KINDS, 0), "json": json, "sse": total - json},
    )


def _run_locust(host: str, plan: Plan, place: Place, crowd: Crowd, out: Path) -> int:
    """Run Locust to its end and return its exit code; its own log goes to a file."""
    command = [sys.executable, "-m", "locust", "-f", str(_LOCUSTFILE), "--headless", "--only-summary"]
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith("LOAD_") or name in KEY_VARIABLES
    }
    environ |= {"LOAD_PLAN": str(out / "plan.toml"), "LOAD_OUT": str(out), "PYTHONUNBUFFERED": "1"}
    expected = crowd.workers + crowd.remote
    bind, _, port = crowd.bind.rpartition(":")
    if not crowd.remote:
        bind, port = "127.0.0.1", _find_port()
    with ExitStack() as running, (out / "locust.log").open("wb") as log:

        def start(*arguments: str, output) -> subprocess.Popen:
            with pinned(place.cpus):
                process = subprocess.Popen([*command, *arguments], env=environ, stdout=output, stderr=log)
            running.callback(_end, process)
            return process

        master = ["--master", "--master-bind-host", bind, "--master-bind-port", port]
        master += ["--expect-workers", str(expected), "--expect-workers-max-wait", str(plan.run.workers_wait_seconds)]
        leader = start("--host", host, *(master if expected else ()), output=None)
        for _ in range(crowd.workers):
            start("--worker", "--master-host", "127.0.0.1", "--master-port", port, output=log)
        return leader.wait()


def _find_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def _end(process: subprocess.Popen) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _write(out: Path, facts: Facts, results: Results, control: Results | None, page: Path | None) -> None:
    from plots import draw_lines  # noqa: PLC0415 - what only asks has no need of it

    blocks: list[Block] = build_report(facts, results, control, draw_lines)
    (out / "report.md").write_text(render_markdown(blocks))
    (out / "report.html").write_text(render_html(f"{facts.title} of {facts.began}", blocks))
    write_plots(out, blocks)
    if page is not None:
        plots = page.with_suffix("")
        write_tables(page, render_markdown(blocks[1:], f"{plots.name}/"), _PAGE_MARK)
        write_plots(plots, blocks)


def _conclude(results: Results, control: Results | None) -> int:
    turns = [*results.turns, *(control.turns if control else ())]
    failed = sum(turn.outcome == FAILED for turn in turns)
    if results.course.steps:
        met = results.course.objectives_met
        click.echo("no step met the objectives" if met is None else f"{met} users met the objectives", err=True)
        return 0 if met is not None else 1
    click.echo(f"{len(turns):,} turns, {failed} failed", err=True)
    if results.course.lost:
        click.echo(f"no last word came from {', '.join(results.course.lost)}", err=True)
    return 1 if failed or results.course.lost or not results.turns else 0


def _count_users(plan: Plan) -> str:
    return "more and more users" if plan.run.shape == "steps" else f"{plan.run.users} users for {plan.run.seconds:g} s"


def _repeat_command(name: str, options: Mapping[str, object], environ: Mapping[str, str]) -> str:
    """Return the command that does a run again; a key is never part of it."""
    keys = {key: value for key, value in environ.items() if key.startswith("LOAD_") and key not in KEY_VARIABLES}
    variables = {key: options[option] for option, key in _VARIABLES.items() if options[option]}
    arguments = [f"--set {shlex.quote(override)}" for override in options["overrides"]]
    if options["remote_workers"]:
        arguments += [f"--remote-workers {options['remote_workers']} --bind {options['bind']}"]
    variables |= {"ARGS": " ".join(arguments)} if arguments else {}
    words = [f"{key}={shlex.quote(str(value))}" for key, value in (variables | keys).items()]
    return " ".join(["make", name, *words])


if __name__ == "__main__":
    main()
