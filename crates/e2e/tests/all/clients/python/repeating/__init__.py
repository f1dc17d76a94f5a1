"""Django's PostgreSQL backend, but what a test reads outside of a transaction is read three times."""
