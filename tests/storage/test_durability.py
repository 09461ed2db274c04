import asyncio
import subprocess
import sys
from pathlib import Path

from sqlalchemy import func, select

from gateway.storage.tables import items, responses
from tests.storage.samples import make_response

APPENDER = Path(__file__).with_name("appender.py")


def start_appender(database, *, principal, limit):
    command = [sys.executable, str(APPENDER), database.render_as_string(hide_password=False), principal, str(limit)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def test_what_was_announced_survives_a_kill(open_sql_store, database):
    store = await open_sql_store()
    appender = start_appender(database, principal="killed", limit=1_000_000)
    announced = [appender.stdout.readline().strip() for _ in range(200)]
    appender.kill()
    rest = appender.stdout.read()
    announced += rest[: rest.rfind("\n") + 1].split()
    appender.stdout.close()
    appender.wait()
    for response_id in announced:
        response = await store.response("killed", response_id)
        assert [item.role for item in response.items] == ["input", "output", "output"]
    with store._engine.connect() as connection:
        counts = select(func.count(items.c.row_id)).select_from(responses).outerjoin(items).group_by(responses.c.id)
        assert set(connection.scalars(counts)) == {3}
    await store.append(make_response(parent_id=announced[-1], principal="killed"))


async def test_two_processes_share_one_database(open_sql_store, database):
    store = await open_sql_store()
    appenders = [start_appender(database, principal=f"process {number}", limit=150) for number in range(2)]
    outputs = await asyncio.gather(*(asyncio.to_thread(appender.communicate, timeout=40) for appender in appenders))
    assert [appender.returncode for appender in appenders] == [0, 0]
    for number, (output, _) in enumerate(outputs):
        announced = output.split()
        assert len(announced) == 150
        for response_id in announced:
            assert await store.response(f"process {number}", response_id) is not None
            assert await store.response("local", response_id) is None
