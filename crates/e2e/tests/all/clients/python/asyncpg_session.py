"""asyncpg as applications use it: binary protocol, its cache of prepared statements, cursors, COPY, pools, bad days."""

import asyncio
import decimal
import io
import json
import time

import asyncpg
from session import PATIENCE, URL, from_memory_async, show, show_error

FILM = "select title, votes from film where id = $1"


async def main() -> None:
    connection = await asyncpg.connect(URL)
    await reads(connection)
    await writes(connection)
    await types(connection)
    await transactions(connection)
    await cursors(connection)
    await copies(connection)
    await errors(connection)
    await notifications(connection)
    await schema_changes(connection)
    await cancellation(connection)
    await connection.close()
    await without_statement_cache()
    await pool()
    await lost_connection()


async def reads(connection) -> None:
    async def rows(text, *values):
        return [tuple(row.items()) for row in await connection.fetch(text, *values)]

    async def rows_of(statement, *values):
        return [tuple(row.items()) for row in await statement.fetch(*values)]

    await from_memory_async("fetch", lambda: rows(FILM, 1))
    await from_memory_async("value", lambda: value(connection, FILM, 2))
    await from_memory_async("no row", lambda: rows(FILM, 10_000))
    await from_memory_async("array", lambda: rows("select id from film where id = any($1::int[]) order by 1", [3, 4]))
    await from_memory_async("text", lambda: rows("select id from film where title = $1", "film 5"))
    show("fetchval", await connection.fetchval(FILM, 2), await connection.fetchval(FILM, 2, column=1))
    show("fetchrow", tuple(await connection.fetchrow(FILM, 2)), await connection.fetchrow(FILM, 10_000))
    statement = await connection.prepare(FILM)
    show("parameters", [kind.name for kind in statement.get_parameters()])
    show("columns", [(a.name, a.type.name) for a in statement.get_attributes()])
    await from_memory_async("prepared", lambda: rows_of(statement, 6))
    show("status", statement.get_statusmsg())
    # Which scan depends on whether the table has been analysed by now.
    show("explain", [plan["Plan"]["Node Type"].endswith("Scan") for plan in await statement.explain(7)])
    show("simple protocol", await connection.execute("select 1; select title from film where id = 1"))
    show("settings", connection.get_settings().server_encoding, connection.get_server_version()[0] > 9)
    many = list(range(1, 20_000))
    show("huge array", await connection.fetchval("select count(*) from film where id = any($1::int[])", many))


async def writes(connection) -> None:
    for votes in range(100, 150):
        await connection.execute("update film set votes = $1 where id = 3", votes)
        for _ in range(3):
            assert tuple(await connection.fetchrow(FILM, 3)) == ("film 3", votes)
        await asyncio.sleep(0.005)
    await connection.executemany("insert into film (id, title) values ($1, $2)", [(i, "x") for i in range(1000, 1100)])
    count = "select count(*) from film where id >= 1000"
    await from_memory_async("executemany", lambda: value(connection, count))
    try:
        await connection.executemany("insert into film (id, title) values ($1, 'y')", [(2000,), (1001,), (2001,)])
    except asyncpg.PostgresError as error:
        show_error("executemany's error", error)
    # All of one executemany happens or nothing.
    await from_memory_async("nothing of it", lambda: value(connection, count))
    show("status", await connection.execute("delete from film where id >= 1000"))
    if hasattr(connection, "fetchmany"):
        returned = await connection.fetchmany("update film set votes = $1 where id = $2 returning id", [(5, 1), (6, 2)])
        show("fetchmany", [tuple(row) for row in returned])


async def types(connection) -> None:
    await connection.execute(
        "create type mood as enum ('sad', 'happy');"
        "create type pair as (a int, b text);"
        "create table kinds (id int primary key, exact numeric, moment timestamptz, span interval, raw bytea,"
        " body jsonb, list text[], during tstzrange, ip cidr);"
        "create table moods (id int primary key, mood mood, pair pair);"
    )
    moment = await connection.fetchval("select timestamptz '2024-02-29 12:00+00'")
    await connection.execute(
        "insert into kinds values (1, $1, $2, '1 day', $3, $4, $5, $6, '10.0.0.0/8')",
        decimal.Decimal("1.500"), moment, b"\0\xff", '{"a": 1}', ["x", None],
        asyncpg.Range(moment, None),
    )
    await from_memory_async("types", lambda: as_text(connection, "select * from kinds where id = $1", 1))
    await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    await from_memory_async("codec", lambda: as_text(connection, "select body from kinds where id = $1", 1))
    # Types that are not built in are looked up in the catalogue first.
    await connection.execute("insert into moods values (1, $1, $2)", "happy", (1, "b"))
    show("own types", await as_text(connection, "select * from moods where id = $1", 1))


async def value(connection, text, *values):
    """fetchval() without its row limit."""
    return (await connection.fetch(text, *values))[0][0]


async def as_text(connection, text, *values):
    return repr([tuple(row) for row in await connection.fetch(text, *values)])


async def transactions(connection) -> None:
    async with connection.transaction():
        await connection.execute("update film set votes = 0 where id = 7")
        show("own write", await connection.fetchval("select votes from film where id = 7"))
        try:
            async with connection.transaction():
                await connection.execute("update film set votes = 1 where id = 7")
                await connection.execute("select 1/0")
        except asyncpg.DivisionByZeroError as error:
            show_error("nested", error)
        show("rolled back to the savepoint", await connection.fetchval("select votes from film where id = 7"))
    await from_memory_async("committed", lambda: value(connection, "select votes from film where id = 7"))
    for isolation in "read_committed", "repeatable_read", "serializable":
        async with connection.transaction(isolation=isolation, readonly=True):
            show(isolation, await connection.fetchval("show transaction_isolation"), await connection.fetchval(FILM, 8))
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("delete from role")
    await transaction.rollback()
    await from_memory_async("rolled back", lambda: value(connection, "select count(*) from role"))


async def cursors(connection) -> None:
    async with connection.transaction():
        total = 0
        async for row in connection.cursor("select id from film order by id", prefetch=7):
            total += row["id"]
        show("cursor", total)
        cursor = await connection.cursor("select id from film order by id")
        await cursor.forward(10)
        show("forward", await cursor.fetchrow(), len(await cursor.fetch(5)))
    # Left in the middle; the portal ends with the transaction.
    async with connection.transaction():
        async for _ in connection.cursor("select id from film", prefetch=3):
            break
    await from_memory_async("after an abandoned cursor", lambda: value(connection, FILM, 9))


async def copies(connection) -> None:
    count = "select count(*) from role where actor like 'copied%'"
    await from_memory_async("before COPY", lambda: value(connection, count))
    other = await asyncpg.connect(URL)
    records = [(1, f"copied {i}") for i in range(5000)]
    show("records in", await other.copy_records_to_table("role", records=records))
    await other.close()
    out = io.BytesIO()
    show("table out", await connection.copy_from_table("role", output=out, format="csv"), len(out.getvalue()))
    out = io.BytesIO()
    show("query out", await connection.copy_from_query("select id from film where id < $1 order by 1", 4, output=out))
    show("in text", await connection.copy_to_table("role", source=io.BytesIO(b"2\tcopied text\n")))
    try:
        await connection.copy_to_table("role", source=io.BytesIO(b"1\tcopied x\nno number\tx\n"))
    except asyncpg.PostgresError as error:
        show_error("COPY's error", error)

    async def broken():
        yield b"1\tnever\n"
        raise OSError("the source is gone")

    try:
        await connection.copy_to_table("role", source=broken())
    except (OSError, asyncpg.PostgresError) as error:
        show_error("COPY given up", error)
    await from_memory_async("after COPY", lambda: value(connection, count))


async def errors(connection) -> None:
    for text in "select nothing", "selec 1", "insert into film values (1, 'again')", "select 1/0", "select $1::int":
        try:
            show("no error", await connection.fetch(text))
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            show_error("error", error)
    try:
        await connection.fetch(FILM, "not a number")
    except asyncpg.DataError as error:
        show("bad parameter", type(error).__name__)
    try:
        await connection.fetch("select pg_sleep(20)", timeout=0.2)
    except asyncio.TimeoutError:
        # asyncpg cancels the statement by a second connection and waits for that.
        show("timed out")
    await from_memory_async("after errors", lambda: value(connection, FILM, 10))


async def notifications(connection) -> None:
    heard = asyncio.Queue(10)
    await connection.add_listener("channel", lambda _, pid, channel, payload: heard.put_nowait((channel, payload)))
    other = await asyncpg.connect(URL)
    await other.execute("notify channel, 'hello'")
    await connection.execute("select pg_notify('channel', 'from itself')")
    show("notified", await asyncio.wait_for(heard.get(), 10), await asyncio.wait_for(heard.get(), 10))
    await connection.reset()
    await other.close()


async def schema_changes(connection) -> None:
    star = "select * from film where id = $1"
    await from_memory_async("before the change", lambda: as_text(connection, star, 11))
    await connection.execute("alter table film add column added int default 7")
    # The cached plan is refused once; asyncpg prepares the statement again, without the application's notice.
    await from_memory_async("after the change", lambda: as_text(connection, star, 11))
    other = await asyncpg.connect(URL)
    await other.execute("alter table film drop column added")
    await other.close()
    # Another session's change may be seen a moment later.
    end = time.monotonic() + PATIENCE
    while "7" in await as_text(connection, star, 11) and time.monotonic() < end:
        await asyncio.sleep(0.01)
    await from_memory_async("after the change back", lambda: as_text(connection, star, 11))


async def cancellation(connection) -> None:
    task = asyncio.create_task(connection.execute("select pg_sleep(20)"))
    await asyncio.sleep(0.3)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        show("cancelled")
    await from_memory_async("after the cancel", lambda: value(connection, FILM, 12))


async def without_statement_cache() -> None:
    # As behind connection poolers that do not know prepared statements.
    connection = await asyncpg.connect(URL, statement_cache_size=0)
    show("no statement cache", [await value(connection, FILM, 13) for _ in range(20)])
    await connection.close()


async def pool() -> None:
    async with asyncpg.create_pool(URL, min_size=2, max_size=4) as connections:
        asked = await asyncio.gather(*(connections.fetchval(FILM, 1 + i % 50) for i in range(200)))
        show("pool", asked == [f"film {1 + i % 50}" for i in range(200)])


async def lost_connection() -> None:
    connection, other = await asyncpg.connect(URL), await asyncpg.connect(URL)
    await from_memory_async("before the loss", lambda: value(connection, FILM, 14))
    await other.execute(f"select pg_terminate_backend({connection.get_server_pid()})")
    await asyncio.sleep(0.2)
    try:
        await connection.fetchval("select 1")
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        show("lost", connection.is_closed())
    await other.close()


if __name__ == "__main__":
    asyncio.run(main())
