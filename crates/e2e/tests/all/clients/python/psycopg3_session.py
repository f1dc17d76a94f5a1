"""psycopg 3 as applications use it: sync and async, pipelines, cursors, COPY, notifications, and bad days."""

import asyncio
import logging
import os
import signal
import threading
import time

import psycopg
from psycopg import sql
from psycopg.rows import class_row, dict_row, namedtuple_row
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool
from session import URL, from_memory, from_memory_async, show, show_error

FILM = "select title, votes from film where id = %s"


def main() -> None:
    logging.disable()  # names connections by their address
    with psycopg.connect(URL, autocommit=True) as connection:
        reads(connection)
        writes(connection)
        types(connection)
        pipelines(connection)
        cursors(connection)
        copies(connection)
        large(connection)
        errors(connection)
        notifications(connection)
        prepared_statements(connection)
    transactions()
    two_phase()
    pool()
    cancellation()
    lost_connection()
    killed_client()
    asyncio.run(in_asyncio())


def read(connection, film, **options):
    return connection.execute(FILM, (film,), **options).fetchone()


def reads(connection) -> None:
    from_memory("plain", lambda: read(connection, 1))
    from_memory("prepared", lambda: read(connection, 2, prepare=True))
    from_memory("never prepared", lambda: read(connection, 3, prepare=False))
    from_memory("binary", lambda: read(connection, 4, binary=True))
    from_memory("none", lambda: read(connection, 10_000))
    from_memory("NULL", lambda: connection.execute("select genre from film where id = 2").fetchall())
    from_memory("literals", lambda: connection.execute("select title from film where id in (5, 6, 7)").fetchall())
    from_memory("any", lambda: connection.execute("select id from film where id = any(%s)", ([8, 9],)).fetchall())
    join = "select f.title, r.actor from film f join role r on r.film_id = f.id where f.id = %s order by 2"
    from_memory("join", lambda: connection.execute(join, (10,)).fetchall())
    composed = sql.SQL("select {} from {} where {} = {}").format(
        sql.Identifier("title"), sql.Identifier("film"), sql.Identifier("id"), sql.Literal(11)
    )
    from_memory("composed", lambda: connection.execute(composed).fetchone())
    client = psycopg.ClientCursor(connection)
    from_memory("bound by the client", lambda: client.execute(FILM, (12,)).fetchone())
    raw = psycopg.RawCursor(connection)
    from_memory("raw", lambda: raw.execute("select title from film where id = $1", (13,)).fetchone())
    cursor = connection.cursor(row_factory=dict_row)
    from_memory("dict_row", lambda: cursor.execute("select * from film where id = 14").fetchone())
    cursor = connection.cursor(row_factory=namedtuple_row)
    from_memory("namedtuple_row", lambda: cursor.execute("select * from film where id = 15").fetchone())

    class Film:
        def __init__(self, id, title):
            self.known = (id, title)

    cursor = connection.cursor(row_factory=class_row(Film))
    from_memory("class_row", lambda: cursor.execute("select id, title from film where id = 16").fetchone().known)
    described = connection.execute("select id, title, votes::numeric(8,2) from film where id = 17")
    show("columns", [(c.name, c.type_display, c.display_size, c.precision, c.scale) for c in described.description])
    show("status", described.statusmessage, described.rowcount)
    # libpq's parameter status and its own view of the server.
    info = connection.info
    show("info", info.parameter_status("server_encoding"), info.encoding, info.server_version, info.transaction_status)


def writes(connection) -> None:
    for votes in range(100, 150):
        connection.execute("update film set votes = %s where id = 3", (votes,))
        for _ in range(3):
            assert read(connection, 3) == ("film 3", votes)
        time.sleep(0.005)
    show("returning", connection.execute("update film set votes = 1 where id = 4 returning *").fetchall())
    with connection.cursor() as cursor:
        cursor.executemany(
            "insert into film (id, title) values (%s, %s) returning id",
            [(1000 + i, f"many {i}") for i in range(50)],
            returning=True,
        )
        returned = [row for result in cursor.results() for row in result.fetchall()]
    show("executemany", len(returned), returned[0], returned[-1])
    from_memory("after executemany", lambda: read(connection, 1049))
    connection.execute("delete from film where id >= 1000")
    show("deleted", read(connection, 1049))


def types(connection) -> None:
    connection.execute(
        "create table kinds (id int primary key, big bigint, exact numeric, real float8, flag bool, day date,"
        " moment timestamptz, span interval, code uuid, raw bytea, body jsonb, list int[], ip inet, during int4range)"
    )
    connection.execute("set timezone to 'Asia/Tokyo'")
    values = (
        "1, 9007199254740993, 12345.678900, 'NaN', true, '2024-02-29', '2024-02-29 12:00+00', '1 day 2:03:04',"
        " '00000000-0000-0000-0000-000000000001', '\\x00ff', '{\"a\": [1, null]}', '{1,NULL,3}', '10.0.0.1/8', '[1,5)'"
    )
    connection.execute(f"insert into kinds values ({values}), (2{', null' * 13})")
    for binary in False, True:
        for row in 1, 2:
            kinds = "select * from kinds where id = %s"
            execute = lambda: repr(connection.execute(kinds, (row,), binary=binary).fetchone())  # noqa: B023
            from_memory(f"types of row {row}, binary {binary}", execute)
    connection.execute("update kinds set body = %s where id = 2", (Jsonb({"b": "é"}),))
    from_memory("json", lambda: connection.execute("select body->>'b' from kinds where id = 2").fetchone())
    connection.execute("set timezone to 'UTC'")
    from_memory("UTC", lambda: str(connection.execute("select moment from kinds where id = 1").fetchone()))
    show("TimeZone", connection.info.parameter_status("TimeZone"))


def pipelines(connection) -> None:
    for _ in range(10):
        with connection.pipeline():
            asked = [connection.execute("select id from film where id = %s", (film,)) for film in range(1, 40)]
            connection.execute("update film set votes = votes + 1 where id = 5")
            after = connection.execute("select votes from film where id = 5")
            for film, cursor in enumerate(asked, start=1):
                assert cursor.fetchone() == (film,)
            last = after.fetchone()
        assert connection.execute("select votes from film where id = 5").fetchone() == last
    show("pipelined", last)
    with connection.pipeline():
        # Each is waited for, so that a Flush follows it.
        from_memory("by Flush", lambda: connection.execute("select id, votes as flushed from film where id = 6").fetchone())
    try:
        with connection.pipeline():
            for text in "select 1", "select nothing from film", "select 2", "update film set votes = 0":
                connection.execute(text)
    except psycopg.Error as error:
        show_error("pipeline's error", error)
    from_memory("after the pipeline's error", lambda: read(connection, 8))
    with connection.pipeline(), connection.transaction():
        asked = [connection.execute("select votes from film where id = %s", (film,)) for film in (6, 7)]
        connection.execute("update film set votes = votes + 1 where id = 6")
        asked.append(connection.execute("select votes from film where id = 6"))
    show("transaction in a pipeline", [cursor.fetchone() for cursor in asked])
    connection.execute("update film set votes = 5 where id between 5 and 7")


def cursors(connection) -> None:
    with connection.transaction(), connection.cursor("named") as cursor:
        cursor.execute("select id from film order by id")
        show("fetchmany", cursor.fetchmany(3), cursor.fetchone())
        cursor.scroll(10)
        show("scrolled", cursor.fetchone())
    with connection.transaction(), connection.cursor("both", scrollable=True) as cursor:
        cursor.execute("select id from film order by id")
        cursor.scroll(5, mode="absolute")
        show("absolute", cursor.fetchone())
        cursor.scroll(-2)
        show("backward", cursor.fetchone())
    held = connection.cursor("held", withhold=True)
    held.execute("select id, title from film order by id")
    held.itersize = 7
    show("held", sum(row[0] for row in held))
    held.close()
    show("stream", list(connection.cursor().stream("select id from film where id < 4 order by id")))
    show("stream in chunks", list(connection.cursor().stream("select id from film where id < 8 order by 1", size=3)))
    # Given up on the way: psycopg has to read or cancel the rest.
    stream = connection.cursor().stream("select i from generate_series(1, 100000) i")
    show("abandoned", next(stream))
    stream.close()
    from_memory("after the abandoned stream", lambda: read(connection, 20))
    try:
        with connection.transaction(), connection.cursor("left") as cursor:
            cursor.execute("select id from film")
            cursor.fetchone()
            raise KeyError("left open")
    except KeyError:
        show("after the abandoned cursor", connection.info.transaction_status, read(connection, 20))


def copies(connection) -> None:
    count = "select count(*) from role where actor like 'copied%'"
    from_memory("before COPY", lambda: connection.execute(count).fetchone())
    with connection.cursor() as cursor:
        with cursor.copy("copy role (film_id, actor) from stdin") as copy:
            for number in range(1000):
                copy.write_row((1, f"copied {number}"))
        show("copied in", cursor.statusmessage, cursor.rowcount)
        show("seen", cursor.execute(count).fetchone())
        with cursor.copy("copy (select * from role where actor like 'copied%' order by 2) to stdout") as copy:
            show("rows out", sum(1 for _ in copy.rows()))
        with cursor.copy("copy role to stdout (format binary)") as copy:
            show("bytes out", sum(len(block) for block in copy))
        with cursor.copy("copy role from stdin (format binary)") as copy:
            copy.set_types(["int4", "text"])
            copy.write_row((2, "copied in binary"))
        try:
            with cursor.copy("copy role from stdin") as copy:
                for number in range(20_000):
                    copy.write(f"1\tfailing {number}\n")
                copy.write("no number\tx\n")
        except psycopg.Error as error:
            show_error("COPY's error", error)
        try:
            with cursor.copy("copy role from stdin") as copy:
                copy.write_row((1, "never"))
                raise KeyError("given up")
        except KeyError as error:
            show("given up", error.args)
        try:
            with cursor.copy("copy (select i from generate_series(1, 1000000) i) to stdout") as copy:
                show("begun to read", bytes(next(iter(copy)))[:2])
                raise KeyError("read no further")
        except KeyError as error:
            show("given up", error.args)
    from_memory("after COPY", lambda: connection.execute(count).fetchone())
    connection.execute("delete from role where actor like 'copied%'")


def large(connection) -> None:
    many = list(range(1, 200)) + list(range(10_000, 30_000))
    in_list = "select count(*) from film where id in (" + ",".join(map(str, many)) + ")"
    show("huge IN list", connection.execute(in_list).fetchone())
    bound = "select count(*) from film where id in (" + ",".join(["%s"] * len(many)) + ")"
    show("20,000 parameters", connection.execute(bound, many).fetchone())
    listed = "select count(*) from film where id = any(%s)"
    show("huge array", connection.execute(listed, (many,)).fetchone())
    from_memory("long array", lambda: connection.execute(listed, (many[:2000],)).fetchone())
    wide = "x" * 3_000_000
    connection.execute("update film set title = %s where id = 21", (wide,))
    title = from_memory("length", lambda: connection.execute("select length(title) from film where id = 21").fetchone())
    assert read(connection, 21)[0] == wide and title == (len(wide),)
    connection.execute("update film set title = 'film 21' where id = 21")
    show("short again", read(connection, 21))


def errors(connection) -> None:
    failing = (
        "select nothing from film",
        "select * from nowhere",
        "selec 1",
        "insert into film values (1, 'again')",
        "insert into role values (-1, 'nobody')",
        "select 1 / (votes - votes) from film where id = 1",
        "select 1; select 1 / 0; select 2",
        "do $$ begin raise exception 'own' using errcode = 'ZZ001', hint = 'a hint', detail = 'a detail'; end $$",
    )
    for text in failing:
        for _ in range(2):
            try:
                connection.execute(text)
                show("no error", text)
            except psycopg.Error as error:
                show_error("error", error)
                d = error.diag
                show("diag", d.severity, d.message_detail, d.message_hint, d.statement_position, d.constraint_name)
    notices = []
    connection.add_notice_handler(lambda d: notices.append((d.severity, d.message_primary)))
    connection.execute("do $$ begin raise notice 'noticed'; end $$")
    connection.execute("drop table if exists nowhere")
    show("notices", notices)
    cursor = connection.execute("select 1; select title from film where id = 1")
    show("several", cursor.fetchone(), cursor.nextset(), cursor.fetchone())
    connection.execute("set statement_timeout = 50")
    try:
        connection.execute("select pg_sleep(10)")
    except psycopg.errors.QueryCanceled as error:
        show_error("timeout", error)
    connection.execute("reset statement_timeout")
    from_memory("after errors", lambda: read(connection, 22))


def notifications(connection) -> None:
    connection.execute("listen channel")
    connection.execute("notify channel, 'from itself'")
    with psycopg.connect(URL, autocommit=True) as other:
        other.execute("select pg_notify('channel', 'from another')")
    show("notified", [n.payload for n in connection.notifies(timeout=10, stop_after=2)])
    connection.execute("unlisten *")


def prepared_statements(connection) -> None:
    connection.prepare_threshold = 0
    connection.prepared_max = 5
    for round in range(3):
        for number in range(12):
            text = f"select id + {number} from film where id = %s"
            assert connection.execute(text, (number + 1,)).fetchone() == (number * 2 + 1,)
    # Freshet's own are there as well.
    left = "select count(*) from pg_prepared_statements where name like '\\_pg3%%'"
    show("left in the server", connection.execute(left, prepare=False).fetchone())
    connection.execute("alter table film add column added int default 7")
    star = "select * from film where id = %s"
    from_memory("with the column", lambda: connection.execute(star, (1,)).fetchone())
    connection.execute("alter table film drop column added")
    try:
        show("without the column", connection.execute(star, (1,)).fetchone())
    except psycopg.errors.FeatureNotSupported as error:
        show_error("cached plan", error)
    connection.execute("deallocate all")
    try:
        show("after DEALLOCATE", connection.execute("select id + 11 from film where id = %s", (1,)).fetchone())
    except psycopg.Error as error:
        show_error("after DEALLOCATE", error)
    connection.execute("discard all")
    from_memory("after DISCARD", lambda: connection.execute("select id - 1 from film where id = 1").fetchone())


def transactions() -> None:
    with psycopg.connect(URL) as connection:
        show("in a block", read(connection, 7), connection.info.transaction_status)
        connection.execute("update film set votes = 1 where id = 7")
        show("own write", read(connection, 7))
        connection.commit()
        show("committed", read(connection, 7))
        try:
            with connection.transaction():
                connection.execute("update film set votes = 2 where id = 7")
                try:
                    with connection.transaction() as inner:
                        connection.execute("update film set votes = 3 where id = 7")
                        raise psycopg.Rollback(inner)
                finally:
                    show("savepoint rolled back", read(connection, 7))
                raise KeyError
        except KeyError:
            show("all rolled back", read(connection, 7))
        connection.rollback()
        try:
            connection.execute("select nothing")
        except psycopg.Error as error:
            show_error("in a block", error)
        try:
            read(connection, 7)
        except psycopg.Error as error:
            show_error("aborted", error)
        connection.rollback()
        for level in psycopg.IsolationLevel:
            connection.isolation_level = level
            show(level.name, connection.execute("show transaction_isolation").fetchone(), read(connection, 7))
            connection.rollback()
        connection.isolation_level = None
        connection.read_only = True
        try:
            connection.execute("update film set votes = 9 where id = 7")
        except psycopg.Error as error:
            show_error("read only", error)
        connection.rollback()
    with psycopg.connect(URL, autocommit=True) as connection:
        from_memory("seen from outside", lambda: read(connection, 7))


def two_phase() -> None:
    with psycopg.connect(URL) as connection:
        with psycopg.connect(URL, autocommit=True) as reader:
            for end, votes in ("commit", 1001), ("rollback", 1002):
                xid = connection.xid(1, f"{end} {connection.info.backend_pid}", "branch")
                connection.tpc_begin(xid)
                connection.execute("update film set votes = %s where id = 23", (votes,))
                connection.tpc_prepare()
                from_memory(f"prepared to {end}", lambda: read(reader, 23))
                getattr(connection, f"tpc_{end}")()
                # Another session may see it a moment later.
                end_of_patience = time.monotonic() + 10
                while read(reader, 23)[1] != 1001 and time.monotonic() < end_of_patience:
                    time.sleep(0.01)
                from_memory(f"after {end}", lambda: read(reader, 23))


def pool() -> None:
    with ConnectionPool(URL, min_size=2, max_size=4, open=True) as connections:

        def borrowed():
            with connections.connection() as connection:
                connection.autocommit = True
                return read(connection, 24)

        from_memory("from a pool", borrowed)
        with connections.connection() as connection:
            connection.execute("select 1")
            pid = connection.info.backend_pid
            connection.rollback()
        with psycopg.connect(URL, autocommit=True) as other:
            other.execute("select pg_terminate_backend(%s)", (pid,))
        time.sleep(0.1)
        lost = 0
        for _ in range(20):
            try:
                assert borrowed() == ("film 24", 24)
            except psycopg.OperationalError:
                lost += 1
        show("lost connections of the pool", lost)


def cancellation() -> None:
    with psycopg.connect(URL, autocommit=True) as connection:
        for name, cancel in ("safe", lambda: connection.cancel_safe(timeout=10)), ("old", connection.cancel):
            # The server ignores a cancel that comes before its query: long enough for that to be under way.
            timer = threading.Timer(1, cancel)
            timer.start()
            try:
                connection.execute("select pg_sleep(20)")
                show("not cancelled")
            except psycopg.errors.QueryCanceled as error:
                show_error(f"cancelled ({name})", error)
            timer.join()
            from_memory(f"after the cancel ({name})", lambda: read(connection, 25))
        # Too late: nothing runs any more, and the next statement must not be hit.
        connection.cancel_safe(timeout=10)
        time.sleep(0.1)
        show("cancel of nothing", read(connection, 25))


def lost_connection() -> None:
    with psycopg.connect(URL, autocommit=True) as connection:
        from_memory("before the loss", lambda: read(connection, 26))
        with psycopg.connect(URL, autocommit=True) as other:
            other.execute("select pg_terminate_backend(%s)", (connection.info.backend_pid,))
        time.sleep(0.2)
        try:
            connection.execute("select now() > '-infinity', title from film where id = 26")
            show("still there")
        except psycopg.OperationalError as error:
            show_error("lost", error)
        show("closed", connection.closed, connection.broken)


def killed_client() -> None:
    """A client is killed in the middle of an answer that it does not read, in a transaction that holds a lock."""
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        connection = psycopg.connect(URL)
        connection.execute("update film set votes = 0 where id = 27")
        connection.pgconn.send_query(b"select repeat('x', 1000) from generate_series(1, 1000000)")
        connection.pgconn.flush()
        time.sleep(0.3)
        os.write(tell, b".")
        time.sleep(60)
        os._exit(1)
    os.read(ready, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with psycopg.connect(URL, autocommit=True) as connection:
        connection.execute("set lock_timeout = '10s'")
        connection.execute("update film set votes = 270 where id = 27")
        from_memory("after the killed client", lambda: read(connection, 27))


async def in_asyncio() -> None:
    async with await psycopg.AsyncConnection.connect(URL, autocommit=True) as connection:

        async def read_async(film):
            cursor = await connection.execute(FILM, (film,))
            return await cursor.fetchone()

        await from_memory_async("async", lambda: read_async(30))
        async with connection.pipeline():
            asked = [await connection.execute(FILM, (film,)) for film in range(31, 60)]
            show("async pipeline", [(await cursor.fetchone())[1] for cursor in asked])
        async with connection.transaction(), connection.cursor("async") as cursor:
            await cursor.execute("select id from film order by id")
            show("async cursor", await cursor.fetchmany(2))
        async with connection.cursor() as cursor, cursor.copy("copy film to stdout") as copy:
            show("async COPY", len([row async for row in copy.rows()]))
        task = asyncio.create_task(connection.execute("select pg_sleep(20)"))
        await asyncio.sleep(0.3)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            show("task cancelled", connection.info.transaction_status)
        await from_memory_async("after the cancelled task", lambda: read_async(30))
        await connection.execute("listen async")
        await connection.execute("notify async, 'hello'")
        async for notify in connection.notifies(timeout=10, stop_after=1):
            show("async notification", notify.payload)


    async def one(film):
        async with await psycopg.AsyncConnection.connect(URL, autocommit=True) as connection:
            return [(await (await connection.execute(FILM, (film,))).fetchone())[1] for _ in range(10)]

    show("at once", await asyncio.gather(*(one(film) for film in range(61, 81))))


if __name__ == "__main__":
    main()
