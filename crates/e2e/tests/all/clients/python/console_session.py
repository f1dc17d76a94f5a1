"""Reads PgBouncer's console with psycopg 3, as Datadog's check does, and over the extended protocol."""

import sys

import psycopg
from psycopg.rows import dict_row

url = sys.argv[1]

with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
    stats = connection.execute("SHOW STATS").fetchall()
    for name in ("total_query_count", "total_xact_count", "total_received", "avg_query_time", "avg_wait_time"):
        assert all(float(row[name]) >= 0 for row in stats), name
    pools = connection.execute("SHOW POOLS").fetchall()
    assert all(int(row["cl_active"]) + int(row["cl_waiting"]) > 0 for row in pools), pools
    databases = connection.execute("SHOW DATABASES").fetchall()
    assert {"name", "pool_size", "current_connections"} <= set(databases[0]), databases
    config = {row["key"]: row["value"] for row in connection.execute("SHOW CONFIG")}
    assert "memory" in config, config
    version = connection.execute("SHOW VERSION").fetchone()["version"]
    assert version.startswith("PgBouncer 1.25."), version
    # Prepared, with values in binary format.
    for _ in range(2):
        stats = connection.execute("SHOW STATS_TOTALS", prepare=True, binary=True).fetchall()
        assert stats[0]["query_count"] > 0, stats
        pools = connection.execute("SHOW POOLS", prepare=True, binary=True).fetchall()
        assert all(isinstance(row["sv_active"], int) for row in pools), pools
    try:
        connection.execute("SELECT 1", prepare=True)
    except psycopg.Error as error:
        assert error.sqlstate == "08P01" and "use SHOW HELP" in str(error), error
    else:
        raise AssertionError("SELECT 1 is no command")
    connection.execute("SHOW LISTS", prepare=True)
print("read")
