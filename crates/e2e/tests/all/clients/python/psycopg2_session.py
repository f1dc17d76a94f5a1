"""psycopg2 as applications use it: the simple protocol, values put into the text, and all that hangs on a connection."""

import io
import select
import threading
import time

import psycopg2
import psycopg2.extensions
import psycopg2.extras
from session import URL, from_memory, show, show_error

FILM = "select title, votes from film where id = %s"


def main() -> None:
    connection = connect()
    reads(connection)
    writes(connection)
    cursors(connection)
    copies(connection)
    large_objects(connection)
    errors(connection)
    notifications(connection)
    cancellation(connection)
    connection.close()
    transactions()
    two_phase()
    lost_connection()
    without_blocking()


def connect():
    connection = psycopg2.connect(URL)
    connection.autocommit = True
    return connection


def fetch(connection, text, values=None, factory=None):
    with connection.cursor(cursor_factory=factory) as cursor:
        cursor.execute(text, values)
        return cursor.fetchall()


def reads(connection) -> None:
    from_memory("plain", lambda: fetch(connection, FILM, (1,)))
    from_memory("no row", lambda: fetch(connection, FILM, (10_000,)))
    from_memory("text", lambda: fetch(connection, "select id from film where title = %s", ("film 2",)))
    from_memory("quotes", lambda: fetch(connection, "select id from film where title = %s", ("it's \\ \"so\" %",)))
    from_memory("IN", lambda: fetch(connection, "select id from film where id in %s order by 1", ((3, 4, 5),)))
    from_memory("array", lambda: fetch(connection, "select id from film where id = any(%s)", ([6, 7],)))
    from_memory("names", lambda: fetch(connection, "select genre from film where id = %(id)s", {"id": 8}))
    rows = lambda factory: lambda: [repr(row) for row in fetch(connection, FILM, (9,), factory)]
    from_memory("dict", rows(psycopg2.extras.RealDictCursor))
    from_memory("namedtuple", rows(psycopg2.extras.NamedTupleCursor))
    many = tuple(range(1, 100)) + tuple(range(10_000, 40_000))
    show("huge IN", fetch(connection, "select count(*) from film where id in %s", (many,)))
    types = "select id::numeric / 3, votes > 2, null, date '2024-02-29' + id, array[title], '{}'::jsonb from film where id = 10"
    from_memory("types", lambda: fetch(connection, types))
    with connection.cursor() as cursor:
        cursor.execute(FILM, (11,))
        show("description", cursor.description, cursor.statusmessage, cursor.rowcount)
    show("parameters", connection.get_parameter_status("server_encoding"), connection.encoding, connection.status)


def writes(connection) -> None:
    for votes in range(100, 150):
        with connection.cursor() as cursor:
            cursor.execute("update film set votes = %s where id = 3", (votes,))
        for _ in range(3):
            assert fetch(connection, FILM, (3,)) == [("film 3", votes)]
        time.sleep(0.005)
    with connection.cursor() as cursor:
        rows = [(1000 + i, f"many {i}") for i in range(250)]
        returned = psycopg2.extras.execute_values(
            cursor, "insert into film (id, title) values %s returning id", rows, page_size=100, fetch=True
        )
        show("execute_values", len(returned), returned[-1])
        psycopg2.extras.execute_batch(cursor, "update film set votes = %s where id = %s", [(7, i) for i, _ in rows])
        cursor.executemany("delete from film where id = %s", [(i,) for i in range(1000, 1100)])
        show("executemany", cursor.rowcount)
    from_memory("after the writes", lambda: fetch(connection, "select count(*), min(votes) from film where id >= 1000"))
    with connection.cursor() as cursor:
        cursor.execute("delete from film where id >= 1000; update film set votes = id")
    from_memory("after several statements", lambda: fetch(connection, FILM, (3,)))


def cursors(connection) -> None:
    connection.autocommit = False
    with connection, connection.cursor("named") as cursor:
        cursor.itersize = 7
        cursor.execute("select id from film order by id")
        show("named", sum(row[0] for row in cursor))
    with connection, connection.cursor("scrolled", scrollable=True) as cursor:
        cursor.execute("select id from film order by id")
        cursor.scroll(20, mode="absolute")
        show("scrolled", cursor.fetchone(), cursor.fetchmany(2))
    left = connection.cursor("left")
    left.execute("select id from film")
    left.fetchone()
    connection.rollback()
    try:
        left.fetchone()
    except psycopg2.Error as error:
        show_error("cursor of a transaction that ended", error)
    connection.rollback()
    connection.autocommit = True


def copies(connection) -> None:
    count = "select count(*) from role where actor like 'copied%'"
    from_memory("before COPY", lambda: fetch(connection, count))
    with connection.cursor() as cursor:
        lines = "".join(f"1\tcopied {i}\n" for i in range(5000))
        cursor.copy_from(io.StringIO(lines), "role", columns=("film_id", "actor"))
        show("in", cursor.rowcount)
        out = io.StringIO()
        cursor.copy_expert("copy (select * from role order by 1, 2) to stdout with csv header", out)
        show("out", len(out.getvalue()), out.getvalue()[:30])
        try:
            cursor.copy_from(io.StringIO("1\tcopied new\nno number\tx\n"), "role")
        except psycopg2.Error as error:
            show_error("COPY's error", error)

        class Broken:
            def read(self, size):
                raise OSError("the file is gone")

        try:
            cursor.copy_expert("copy role from stdin", Broken())
        except psycopg2.Error as error:
            show("COPY given up", type(error).__name__, error.pgcode)
    from_memory("after COPY", lambda: fetch(connection, count))


def large_objects(connection) -> None:
    # libpq reads and writes them by the function call protocol, in a transaction.
    connection.autocommit = False
    with connection:
        written = connection.lobject(0, "wb")
        written.write(b"\0\1\2" * 100_000)
        written.close()
    with connection:
        reading = connection.lobject(written.oid, "rb")
        reading.seek(299_990)
        show("large object", reading.read())
        reading.unlink()
    connection.autocommit = True
    from_memory("after function calls", lambda: fetch(connection, FILM, (12,)))


def errors(connection) -> None:
    for text in "select nothing", "selec 1", "insert into film values (1, 'again')", "select 1; select 1/0; select 2", "":
        try:
            show("no error", fetch(connection, text))
        except psycopg2.Error as error:
            show_error("error", error)
            show("diag", error.diag.severity, error.diag.statement_position, error.diag.constraint_name)
    with connection.cursor() as cursor:
        cursor.execute("do $$ begin raise warning 'noticed'; end $$")
    show("notices", connection.notices[-1:])
    from_memory("after errors", lambda: fetch(connection, FILM, (13,)))


def notifications(connection) -> None:
    other = connect()
    fetch(connection, "listen channel; select 1")
    for payload in "one", "two":
        fetch(other, f"notify channel, '{payload}'; select 1")
    end = time.monotonic() + 10
    while len(connection.notifies) < 2 and time.monotonic() < end:
        select.select([connection], [], [], 1)
        connection.poll()
    show("notified", [notify.payload for notify in connection.notifies])
    fetch(connection, "unlisten *; select 1")
    other.close()


def cancellation(connection) -> None:
    timer = threading.Timer(0.3, connection.cancel)
    timer.start()
    try:
        fetch(connection, "select pg_sleep(20)")
    except psycopg2.Error as error:
        show_error("cancelled", error)
    timer.join()
    from_memory("after the cancel", lambda: fetch(connection, FILM, (14,)))


def transactions() -> None:
    connection = psycopg2.connect(URL)
    show("in a block", fetch(connection, FILM, (15,)), connection.info.transaction_status)
    fetch(connection, "update film set votes = 0 where id = 15 returning 1")
    fetch(connection, "savepoint s; update film set votes = 1 where id = 15; rollback to s; select 1")
    show("own write", fetch(connection, FILM, (15,)))
    connection.commit()
    show("committed", fetch(connection, FILM, (15,)))
    connection.rollback()
    try:
        fetch(connection, "select nothing")
    except psycopg2.Error as error:
        show_error("in a block", error)
    try:
        fetch(connection, FILM, (15,))
    except psycopg2.Error as error:
        show_error("aborted", error)
    connection.rollback()
    for level in "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE":
        connection.set_session(isolation_level=level, readonly=True)
        show(level, fetch(connection, "show transaction_isolation"), fetch(connection, FILM, (15,)))
        connection.rollback()
    connection.set_session(isolation_level="DEFAULT", readonly=False, autocommit=True)
    from_memory("autocommit again", lambda: fetch(connection, FILM, (15,)))
    connection.reset()
    connection.close()


def two_phase() -> None:
    connection = psycopg2.connect(URL)
    xid = connection.xid(2, "psycopg2", str(time.time()))
    connection.tpc_begin(xid)
    fetch(connection, "update film set votes = -1 where id = 16 returning 1")
    connection.tpc_prepare()
    connection.tpc_commit()
    show("two-phase", fetch(connection, FILM, (16,)))
    connection.close()


def lost_connection() -> None:
    connection, other = connect(), connect()
    from_memory("before the loss", lambda: fetch(connection, FILM, (17,)))
    fetch(other, "select pg_terminate_backend(%s)", (connection.info.backend_pid,))
    time.sleep(0.2)
    try:
        fetch(connection, "select title from film where random() < 2")
    except psycopg2.Error as error:
        show_error("lost", error)
    show("closed", connection.closed)
    other.close()


def without_blocking() -> None:
    connection = psycopg2.connect(URL, async_=1)
    psycopg2.extras.wait_select(connection)

    def read():
        cursor = connection.cursor()
        cursor.execute(FILM, (18,))
        psycopg2.extras.wait_select(connection)
        return cursor.fetchall()

    from_memory("without blocking", read)
    connection.close()


if __name__ == "__main__":
    main()
