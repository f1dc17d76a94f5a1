"""What an application does with a driver of MySQL's family, by the DB-API: `driver url`."""

import datetime
import importlib
import sys
import time
from urllib.parse import urlparse

URL = urlparse(sys.argv[2])
ARGUMENTS = {
    "host": URL.hostname,
    "port": URL.port,
    "user": URL.username,
    "password": URL.password,
    "database": URL.path[1:],
    "charset": "utf8mb4",
}


def connect(driver, **more):
    return importlib.import_module(driver).connect(**ARGUMENTS, **more)


def ask(connection, sql, values=(), **cursor):
    with_cursor = connection.cursor(**cursor)
    with_cursor.execute(sql, values)
    rows = [tuple(map(normal, row)) for row in with_cursor.fetchall()]
    with_cursor.close()
    return rows


def normal(value):
    return bytes(value) if isinstance(value, bytearray) else value


def steady(name, question):
    """Asks often enough that the later answers come from memory, and always expects the same."""
    first = question()
    for _ in range(15):
        time.sleep(0.005)
        assert question() == first, name
    print(name, first)


def session(driver):
    connection = connect(driver)
    # The drivers begin with autocommit off: every read opens a transaction.
    steady("reads", lambda: ask(connection, "SELECT id, title, votes AS reads_ FROM film WHERE id < 4 ORDER BY id"))
    connection.commit()
    steady("parameters", lambda: ask(connection, "SELECT title, genre FROM film WHERE id = %s OR title = %s", (3, "film 9")))
    connection.rollback()
    connection.autocommit(True) if callable(connection.autocommit) else setattr(connection, "autocommit", True)
    steady("alone", lambda: ask(connection, "SELECT title, votes AS alone FROM film WHERE id = %s", (5,)))
    steady("kinds", lambda: ask(connection, "SELECT * FROM kinds ORDER BY id"))
    if driver == "mysql.connector":
        steady("prepared", lambda: ask(connection, "SELECT votes AS prepared FROM film WHERE id = %s", (6,), prepared=True))
    cursor = connection.cursor()
    cursor.executemany("INSERT INTO role (film_id, actor) VALUES (%s, %s)", [(1, "one"), (1, "two"), (2, "three")])
    print("inserted", cursor.rowcount, cursor.lastrowid > 0)
    print(ask(connection, "SELECT COUNT(*) FROM role WHERE actor IN ('one', 'two', 'three')"))
    connection.begin() if hasattr(connection, "begin") else connection.start_transaction()
    cursor.execute("DELETE FROM role WHERE actor IN ('one', 'two', 'three')")
    print("deleted", cursor.rowcount, ask(connection, "SELECT COUNT(*) FROM role WHERE actor = 'one'"))
    connection.rollback()
    print(ask(connection, "SELECT COUNT(*) FROM role WHERE actor = 'one'"))
    cursor.execute("DELETE FROM role WHERE actor IN ('one', 'two', 'three')")
    for wrong in ["SELECT * FROM nothing", "nonsense", "INSERT INTO film VALUES (1, 'x', NULL, 0)"]:
        try:
            cursor.execute(wrong)
        except Exception as error:
            print(type(error).__name__, error.args[:2])
    connection.ping()
    cursor.execute("SELECT %s, %s, %s", (datetime.date(2024, 2, 29), "ünïcode ✓", None))
    print(cursor.fetchall())
    connection.close()


def sqlalchemy(dialect):
    from sqlalchemy import Integer, String, create_engine, func, select, text
    from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

    class Base(DeclarativeBase):
        pass

    class Film(Base):
        __tablename__ = "film"
        id: Mapped[int] = mapped_column(Integer, primary_key=True)
        title: Mapped[str] = mapped_column(String(40))
        votes: Mapped[int] = mapped_column(Integer)

    engine = create_engine(URL._replace(scheme=f"mysql+{dialect}").geturl(), isolation_level="REPEATABLE READ")

    def by_key():
        with Session(engine) as session:
            film = session.get(Film, 7)
            return film.title, film.votes

    def counted():
        with engine.connect() as connection:
            return connection.execute(select(func.count(), func.sum(Film.votes)).where(Film.id < 50)).all()

    steady("by key", by_key)
    steady("counted", counted)
    with Session(engine) as session:
        session.get(Film, 8).votes += 1
        session.commit()
        print(session.scalar(select(Film.votes).where(Film.id == 8)))
        session.execute(text("UPDATE film SET votes = votes - 1 WHERE id = 8"))
        session.commit()
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        steady("alone", lambda: connection.execute(select(Film.title).where(Film.id == 9)).all())
    print(sorted(Base.metadata.tables), engine.dialect.has_table(engine.connect(), "film"))


if sys.argv[1].startswith("sqlalchemy+"):
    sqlalchemy(sys.argv[1].removeprefix("sqlalchemy+"))
else:
    session(sys.argv[1])
