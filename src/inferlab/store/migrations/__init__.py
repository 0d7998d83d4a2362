"""From one version of the tables to the next, in both dialects.

Each module has `upgrade(execute, dialect)`: `execute(sql, **values)` runs a statement with `:name` for each value
and returns its rows as dictionaries. All run in one transaction, in SQLite without its checks of foreign keys.
A migration is frozen: it imports nothing of ours, and once released it is not changed.
"""
