"""What drivers and pools do around each read, unasked: none of it may keep reads from being answered from memory."""

import asyncio

import asyncpg
import psycopg
import psycopg2
import sqlalchemy
from psycopg_pool import ConnectionPool
from session import URL, from_memory, from_memory_async

FILM = "select title from film where id = %s"


missed = []


def habit(what, read) -> None:
    """Like `from_memory`, but the others are tried as well."""
    try:
        from_memory(what, read)
    except AssertionError:
        missed.append(what)


async def habit_async(what, read) -> None:
    try:
        await from_memory_async(what, read)
    except AssertionError:
        missed.append(what)


def main() -> None:
    simple_query_before()
    psycopg_pool()
    sqlalchemy_pool()
    asyncio.run(in_asyncpg())
    assert not missed, f"never answered from memory: {missed}"


def simple_query_before() -> None:
    connection = psycopg2.connect(URL)
    connection.autocommit = True
    cursor = connection.cursor()
    for before in "select 1", "SELECT 1", "show transaction_isolation", "-- ping", "select version()", "reset all":

        def read():
            try:
                cursor.execute(before)  # noqa: B023
            except psycopg2.ProgrammingError:
                pass  # "can't execute an empty query"
            cursor.execute(FILM, (1,))
            return cursor.fetchone()

        habit(before, read)
    connection.close()


def psycopg_pool() -> None:
    def configure(connection):
        connection.autocommit = True

    options = {"min_size": 1, "max_size": 1, "open": True, "configure": configure}
    with ConnectionPool(URL, check=ConnectionPool.check_connection, **options) as pool:

        def read():
            with pool.connection() as connection:
                return connection.execute(FILM, (2,)).fetchone()

        habit("checked by psycopg's pool", read)


def sqlalchemy_pool() -> None:
    for driver in "psycopg", "psycopg2":
        url = URL.replace("postgresql:", f"postgresql+{driver}:")
        engine = sqlalchemy.create_engine(url, pool_pre_ping=True, isolation_level="AUTOCOMMIT")

        def read():
            with engine.connect() as connection:  # noqa: B023
                return connection.execute(sqlalchemy.text("select title from film where id = :i"), {"i": 3}).all()

        habit(f"checked by SQLAlchemy with {driver}", read)
        engine.dispose()


async def in_asyncpg() -> None:
    connection = await asyncpg.connect(URL)
    film = "select title from film where id = $1"
    # They ask for one row at most.
    await habit_async("fetchval", lambda: connection.fetchval(film, 4))
    await habit_async("fetchrow", lambda: connection.fetchrow(film, 4))
    await connection.close()
    # A simple query that follows Parse, Describe and Flush, without a Sync between them.
    connection = await asyncpg.connect(URL)
    await connection.prepare(film)
    await connection.execute("select 1")
    await habit_async("after prepare()", lambda: connection.fetch(film, 5))
    await connection.copy_records_to_table("role", records=[(1, "copied")])
    await habit_async("after copy_records_to_table()", lambda: connection.fetch(film, 5))
    await connection.close()
    # A pool resets each connection when it comes back.
    async with asyncpg.create_pool(URL, min_size=1, max_size=1) as pool:
        await habit_async("asyncpg's pool", lambda: pool.fetch(film, 6))


if __name__ == "__main__":
    main()
