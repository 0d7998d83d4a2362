"""Alembic's entrance: migrate over the connection, and in the transaction, that `database.py` opened."""

from __future__ import annotations

from alembic import context

from inferlab.store.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    # SQLite cannot alter much: tables are copied. Its transactions hold DDL too.
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
