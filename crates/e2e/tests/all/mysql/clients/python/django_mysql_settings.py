"""Settings for Django's own test suite: its databases are those of the environment, by mysqlclient.

With REPEAT_READS set, reads outside of transactions are repeated by the backend in `repeating_mysql/`.
"""

import os

ENGINE = "repeating_mysql" if os.environ.get("REPEAT_READS") else "django.db.backends.mysql"


def database(name: str) -> dict:
    """A database that exists already."""
    return {
        "ENGINE": ENGINE,
        "NAME": name,
        "USER": os.environ["DATABASE_USER"],
        "PASSWORD": os.environ["DATABASE_PASSWORD"],
        "HOST": os.environ["DATABASE_HOST"],
        "PORT": os.environ["DATABASE_PORT"],
        "TEST": {"NAME": name},
    }


DATABASES = {"default": database(os.environ["DATABASE_NAME"]), "other": database(os.environ["DATABASE_NAME"] + "_other")}
SECRET_KEY = "the tests need one"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
