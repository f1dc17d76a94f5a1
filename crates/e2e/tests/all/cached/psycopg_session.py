"""What an application does with psycopg 3, run by the test `psycopg` with the address of Freshet."""

import sys
import time

import psycopg
from psycopg.rows import dict_row


def main(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        reads(connection)
        writes(connection)
        pipelines(connection)
        cursors_and_copies(connection)
        notifications(connection)
    default_mode(url)


def read(connection, film, **options):
    return connection.execute("select title, votes from film where id = %s", (film,), **options).fetchone()


def reads(connection) -> None:
    # After five executions psycopg prepares the statement by itself.
    for _ in range(30):
        assert read(connection, 1) == ("film 1", 1)
        assert read(connection, 1, prepare=True) == ("film 1", 1)
        assert read(connection, 1, binary=True) == ("film 1", 1)
        assert read(connection, 10_000) is None
        time.sleep(0.02)
    row = connection.cursor(row_factory=dict_row).execute("select * from film where id = 2").fetchone()
    assert row == {"id": 2, "title": "film 2", "genre": None, "votes": 2}, row


def writes(connection) -> None:
    for votes in range(100, 150):
        connection.execute("update film set votes = %s where id = 3", (votes,))
        for _ in range(3):
            assert read(connection, 3) == ("film 3", votes)
        time.sleep(0.005)
    try:
        with connection.transaction():
            connection.execute("update film set votes = 0 where id = 3")
            assert read(connection, 3) == ("film 3", 0)
            raise KeyError("roll back")
    except KeyError:
        pass
    assert read(connection, 3) == ("film 3", 149)
    try:
        connection.execute("select nothing from film")
        raise AssertionError("no error")
    except psycopg.errors.UndefinedColumn:
        pass
    connection.execute("set timezone = 'Asia/Tokyo'")
    assert connection.info.parameter_status("TimeZone") == "Asia/Tokyo"


def pipelines(connection) -> None:
    for _ in range(20):
        with connection.pipeline():
            cursors = [connection.execute("select id from film where id = %s", (film,)) for film in range(1, 40)]
            connection.execute("update film set votes = votes + 1 where id = 5")
            after = connection.execute("select votes from film where id = 5")
            for film, cursor in enumerate(cursors, start=1):
                assert cursor.fetchone() == (film,)
            last = after.fetchone()
        assert connection.execute("select votes from film where id = 5").fetchone() == last
    with connection.cursor() as cursor:
        cursor.executemany("update film set votes = %s where id = %s", [(film * 2, film) for film in range(1, 50)])
    assert read(connection, 7) == ("film 7", 14)


def cursors_and_copies(connection) -> None:
    with connection.transaction(), connection.cursor("named") as cursor:
        cursor.execute("select id from film order by id")
        assert cursor.fetchmany(3) == [(1,), (2,), (3,)]
    assert [row[0] for row in connection.cursor().stream("select id from film where id < 4 order by id")] == [1, 2, 3]
    with connection.cursor() as cursor:
        with cursor.copy("copy role (film_id, actor) from stdin") as copy:
            for number in range(1000):
                copy.write_row((1, f"copied {number}"))
        count = "select count(*) from role where actor like 'copied%'"
        assert cursor.execute(count).fetchone() == (1000,)
        with cursor.copy("copy role to stdout") as copy:
            assert sum(1 for _ in copy.rows()) == 1500


def notifications(connection) -> None:
    connection.execute("listen channel")
    connection.execute("notify channel, 'hello'")
    assert [n.payload for n in connection.notifies(timeout=5, stop_after=1)] == ["hello"]


def default_mode(url: str) -> None:
    # Without autocommit every statement runs in a transaction block.
    with psycopg.connect(url) as connection:
        assert read(connection, 7) == ("film 7", 14)
        connection.execute("update film set votes = 1 where id = 7")
        assert read(connection, 7) == ("film 7", 1)
        connection.commit()
        assert read(connection, 7) == ("film 7", 1)


if __name__ == "__main__":
    main(sys.argv[1])
