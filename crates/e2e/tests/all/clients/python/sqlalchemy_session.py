"""SQLAlchemy 2, core and ORM, over psycopg, psycopg2 and asyncpg; the first argument names the driver."""

import asyncio
import sys
from typing import Optional

import sqlalchemy as sa
from session import URL, from_memory, show, show_error
from sqlalchemy import orm
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.ext.asyncio import create_async_engine

DRIVER = sys.argv[1]


class Base(orm.DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(100), unique=True)
    born: orm.Mapped[Optional[int]]
    tags: orm.Mapped[list] = orm.mapped_column(pg.ARRAY(sa.Text), default=list)
    notes: orm.Mapped[dict] = orm.mapped_column(pg.JSONB, default=dict)
    books: orm.Mapped[list["Book"]] = orm.relationship(back_populates="author", order_by="Book.id")


class Book(Base):
    __tablename__ = "book"
    __table_args__ = (sa.Index("book_by_title", "title"), sa.CheckConstraint("pages > 0", name="has_pages"))
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    author_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("author.id", ondelete="CASCADE"))
    title: orm.Mapped[str] = orm.mapped_column(sa.Text)
    pages: orm.Mapped[int] = orm.mapped_column(sa.Integer, server_default="1")
    price: orm.Mapped[Optional[float]] = orm.mapped_column(sa.Numeric(8, 2))
    author: orm.Mapped[Author] = orm.relationship(back_populates="books")


def session(engine, reads_from_memory: bool) -> None:
    """All of it; `engine` may be the synchronous face of an asynchronous one."""
    Base.metadata.create_all(engine)
    core(engine)
    mapped(engine)
    transactions(engine)
    reflection(engine)
    if reads_from_memory:
        autocommit(engine)
    Base.metadata.drop_all(engine)


def core(engine) -> None:
    author, book = Author.__table__, Book.__table__
    with engine.begin() as connection:
        # insertmanyvalues: many rows in one statement, and their keys come back in order.
        rows = [{"name": f"author {i}", "born": 1900 + i, "tags": ["a", str(i)], "notes": {"n": i}} for i in range(1500)]
        returned = connection.execute(sa.insert(author).returning(author.c.id, sort_by_parameter_order=True), rows)
        keys = returned.scalars().all()
        show("insertmanyvalues", len(keys), keys[0], keys[-1])
        connection.execute(sa.insert(book), [{"author_id": keys[0], "title": f"book {i}"} for i in range(10)])
        upsert = pg.insert(author).values(name="author 1", born=1)
        upsert = upsert.on_conflict_do_update(index_elements=["name"], set_={"born": upsert.excluded.born})
        show("upsert", connection.execute(upsert.returning(author.c.id, author.c.born)).all())
    with engine.connect() as connection:
        show("select", connection.execute(sa.select(author).where(author.c.id == keys[2])).all())
        joined = sa.select(author.c.name, sa.func.count()).join(book).group_by(author.c.name)
        show("join", connection.execute(joined).all())
        show("in", connection.execute(sa.select(sa.func.count()).where(author.c.id.in_(keys[:900]))).scalar())
        text = sa.text("select name from author where id = :id and 'a:b' <> 'c'").bindparams(id=keys[1])
        show("text", connection.execute(text).scalar_one())
        cte = sa.select(author.c.id).where(author.c.born > 3000).cte("late")
        show("cte", connection.execute(sa.select(sa.func.count()).select_from(cte)).scalar())
        show("array", connection.execute(sa.select(author.c.tags[2]).where(author.c.tags.contains(["7"]))).all())
        show("json", connection.execute(sa.select(author.c.id).where(author.c.notes["n"].as_integer() == 9)).all())
        streamed = connection.execution_options(stream_results=True, max_row_buffer=50).execute(sa.select(author.c.id))
        show("server-side cursor", sum(len(part) for part in streamed.partitions(70)))


def mapped(engine) -> None:
    with orm.Session(engine) as s:
        s.add(Author(name="Ada", tags=["x"], notes={"k": [1, None]}, books=[Book(title="one", price=9.5), Book(title="two")]))
        s.commit()
    for option in orm.selectinload, orm.joinedload, orm.subqueryload:
        with orm.Session(engine) as s:
            ada = s.scalars(sa.select(Author).where(Author.name == "Ada").options(option(Author.books))).unique().one()
            show(option.__name__, ada.notes, [(b.title, b.price, b.pages) for b in ada.books])
    with orm.Session(engine) as s:
        ada = s.scalars(sa.select(Author).filter_by(name="Ada")).one()
        ada.born = 1815
        ada.books.append(Book(title="three"))
        s.delete(ada.books[0])
        s.flush()
        show("lazy", [b.title for b in s.get(Author, ada.id).books], s.query(Book).filter(Book.title.like("t%")).count())
        s.rollback()
        show("rolled back", ada.born, len(ada.books))
        s.execute(sa.update(Book).where(Book.title == "two").values(pages=Book.pages + 5))
        s.bulk_insert_mappings(Book, [{"author_id": ada.id, "title": f"bulk {i}"} for i in range(5)])
        s.commit()
        show("committed", s.scalars(sa.select(Book.pages).where(Book.title == "two")).all())
        locked = s.scalars(sa.select(Book).where(Book.title == "two").with_for_update(skip_locked=True)).one()
        locked.pages = 100
        s.commit()
        show("locked", locked.pages)


def transactions(engine) -> None:
    with orm.Session(engine) as s:
        ada = s.scalars(sa.select(Author).filter_by(name="Ada")).one()
        try:
            with s.begin_nested():
                s.add(Author(name="Ada"))
        except sa.exc.IntegrityError as error:
            show("savepoint", type(error).__name__)
        with s.begin_nested() as savepoint:
            ada.born = 1
            s.flush()
            savepoint.rollback()
        s.commit()
        show("after the savepoints", ada.born)
    for level in "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE":
        with engine.connect().execution_options(isolation_level=level) as connection:
            show(level, connection.scalar(sa.text("show transaction_isolation")), connection.get_isolation_level())
            connection.execute(sa.update(Book).where(Book.title == "two").values(pages=7))
            connection.rollback()
            show("pages", connection.scalar(sa.select(Book.pages).where(Book.title == "two")))
    for bad in "select nothing", "insert into book (author_id, title, pages) values (1, 'none', 0)":
        with engine.connect() as connection:
            try:
                connection.execute(sa.text(bad))
            except sa.exc.DBAPIError as error:
                show("error", type(error).__name__, getattr(error.orig, "sqlstate", None) or error.orig.pgcode)


def reflection(engine) -> None:
    inspector = sa.inspect(engine)
    show("tables", sorted(inspector.get_table_names()), inspector.get_view_names(), inspector.get_schema_names())
    for table in "author", "book", "role":
        show(table, [(c["name"], str(c["type"]), c["nullable"], c["default"]) for c in inspector.get_columns(table)])
        show("keys", inspector.get_pk_constraint(table), inspector.get_foreign_keys(table))
        show("indexes", inspector.get_indexes(table), inspector.get_check_constraints(table))
    metadata = sa.MetaData()
    metadata.reflect(engine)
    show("reflected", sorted(metadata.tables))


def autocommit(engine) -> None:
    """Without transaction blocks, reads come from memory."""
    engine = engine.execution_options(isolation_level="AUTOCOMMIT")
    book = Book.__table__
    with engine.connect() as connection:
        two = sa.select(book.c.title, book.c.pages).where(book.c.title == "two")
        from_memory("autocommit", lambda: connection.execute(two).all())
        for pages in range(20, 40):
            connection.execute(sa.update(book).where(book.c.title == "two").values(pages=pages))
            assert connection.execute(two).all() == [("two", pages)]
        from_memory("written", lambda: connection.execute(two).all())
        try:
            connection.execute(sa.text("select 1/0"))
        except sa.exc.DBAPIError as error:
            show("error", type(error).__name__)
        from_memory("in", lambda: connection.execute(sa.select(book.c.id).where(book.c.id.in_([1, 2, 3]))).all())
    with orm.Session(engine) as s:
        def titles():
            s.expire_all()
            return [b.title for b in s.scalars(sa.select(Book).join(Author).where(Author.name == "Ada").order_by(Book.id))]

        from_memory("mapped", titles)


async def in_asyncio() -> None:
    engine = create_async_engine(URL.replace("postgresql:", f"postgresql+{DRIVER}:"))
    async with engine.connect() as connection:
        # The same session, through SQLAlchemy's bridge.
        await connection.run_sync(lambda connection: session(connection.engine, reads_from_memory=True))
    await engine.dispose()


def main() -> None:
    if DRIVER == "asyncpg":
        asyncio.run(in_asyncio())
        return
    engine = sa.create_engine(URL.replace("postgresql:", f"postgresql+{DRIVER}:"))
    session(engine, reads_from_memory=True)
    engine.dispose()


if __name__ == "__main__":
    main()
