"""The backend, for the reasons that PostgreSQL's has (`repeating/base.py`)."""

import re

from django.db.backends.mysql import base, features, operations
from django.utils.functional import cached_property
from repeating import base as repeating

# Reads whose answer may rightly differ.
CHANGING = re.compile(r"rand\(|uuid|sleep|connection_id|@@", re.I)


class DatabaseFeatures(features.DatabaseFeatures):
    supports_transactions = False

    @cached_property
    def django_test_skips(self):
        skips = {**super().django_test_skips, **repeating.DatabaseFeatures.django_test_skips}
        if not self.connection.mysql_is_mariadb:
            skips["MySQL 8.0.15 says that COALESCE of two times is a text"] = {
                f"aggregation.tests.AggregateTestCase.test_aggregation_default_using_{kind}_from_{source}"
                for kind in ("time", "datetime")
                for source in ("python", "database")
            }
        return skips


class DatabaseOperations(operations.DatabaseOperations):
    def sql_flush(self, style, tables, *, reset_sequences=False, allow_cascade=False):
        tables = [table for table in tables if table not in repeating.KEPT]
        return super().sql_flush(style, tables, reset_sequences=reset_sequences, allow_cascade=allow_cascade)


class Repeating(repeating.Repeating):
    def __call__(self, query, params=None, **options):
        if CHANGING.search(str(query)):
            return self.execute(query, params, **options)
        return super().__call__(query, params, **options)


class DatabaseWrapper(base.DatabaseWrapper):
    features_class = DatabaseFeatures
    ops_class = DatabaseOperations

    def create_cursor(self, name=None):
        cursor = super().create_cursor(name)
        cursor.execute = Repeating(cursor.execute, cursor, self)
        return cursor
