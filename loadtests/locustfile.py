"""Locust's way in: users of every kind, by the plan, with every sample kept.

    locust -f loadtests/locustfile.py --headless -H http://127.0.0.1:9000

The plan is load.toml unless `--load-plan` names another; the process that reports sends it to the workers. The API key
is `LOAD_API_KEY`, or in the file that `LOAD_API_KEY_FILE` names, in each process.
"""

import os
import sys
import time
from pathlib import Path

import gevent
import msgspec
from http_caller import NoModel, find_model
from journal import Batch, Journal, Recorder, read_clock
from locust import LoadTestShape, events
from locust.runners import MasterRunner, WorkerRunner
from measure import FAILED, Summary, summarize
from plan import PLAN_FILE, Plan, PlanError, load_plan, read_api_key
from shapes import Staircase, choose_shape
from users import USERS, ChainUser, JsonUser, LanesUser, SseUser, WebSocketChainUser, WebSocketUser

__all__ = ["ChainUser", "Course", "JsonUser", "LanesUser", "SseUser", "WebSocketChainUser", "WebSocketUser"]

_FLUSH_SECONDS = 1.0
# Until what was measured has come from the workers, and until their last word has.
_LAG_SECONDS = 2.0
_LAST_SECONDS = 10.0
_MESSAGE = "turns"


@events.init_command_line_parser.add_listener
def add_options(parser):
    options = parser.add_argument_group("Load")
    options.add_argument("--load-plan", env_var="LOAD_PLAN", default=str(PLAN_FILE), help="a TOML file")
    options.add_argument("--load-out", env_var="LOAD_OUT", help="folder for what is measured; default: build/load/TIME")


@events.init.add_listener
def prepare(environment, runner, **_):
    """Give a process its part: one that asks keeps what it sees, the one that reports collects it."""
    try:
        environment.api_key = read_api_key(os.environ)
        if isinstance(runner, WorkerRunner):
            Correspondent(environment)
            return
        plan = load_plan(Path(environment.parsed_options.load_plan), os.environ)
    except PlanError as error:
        sys.exit(f"error: {error}")
    Conductor(environment, plan)


class Correspondent:
    """Sends what a worker has measured to the process that reports.

    Args:
        environment: Locust's.
    """

    def __init__(self, environment) -> None:
        self._runner = environment.runner
        self._recorder = environment.recorder = Recorder(self._runner.client_id)
        self._sending = gevent.Greenlet()
        environment.events.test_start.add_listener(self._begin)
        environment.events.test_stop.add_listener(self._end)

    def _begin(self, **_) -> None:
        self._recorder.begin()
        self._sending = gevent.spawn(_repeat, _FLUSH_SECONDS, self._send)

    def _end(self, **_) -> None:
        self._sending.kill()
        self._send(last=True)

    def _send(self, *, last: bool = False) -> None:
        batch = msgspec.msgpack.encode(self._recorder.take(last=last))
        self._runner.send_message(_MESSAGE, {"batch": batch})


class Conductor:
    """Leads a run in the process that reports, with or without workers.

    Args:
        environment: Locust's.
        plan: of the run.
    """

    def __init__(self, environment, plan: Plan) -> None:
        self._environment = environment
        self._runner = environment.runner
        self._plan = plan
        self._distributed = isinstance(self._runner, MasterRunner)
        self._shape = choose_shape(plan, _LAG_SECONDS if self._distributed else 0.0)
        self._journal: Journal | None = None
        self._greenlets: list[gevent.Greenlet] = []
        environment.recorder = Recorder("local")
        environment.stop_timeout = plan.run.timeout_seconds + 1
        environment.user_classes = _weigh(plan)
        environment.parsed_options.load_plan_text = msgspec.json.encode(plan).decode()
        if plan.run.shape == "manual":
            environment.shape_class = None
        else:
            environment.shape_class.conductor = self
        if self._distributed:
            self._runner.register_message(_MESSAGE, self._receive)
        environment.events.test_start.add_listener(self.begin)
        environment.events.test_stopping.add_listener(self._note_end)
        environment.events.test_stop.add_listener(self._halt)
        environment.events.quitting.add_listener(self._quit)

    def begin(self, **_) -> None:
        """Begin a run; whatever an earlier one measured is written anew."""
        environment = self._environment
        options = environment.parsed_options
        try:
            options.load_model = self._plan.request.model or find_model(environment.host, environment.api_key)
        except NoModel as error:
            sys.exit(f"error: {error}")
        environment.recorder.begin()
        folder = options.load_out or f"build/load/{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
        steps = self._plan.steps
        longest_step = steps.settle_seconds + steps.hold_seconds + _LAG_SECONDS + 2 * _FLUSH_SECONDS
        longest_look = self._plan.run.progress_seconds + _LAG_SECONDS + _FLUSH_SECONDS
        self._journal = Journal(Path(folder), max(longest_step, longest_look))
        self._greenlets = [
            gevent.spawn(_repeat, _FLUSH_SECONDS, self._flush),
            gevent.spawn(_repeat, self._plan.run.progress_seconds, self._tell),
        ]

    def tick(self) -> tuple[int, float] | None:
        """Return how many users there are to be, and how many may be started a second; None ends the run."""
        self._flush()
        # The first answer is what makes the run begin.
        users = self._shape.count_users(self._since_begin() if self._journal else 0.0, self._judge)
        if users is not None:
            return users, float(users)
        self._runner.stop()
        self._await_workers()
        return None

    def _judge(self, begin: float, end: float) -> Summary:
        return summarize(self._journal.look_back(begin, end), end - begin, self._plan.slo)

    def _since_begin(self) -> float:
        return (read_clock() - self._journal.course.began) / 1e6

    def _receive(self, msg, **_) -> None:
        self._journal.write(msgspec.msgpack.decode(msg.data["batch"], type=Batch))

    def _flush(self) -> None:
        if self._journal is not None and not self._distributed:
            self._journal.write(self._environment.recorder.take())

    def _tell(self) -> None:
        self._flush()
        now, span = self._since_begin(), self._plan.run.progress_seconds
        lag = _LAG_SECONDS if self._distributed else 0.0
        seen = summarize(self._journal.look_back(now - lag - span, now - lag), span, self._plan.slo)
        ttft = f"{seen.ttft.p50 / 1000:.1f}" if seen.ttft.n else "-"
        print(
            f"{now:6.0f} s  {self._runner.user_count:4} users  {seen.turns_per_second:7.1f} turns/s  "
            f"TTFT p50 {ttft:>7} ms  {self._journal.counts[FAILED]:4} failed",
            flush=True,
        )

    def _note_end(self, **_) -> None:
        self._journal.course.ended = read_clock()

    def _await_workers(self) -> None:
        if not self._distributed:
            return
        with gevent.Timeout(_LAST_SECONDS, False):
            while not self._journal.finished.issuperset(self._journal.course.cpu):
                gevent.sleep(0.05)

    def _halt(self, **_) -> None:
        for running in self._greenlets:
            running.kill()
        self._flush()

    def _quit(self, **_) -> None:
        if self._journal is None:
            self._environment.process_exit_code = 1
            return
        course = self._journal.course
        if self._distributed:
            course.lost = sorted(course.cpu.keys() - self._journal.finished)
        if isinstance(self._shape, Staircase):
            course.steps = [msgspec.to_builtins(step) for step in self._shape.steps]
            course.objectives_met = self._shape.highest
        self._journal.close()
        # To look for the step that misses the objectives is not to fail.
        failed = course.lost or (self._journal.counts[FAILED] and not course.steps)
        self._environment.process_exit_code = 1 if failed or not self._journal.counts["turns"] else 0


class Course(LoadTestShape):
    """Has the plan say how many users there are."""

    use_common_options = True
    conductor: Conductor

    def tick(self):
        return self.conductor.tick()


def _weigh(plan: Plan) -> list[type]:
    chosen = [user for user in USERS if user.kind in plan.weights]
    for user in chosen:
        user.weight = plan.weights[user.kind]
    return chosen


def _repeat(seconds: float, act) -> None:
    while True:
        gevent.sleep(seconds)
        act()
