"""Django's backend for MySQL and MariaDB, but what a test reads outside of a transaction is read three times."""
