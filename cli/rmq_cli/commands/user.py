"""`rmq user`: users of brokers with access control."""

from __future__ import annotations

from typing import Annotated

import typer

from ..declaring import command, command_group
from ..exits import CommandFailed, Exit
from ..session import Session
from .common import BrokerOption, ClusterOption

app = command_group("Manage the users of brokers with access control.")

UserArgument = Annotated[str, typer.Argument(metavar="USER", help="Name of the user: the access key.")]
SourceArgument = Annotated[str, typer.Argument(metavar="SOURCE", help="Name of the broker to copy from.")]
TargetArgument = Annotated[str, typer.Argument(metavar="TARGET", help="Name of the broker to copy to.")]
UsersOption = Annotated[list[str] | None, typer.Option("--user", help="Only this user; may be repeated.")]
PasswordOption = Annotated[
    str | None,
    typer.Option(envvar="RMQ_NEW_PASSWORD", help="The user's secret key; without it, it is asked for."),
]


@command(app, "list", "rmq user list", "rmq user list --match till")
def list_users(
    session: Session, match: Annotated[str, typer.Option(help="Only names that contain this.")] = ""
) -> None:
    """List the users of every broker."""
    session.out.rows(
        [
            {"broker": broker, "user": user.name, "super": user.is_super, "enabled": user.enabled}
            for broker, users in session.admin.users(match).items()
            for user in users
        ],
        ("broker", "user", "super", "enabled"),
    )


@command(
    app, "create", "rmq user create till", "rmq user create boss --super --password SECRET", changes=True
)
def create(
    session: Session,
    user: UserArgument,
    password: PasswordOption = None,
    is_super: Annotated[bool, typer.Option("--super", help="The user may do everything.")] = False,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
) -> None:
    """Create a user on all brokers."""
    if session.may(f"create user {user} on {broker or cluster or 'all brokers'}"):
        secret = password or session.ask("password", secret=True, twice=True)
        session.admin.create_user(user, secret, is_super=is_super, cluster=cluster, broker_name=broker)
        session.out.note(f"user {user} is there")


@command(app, "update", "rmq user update till --disable", "rmq user update till --new-password", changes=True)
def update(
    session: Session,
    user: UserArgument,
    password: Annotated[str | None, typer.Option(envvar="RMQ_NEW_PASSWORD", help="A new secret key.")] = None,
    ask: Annotated[bool, typer.Option("--new-password", help="Ask for a new secret key.")] = False,
    is_super: Annotated[bool | None, typer.Option("--super/--normal", help="The user's type.")] = None,
    enabled: Annotated[bool | None, typer.Option("--enable/--disable", help="May it connect?")] = None,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
) -> None:
    """Change a user. Settings without an option stay as they are."""
    if session.may(f"change user {user} on {broker or cluster or 'all brokers'}"):
        if ask:
            password = session.ask("password", secret=True, twice=True)
        session.admin.update_user(
            user, password=password, is_super=is_super, enabled=enabled, cluster=cluster, broker_name=broker
        )
        session.out.note(f"user {user} is changed")


@command(app, "delete", "rmq user delete till --yes", destroys=True)
def delete(
    session: Session, user: UserArgument, cluster: ClusterOption = None, broker: BrokerOption = None
) -> None:
    """Delete a user and the user's rules."""
    found = session.admin.user(user)
    if not found:
        raise CommandFailed(f"no broker has the user {user}", Exit.NOT_FOUND)
    if session.may_destroy(f"delete user {user} from {broker or cluster or ', '.join(found)}"):
        session.admin.delete_user(user, cluster=cluster, broker_name=broker)
        session.out.note(f"user {user} is deleted")


@command(
    app,
    "copy",
    "rmq user copy broker-a broker-b --dry-run",
    "rmq user copy broker-a broker-b --user till --user audit",
    changes=True,
)
def copy(session: Session, source: SourceArgument, target: TargetArgument, user: UsersOption = None) -> None:
    """Copy users with their passwords from one broker to another. A super user has to ask."""
    what = f"the users {', '.join(user)}" if user else "all users"
    if session.may(f"copy {what} from {source} to {target}"):
        done = session.admin.copy_users(source, target, user or None)
        session.out.note(f"copied to {target}: {', '.join(done) or 'nothing'}")
