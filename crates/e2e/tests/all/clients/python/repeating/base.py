"""The backend. Most of Django's tests run in a transaction that is rolled back, where nothing comes from memory, and read
each thing once. Here the tests are told that there are no transactions, so that they empty the tables behind each test
instead, and each read is repeated so that memory may answer it: all answers must be the same.
"""

import re

from django.core.management.commands import flush
from django.db.backends.postgresql import base, features, operations

# Reads whose answer may rightly differ, or that do something.
CHANGING = re.compile(r"random|now\(|current_|clock|_timestamp|nextval|setval|pg_|for update|for share|for no key", re.I)
# What Django writes once, when it has made the tables.
KEPT = ("django_content_type", "auth_permission", "django_site")

# They are written anew behind each flush otherwise.
flush.emit_post_migrate_signal = lambda *arguments, **options: None


class DatabaseFeatures(features.DatabaseFeatures):
    supports_transactions = False
    django_test_skips = {
        "counts queries, of which there are others without transactions": {
            "basic.tests.ModelInstanceCreationTests.test_save_parent_primary_with_default",
            "basic.tests.SelectOnSaveTests.test_select_on_save_lying_update",
            "many_to_many.tests.ManyToManyTests.test_fast_add_ignore_conflicts",
        },
    }


class DatabaseOperations(operations.DatabaseOperations):
    def sql_flush(self, style, tables, *, reset_sequences=False, allow_cascade=False):
        """DELETE, which is quicker than TRUNCATE where there are a hundred tables and few rows."""
        if reset_sequences:
            return super().sql_flush(style, tables, reset_sequences=True, allow_cascade=allow_cascade)
        return [f"DELETE FROM {self.quote_name(table)};" for table in tables if table not in KEPT]


class DatabaseWrapper(base.DatabaseWrapper):
    features_class = DatabaseFeatures
    ops_class = DatabaseOperations

    def create_cursor(self, name=None):
        cursor = super().create_cursor(name)
        if name is None:
            cursor.execute = Repeating(cursor.execute, cursor, self)
        return cursor


class Repeating:
    """`cursor.execute()`."""

    def __init__(self, execute, cursor, wrapper):
        self.execute, self.cursor, self.wrapper = execute, cursor, wrapper

    def __call__(self, query, params=None, **options):
        text = str(query)
        if self.wrapper.get_autocommit() and text.startswith("SELECT") and not CHANGING.search(text):
            self.execute(query, params, **options)
            first = self.cursor.fetchall()
            self.execute(query, params, **options)
            second = self.cursor.fetchall()
            assert repr(second) == repr(first), f"{text}: {second} after {first}"
        return self.execute(query, params, **options)
