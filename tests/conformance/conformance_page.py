"""Write which tests exclude which faults: `python -m conformance.conformance_page` from the folder of the tests.

A test says it itself, by the marker `checklist` with the numbers of the rows, or, for runs of several agents, by the
marker `agents`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from conformance.agent_rows import AGENT_SECTIONS

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs/reference/conformance.md"
MARKER = "checklist"
AGENTS = "agents"
_UNSHOWN = "**not shown yet**"

_HEAD = """\
<!-- Written by `python -m conformance.conformance_page` in `tests`; change that, or the markers of the tests. -->

# Conformance: faults of such gateways and the tests that exclude them

Gateways of this kind fail in the same ways again and again. Each row names one way as the behaviour that excludes it,
and the tests that fail without it. Those in `integration` run against a process of the gateway with a scripted
inference server behind it; where their file is named `websocket` the client speaks WebSocket on a raw socket.

Rows up to 62 about rounds of tools are shown for tools of both kinds, those that the caller runs and the gateway's own.
Runs of several agents, injecting, steering and recording have rows with numbers of their own, behind the others.
"""

SECTIONS: dict[str, dict[int, str]] = {
    "Connecting": {
        1: "Upgrades and POST requests share one path, and neither hides the responses below it.",
        2: "A GET without an upgrade is answered 426 with an error in JSON.",
        3: "The model may come in the query of the upgrade; the one in the message wins; without any it is refused.",
        4: "Where WebSockets are switched off the upgrade is refused; nobody gets a socket that then fails.",
        5: "With several inference servers each create goes to the one that serves its model.",
        6: "Who may not call is told before the upgrade, which then does not happen.",
        7: "Logs, metrics, tracing and admission around every request leave the upgrade alone.",
        8: "Accepted sockets send small writes at once.",
        9: "A ping is answered at once, between turns and during one.",
        10: "A binary message is an error, and the connection stays.",
        11: "Text that is no JSON and JSON that is no event have different codes, and the connection stays.",
        12: "An unknown event is named in an error that echoes its `event_id`, and the connection stays.",
        13: "A create may be flat or nested; both give the same events.",
        14: "`stream` is not looked at, and `background` is refused by name.",
        15: "`conversation` is answered the same over both transports.",
        16: "A client that does not read is left at a deadline, in bounded memory; one that reads on loses nothing.",
        17: "A connection ends after its lifetime: an error says so, then a Close; turns have a grace.",
        18: "A client that never answers a Close is let go all the same, and nothing of it is held.",
        19: "Nothing follows a Close.",
        20: "A stop tells every socket, lets turns end, refuses what waits, and leaves nothing running.",
    },
    "Scheduling": {
        21: "Creates of one lane run in order, one at a time; lanes run beside each other.",
        22: "A create that is sent on seeing the end of another one, or waits behind it, is never forgotten.",
        23: "Slow storage holds up the lane whose response it stores, and nothing else.",
        24: "A failure, and a fault of the program too, ends one turn; its lane and all others go on.",
        25: "A client that leaves ends its inference at once.",
        26: "A client that leaves while its response is stored finds it afterwards.",
        27: "`generate: false` asks no model, and its response can be continued.",
        28: "A client that leaves while such a response is stored finds it afterwards.",
        29: "Creates are admitted, not connections: an idle socket holds nothing.",
        30: "The same calls count the same over both transports.",
    },
    "Events": {
        31: "A frame is one JSON object and nothing around it.",
        32: "A refusal of the inference server is an error with its status, never an empty answer.",
        33: "An error in the middle of a stream is one `response.failed`; nothing is stored and nothing remembered.",
        34: "Events that nobody knows are passed over.",
        35: "A stream that is cut off ends as failed, over every transport.",
        36: "A length limit is `response.incomplete` with its reason, and keeps what was said.",
        37: "Every turn has exactly one end, whichever way it comes to it.",
        38: "Both transports tell the same end.",
        39: "Function calls with their call ids are in the events and in the final output.",
        40: "A continuation holds all calls and outputs of the turns before it.",
        41: "What is stored is what was streamed, item by item.",
        42: "One response has one id, in its events, in memory and in storage.",
        43: "`sequence_number` counts from 0 without a gap, in failures too.",
        44: "Usage is that of the whole response.",
    },
    "Continuing and storing": {
        45: "Continuing a connection's latest response asks the database nothing and writes what HTTP writes.",
        46: "What the connection does not remember is read from storage, if it was stored.",
        47: "An unstored response is continued on its connection, cannot be read, and is unknown on any other.",
        48: "After a failed continuation its parent is forgotten, or kept where the operator says so.",
        49: "A failed fork on another lane, and a refused admission, leave the parent alone.",
        50: "A failed response is neither stored nor continued.",
        51: "The output of a call needs the call: in the input, or in the response it continues.",
        52: "What a connection remembers is bounded, and gone with it.",
        53: "Responses with tool calls are stored and continued, over both transports.",
        54: "One caller's responses do not exist for another.",
        55: "An unknown parent has one code and status over both transports.",
        56: "Type, code, param and status of the inference server reach the caller; a huge error body does not.",
        57: "The error about an unknown response names its id.",
        58: "Both transports check a request with the same code.",
        59: "The same request gets the same text, items and usage over both transports.",
        60: "Every error code is listed in the documentation.",
        61: "An engine may repeat its ids; ours never do, and storage does not mind.",
        62: "What is the caller's fault opens no circuit breaker.",
    },
    "Tools that the client runs": {
        101: "The API's client tools are offered as functions, and a call comes back as the item the API has for it.",
        102: "The output of such a call answers that call, and reaches the model as the output of a function.",
        103: "Every transport tells such a call the same, and shell commands one by one.",
        104: "Names are unique, at most 64 characters, come back as what they were, and stay over the turns.",
        105: "Whatever a model writes as arguments, in whatever pieces, becomes the same valid item.",
        106: "Tools that a search or the input brings are offered from then on; deferred ones wait for a search.",
        107: "A tool that only a server could run is left out and named, and asking for it by `tool_choice` refused.",
    },
    "Rounds of tools": {
        601: "The model is asked, its calls are run and it is asked again: one response with one id and one end.",
        602: "Calls of a round run at once, within a bound over all responses, and are told in their order.",
        603: "`max_tool_calls` and the cap on rounds bring even a model that always calls to an end.",
        604: "A call of the client's ends the turn, after the gateway's calls of that round were run.",
        605: "What has to be called is required of the first round, what may be called holds for all of them.",
        606: "Rounds, outputs and listings share one limit to the byte; a breach stores nothing, other lanes go on.",
        607: "A tool that never answers, returns too much or breaks is a failed call; the response goes on.",
        608: "A tool that has the gateway call it again runs into the bounds, and its caller is answered.",
        609: "Calls that share an id are calls of their own; an output for another's call is refused.",
        610: "Who leaves, a stop and the deadline end calls and listings at once.",
    },
    "MCP": {
        201: "Servers come from the request or, by their label, from the configuration; both are called over HTTP.",
        202: "Programs come from the configuration alone, get few variables, and end with everything they started.",
        203: "Listings and calls are items with their events, the same over every transport, stored as they were told.",
        204: "A request says which tools may be used, and the operator too; what a model cannot take is left out.",
        205: "A call to be approved ends the turn and is run, or declined, in the next one; each is answered once.",
        206: "Servers and tools of one request are bounded; labels and names for the model tell all of them apart.",
        207: "Discovery, messages, events, streams and output are counted while they are read, and not read beyond.",
        208: "Sessions with configured servers are kept for each caller, bounded, and replaced when they have died.",
        209: "A request leads to hosts and public addresses that it may, whatever names, redirects and proxies say.",
        210: "Headers and credentials go to their server and are never shown: not in answers, errors, logs or spans.",
        211: "A dead, slow or wrong server is a failed item in time; the turn goes on, and so do other calls.",
        212: "The context of the trace goes into `_meta`; who gives up a call has the server told.",
        213: "What a server asks of its client is declined.",
        214: "What a conversation holds of a server's tools is not asked for again.",
    },
    "Web search": {
        301: "`web_search`, `web_search_preview` and both with a date are one tool; a wrong declaration is named.",
        302: "Whom the configuration names is asked, each provider its way, with a key from a file or the environment.",
        303: "An answer of the provider is bounded in time, and in bytes while it arrives; it leads nowhere else.",
        304: "What one search tells the model is bounded, with all its queries.",
        305: "A search is one item with its events, the same over every transport, stored as it was told.",
        306: "Sources and results are in the item for a client that includes them, and for no other.",
        307: "What a message cites becomes annotations before its text is done, however the engine spells it.",
        308: "A search that fails is a failed item, and the response goes on.",
        309: "A continuation tells the model what was searched for, and the sources if the item has them.",
    },
    "Background responses": {
        501: "`background: true` is answered at once, queued, and durable before it is answered.",
        502: "Polling shows it in progress, then as it ended, from every gateway of the database.",
        503: "It has to be stored, and a WebSocket refuses it by name.",
        504: "With `stream: true` its events are streamed, and leaving ends nothing but the stream.",
        505: "Behind `starting_after` come the stored events, then the live ones, each once and in order, to the end.",
        506: "Any replica tells them while another one makes the response.",
        507: "Only what was created with `stream: true` has events to read.",
        508: "Events are kept as long as the configuration says, then they are gone by name; the response stays.",
        509: "A cancel ends the inference and keeps the output so far; again, it changes nothing.",
        510: "A cancel works on every replica.",
        511: "A cancel at the very end is completed or cancelled, and told and stored are the same.",
        512: "What is not in the background cannot be cancelled, nor what is not there.",
        513: "A response whose process is killed before it told any output is begun anew, so many times at most.",
        514: "One that has told output ends as failed, one that was cancelled as cancelled; none stays unfinished.",
        515: "A replica that stops lets responses end, then hands them over, or ends them as failed with their output.",
        516: "One that has not ended cannot be continued, by name; one that has can.",
        517: "A delete ends the inference.",
        518: "How many run and wait, how long, and how many bytes of events, is bounded.",
        519: "The OpenAI library polls, streams, reads on and cancels.",
        520: "An outage of the database loses nothing that was told.",
        521: "It holds its conversation until it ends, and adds to it with its end alone, if it was not cut short.",
    },
    "Conversations": {
        401: "Conversations are made, with up to 20 items, read, changed and deleted; every process sees it at once.",
        402: "Their items are added, read, listed and taken out; what cannot be is refused by name.",
        403: "Over every transport a response reads its conversation, and adds input and output when it is stored.",
        404: "`conversation` excludes `previous_response_id`, over both transports with one error.",
        405: "One request writes at a time, in all processes; the others are refused before any inference.",
        406: "The writer keeps a conversation while it lives; it is free at the end, and soon after a kill.",
        407: "Items are read page by page, in both orders.",
        408: "One caller's conversations do not exist for another.",
        409: "A live conversation keeps its items, whatever becomes of the responses they came from.",
    },
    "Long histories": {
        701: "A history is compacted above the threshold, not at it; a wrong threshold is refused at once.",
        702: "Calls that wait for outputs stay behind the note, and are answered once.",
        703: "A chain goes on from its newest note over any transport and process, a fork from its own.",
        704: "Instructions and tools are those of the request, before and after a compaction.",
        705: "A summary that fails, is empty, too long or late changes nothing; two in a row end the response.",
        706: "Each request brings its own threshold and its own model.",
        707: "Summaries count in usage and have spans of their own; one without room fails its compaction only.",
        708: "A trigger that is not the last item is refused.",
        709: "A history that tools made long is compacted between rounds, in the same stream.",
        710: "The route returns the user's messages, then one note, and the usage of the summary; it stores nothing.",
        711: "A trigger makes a note and asks the model nothing else.",
        712: "What was sealed for one caller opens for no other; keys rotate, and replicas share them.",
        713: "The tokens of a request are counted as the inference server bills them.",
        714: "A process killed while it compacts leaves what was stored as it was.",
    },
}


class Found(NamedTuple):
    """One marked test.

    Attributes:
        file: its file, from the folder of the tests.
        name: its function, behind its class if it is in one.
        rows: what it says it covers.
        agents: the rows of runs of several agents that it covers.
    """

    file: str
    name: str
    rows: tuple[int, ...]
    agents: tuple[int, ...] = ()


def find_marked(source: str, file: str) -> Iterator[Found]:
    """Find the marked tests of one file.

    Raises:
        ValueError: a marker whose rows are not written out as numbers.
    """
    for node in ast.parse(source).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for function in inner:
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                rows, agents = _rows_of(function, MARKER), _rows_of(function, AGENTS)
                if rows or agents:
                    yield Found(file, prefix + function.name, rows, agents)


def find_all() -> list[Found]:
    """Find every marked test of the project."""
    files = sorted(TESTS.rglob("test_*.py"))
    return [found for path in files for found in find_marked(path.read_text(), str(path.relative_to(TESTS)))]


def find_unshown(found: list[Found]) -> list[int]:
    """Return the rows of runs of several agents that no test shows yet."""
    shown = {row for test in found for row in test.agents}
    return [row for rows in AGENT_SECTIONS.values() for row in rows if row not in shown]


def render(found: list[Found]) -> str:
    """Return the page."""
    plain = [(test, test.rows) for test in found]
    agents = [(test, test.agents) for test in found]
    lines = [_HEAD]
    for title, rows in SECTIONS.items():
        lines += _render_section(title, rows, plain)
    if unshown := find_unshown(found):
        lines += [f"Of the rows that follow no test shows yet: {', '.join(map(str, unshown))}.", ""]
    for title, rows in AGENT_SECTIONS.items():
        lines += _render_section(title, rows, agents, missing=_UNSHOWN)
    return "\n".join(lines)


def _render_section(
    title: str, rows: dict[int, str], marked: list[tuple[Found, tuple[int, ...]]], missing: str = ""
) -> list[str]:
    lines = [f"## {title}", "", "| | What holds | Tests |", "|---|---|---|"]
    for row, words in rows.items():
        tests = [test for test, covered in marked if row in covered]
        lines.append(f"| {row} | {words} | {_list_tests(tests) or missing} |")
    return [*lines, ""]


def _rows_of(function: ast.FunctionDef | ast.AsyncFunctionDef, marker: str) -> tuple[int, ...]:
    marks = [
        decorator
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Attribute)
        and decorator.func.attr == marker
    ]
    return tuple(int(ast.literal_eval(argument)) for mark in marks for argument in mark.args)


def _list_tests(found: list[Found]) -> str:
    """The tests, each file named once and linked."""
    files: dict[str, list[str]] = {}
    for test in found:
        files.setdefault(test.file, []).append(f"`{test.name}`")
    return "<br>".join(f"[{file}](../../tests/{file}): {', '.join(names)}" for file, names in files.items())


if __name__ == "__main__":
    PAGE.write_text(render(find_all()))
