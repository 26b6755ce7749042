"""`rmq acl`: rules, which say what users may do."""

from __future__ import annotations

from typing import Annotated

import typer

from rmq_client import AccessRule

from ..declaring import command, command_group
from ..session import Session
from .common import BrokerOption, ClusterOption
from .user import SourceArgument, TargetArgument, UserArgument, UsersOption

app = command_group("Manage rules, which say what users may do.")

ResourceArgument = Annotated[
    str, typer.Argument(metavar="RESOURCE", help="Topic:NAME, Group:NAME or Cluster:NAME; NAME may end in *.")
]
_COLUMNS = ("broker", "user", "resource", "actions", "decision", "addresses")


@command(app, "list", "rmq acl list", "rmq acl list --user till --resource orders")
def list_rules(
    session: Session,
    user: Annotated[str, typer.Option(help="Only users whose names contain this.")] = "",
    resource: Annotated[str, typer.Option(help="Only resources that contain this.")] = "",
) -> None:
    """List the rules of all users."""
    session.out.rows(
        [
            {
                "broker": broker,
                "user": each.user,
                "resource": rule.resource,
                "actions": rule.actions,
                "decision": "allow" if rule.allow else "deny",
                "addresses": rule.source_ips or "all",
            }
            for broker, found in session.admin.rules(user, resource).items()
            for each in found
            for rule in each.rules
        ],
        _COLUMNS,
    )


@command(
    app,
    "set",
    "rmq acl set till Topic:orders Sub",
    "rmq acl set till 'Topic:*' Pub --deny --from 10.0.0.0/8",
    changes=True,
)
def set_rule(
    session: Session,
    user: UserArgument,
    resource: ResourceArgument,
    actions: Annotated[
        list[str],
        typer.Argument(metavar="ACTION...", help="All, Pub, Sub, Create, Update, Delete, Get or List."),
    ],
    deny: Annotated[bool, typer.Option("--deny", help="Deny them, instead of allowing them.")] = False,
    addresses: Annotated[
        list[str] | None, typer.Option("--from", help="Only for these addresses or networks.")
    ] = None,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
) -> None:
    """Set the rule of a user for a resource, in place of an older one."""
    rule = AccessRule(resource, tuple(actions), allow=not deny, source_ips=tuple(addresses or ()))
    verb = "deny" if deny else "allow"
    if session.may(f"{verb} user {user} {', '.join(actions)} on {resource}"):
        session.admin.create_rules(user, [rule], cluster=cluster, broker_name=broker)
        session.out.note(f"the rule of user {user} for {resource} is set")


@command(
    app,
    "delete",
    "rmq acl delete till --resource Topic:orders --yes",
    "rmq acl delete till -y",
    destroys=True,
)
def delete(
    session: Session,
    user: UserArgument,
    resource: Annotated[str | None, typer.Option(help="Only the rule for this resource.")] = None,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
) -> None:
    """Delete rules of a user: one, or all."""
    what = f"the rule for {resource}" if resource else "all rules"
    if session.may_destroy(f"delete {what} of user {user}"):
        session.admin.delete_rules(user, resource, cluster=cluster, broker_name=broker)
        session.out.note(f"{what} of user {user}: deleted")


@command(
    app,
    "copy",
    "rmq acl copy broker-a broker-b --dry-run",
    "rmq acl copy broker-a broker-b --user till --user audit",
    changes=True,
)
def copy(session: Session, source: SourceArgument, target: TargetArgument, user: UsersOption = None) -> None:
    """Copy the rules of users from one broker to another, which must have the users."""
    what = f"the rules of {', '.join(user)}" if user else "the rules of all users"
    if session.may(f"copy {what} from {source} to {target}"):
        done = session.admin.copy_rules(source, target, user or None)
        session.out.note(f"copied to {target}: {', '.join(done) or 'nothing'}")
