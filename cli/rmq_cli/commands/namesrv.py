"""`rmq namesrv`: settings and key-value entries of the name servers."""

from __future__ import annotations

from typing import Annotated

import typer

from ..declaring import command, command_group
from ..session import Session
from .common import pairs_of

app = command_group("Show and change settings and key-value entries of the name servers.")

TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="Name of the table (namespace).")]
KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="Key of the entry.")]


@command(app, "settings", "rmq namesrv settings", "rmq namesrv settings -o json")
def settings(session: Session) -> None:
    """Show the settings of every name server."""
    session.out.rows(
        [
            {"namesrv": address, "name": key, "value": value}
            for address, table in session.admin.name_server_settings().items()
            for key, value in sorted(table.items())
        ],
        ("namesrv", "name", "value"),
    )


@command(app, "set", "rmq namesrv set orderMessageEnable=true", changes=True)
def change_settings(
    session: Session,
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Settings by Apache's keys.")],
) -> None:
    """Change settings of all name servers."""
    wanted = pairs_of(pairs, "setting")
    if session.may(f"set {', '.join(pairs)} in all name servers"):
        session.admin.update_name_server_settings(wanted)
        session.out.note("the name servers are changed")


@command(app, "entries", "rmq namesrv entries ORDER_TOPIC_CONFIG")
def entries(session: Session, table: TableArgument) -> None:
    """Show the entries of a table."""
    session.out.record(session.admin.key_values(table))


@command(app, "put", "rmq namesrv put ORDER_TOPIC_CONFIG orders 'broker-a:4;broker-b:4'", changes=True)
def put(
    session: Session,
    table: TableArgument,
    key: KeyArgument,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="New value.")],
) -> None:
    """Set an entry of a table."""
    if session.may(f"set entry {key} of table {table} to {value}"):
        session.admin.put_key_value(table, key, value)
        session.out.note(f"entry {key} of table {table} is set")


@command(app, "delete", "rmq namesrv delete ORDER_TOPIC_CONFIG orders --yes", destroys=True)
def delete(session: Session, table: TableArgument, key: KeyArgument) -> None:
    """Delete an entry of a table."""
    if session.may_destroy(f"delete entry {key} of table {table}"):
        session.admin.delete_key_value(table, key)
        session.out.note(f"entry {key} of table {table} is deleted")
