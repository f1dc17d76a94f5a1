"""What the sessions share: where to connect, what is printed for the comparison, and reads that must come from memory.

Each session is run directly and through Freshet. What it prints must be the same both times; what only one of the
two can know (process ids, times, hits) is never printed.
"""

import asyncio
import os
import time

import psycopg2

HOST, PORT = os.environ["PGHOST"], int(os.environ["PGPORT"])
USER, DATABASE = os.environ["PGUSER"], os.environ["PGDATABASE"]
URL = f"postgresql://{USER}:{os.environ['PGPASSWORD']}@{HOST}:{PORT}/{DATABASE}"

# Seconds. A table is covered only once all transactions of the server that are open have ended, those of other tests too.
PATIENCE = 60.0


def show(what, *values) -> None:
    """Prints one line of what is compared."""
    print(what + ":", *(repr(value) for value in values), flush=True)


def show_error(what, error) -> None:
    """What an application can tell of an error: its class, its SQLSTATE and its first line."""
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    show(what, type(error).__name__, code, str(error).splitlines()[0] if str(error) else "")


class Watch:
    """Freshet's count of hits, asked over a connection of its own; there is none on a direct run."""

    def __init__(self):
        self.cursor = None
        connection = psycopg2.connect(URL)
        connection.autocommit = True
        cursor = connection.cursor()
        try:
            cursor.execute("SHOW FRESHET STATUS")
            self.cursor = cursor
        except psycopg2.Error:
            connection.close()

    @property
    def is_through(self) -> bool:
        return self.cursor is not None

    def hits(self) -> int:
        self.cursor.execute("SHOW FRESHET STATUS")
        return int(dict(self.cursor.fetchall())["hits"])

    def passed(self) -> str:
        """What went to the server and why, for messages."""
        self.cursor.execute("SHOW PROXIED QUERIES")
        return "\n".join(f"{count} x {detail}: {text}" for _, text, count, _, detail in self.cursor.fetchall())


WATCH = Watch()


def rounds():
    """Iterates until what is done between two rounds has been answered from memory; three times on a direct run."""
    if not WATCH.is_through:
        yield from range(3)
        return
    end = time.monotonic() + PATIENCE
    before = WATCH.hits()
    number = 0
    while True:
        yield number
        after = WATCH.hits()
        if after > before and number > 0:
            return
        assert time.monotonic() < end, "never answered from memory; passed:\n" + WATCH.passed()
        before = after
        number += 1
        time.sleep(0.02)


def from_memory(what, read):
    """Shows the result of a read that is repeated until it comes from memory, always the same."""
    first = None
    for number in rounds():
        result = read()
        if number == 0:
            first = result
        assert result == first, f"{what}: {result!r} after {first!r}"
    show(what, first)
    return first


async def from_memory_async(what, read):
    """The same for a coroutine function."""
    first = None
    for number in rounds():
        result = await read()
        if number == 0:
            first = result
        assert result == first, f"{what}: {result!r} after {first!r}"
        await asyncio.sleep(0)
    show(what, first)
    return first
