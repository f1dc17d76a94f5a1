"""Settings for Django's own test suite: its databases are those of the environment, by psycopg 3.

With REPEAT_READS set, reads outside of transactions are repeated by the backend in `repeating/`.
"""

import os

ENGINE = "repeating" if os.environ.get("REPEAT_READS") else "django.db.backends.postgresql"


def database(name: str) -> dict:
    """A database that exists already: Freshet's cache serves the one that its upstream names, and no other."""
    return {
        "ENGINE": ENGINE,
        "NAME": "postgres",
        "USER": os.environ["PGUSER"],
        "PASSWORD": os.environ["PGPASSWORD"],
        "HOST": os.environ["PGHOST"],
        "PORT": os.environ["PGPORT"],
        "TEST": {"NAME": name},
    }


DATABASES = {"default": database(os.environ["PGDATABASE"]), "other": database(os.environ["PGDATABASE"] + "_other")}
SECRET_KEY = "the tests need one"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
