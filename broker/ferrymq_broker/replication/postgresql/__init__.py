"""The shared journal on PostgreSQL. Imported only where it is used: it needs `psycopg`."""
