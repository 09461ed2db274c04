import io

from rich.console import Console

from gateway.cli.voices import Voices

COLOURS = {"left": "yellow", "right": "cyan"}
WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"


def console(**fields) -> Console:
    return Console(file=io.StringIO(), width=60, _environ={"TERM": "xterm"}, **fields)


def shown(used: Console) -> str:
    return used.file.getvalue()


def test_without_a_terminal_there_is_a_line_for_every_few_words():
    used = console()
    with Voices(used, COLOURS) as voices:
        for word in WORDS.split():
            voices.write("left", f"{word} ")
            voices.write("right", f"{word.upper()} ")
        voices.tell("left", "is [bold]done[/]")
    lines = shown(used).splitlines()
    assert [line.split()[0] for line in lines] == ["left", "right", "left", "left", "right"]
    assert " ".join(line.removeprefix("  right  ") for line in lines if "right" in line) == WORDS.upper()
    assert lines[3] == "  left   is [bold]done[/]"
    assert "\x1b" not in shown(used)


def test_what_is_being_said_is_shown_when_it_breaks_off():
    used = console()
    with Voices(used, COLOURS) as voices:
        voices.write("left", "half a")
        voices.end("right")
    assert shown(used) == "  left   half a\n"


def test_on_a_terminal_everybody_has_a_column():
    used = console(force_terminal=True, height=10)
    with Voices(used, COLOURS) as voices:
        for word in WORDS.split():
            voices.tell("left", word)
        voices.write("right", "at once")
        growing = len(shown(used))
        used.print(voices._draw())
        drawn = shown(used)[growing:]
        assert "fourteen" in drawn, "the newest line is seen"
        assert "one" not in drawn, "what is too long scrolls"
        assert "at once" in drawn
    # Live draws the whole once more in the end.
    whole = shown(used).rpartition(" right ")[2]
    assert all(word in whole for word in WORDS.split())
