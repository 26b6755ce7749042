"""`rmq config`: profiles, which hold the connection settings of clusters."""

from __future__ import annotations

from typing import Annotated

import typer

from ..declaring import command, command_group
from ..exits import CommandFailed, Exit
from ..profiles import KEYS, SECRET_KEYS, load_profiles, parse_value
from ..session import Session

app = command_group("Manage profiles: connection settings of clusters, in a file of yours.")

ProfileArgument = Annotated[str, typer.Argument(metavar="PROFILE", help="Name of the profile.")]
_HIDDEN = "********"


@command(app, "path", "rmq config path", local=True)
def path(session: Session) -> None:
    """Show where the profiles are."""
    session.out.line(str(load_profiles().path))


@command(app, "list", "rmq config list", local=True)
def list_profiles(session: Session) -> None:
    """List the profiles."""
    file = load_profiles()
    session.out.rows(
        [
            {"profile": name, "default": name == file.default, "namesrv": profile.get("namesrv")}
            for name, profile in sorted(file.profiles.items())
        ],
        ("profile", "default", "namesrv"),
    )


@command(app, "show", "rmq config show production", local=True)
def show(session: Session, name: ProfileArgument) -> None:
    """Show a profile, without its secret key."""
    found = load_profiles().find(name)
    session.out.record({key: _HIDDEN if key in SECRET_KEYS else found[key] for key in sorted(found)})


@command(
    app,
    "set",
    "rmq config set production namesrv '10.0.0.1:9876;10.0.0.2:9876'",
    "rmq config set production secret_key  (asks for the value)",
    changes=True,
    local=True,
)
def change(
    session: Session,
    name: ProfileArgument,
    key: Annotated[str, typer.Argument(metavar="KEY", help=f"One of {', '.join(KEYS)}.")],
    value: Annotated[str | None, typer.Argument(metavar="[VALUE]", help="Asked for if missing.")] = None,
) -> None:
    """Set one value of a profile; the first profile becomes the default."""
    if value is None:
        value = session.ask(key, secret=key in SECRET_KEYS)
    parsed = parse_value(key, value)
    if session.may(f"set {key} of profile {name}"):
        file = load_profiles()
        file.profiles.setdefault(name, {})[key] = parsed
        file.default = file.default or name
        file.save()
        session.out.note(f"{key} of profile {name} is set in {file.path}")


@command(app, "use", "rmq config use production", changes=True, local=True)
def use(session: Session, name: ProfileArgument) -> None:
    """Make a profile the default."""
    file = load_profiles()
    file.find(name)
    if session.may(f"make {name} the default profile"):
        file.default = name
        file.save()
        session.out.note(f"{name} is the default profile")


@command(app, "remove", "rmq config remove staging --yes", destroys=True, local=True)
def remove(session: Session, name: ProfileArgument) -> None:
    """Remove a profile."""
    file = load_profiles()
    if name not in file.profiles:
        raise CommandFailed(f"no profile {name} in {file.path}", Exit.NOT_FOUND)
    if session.may_destroy(f"remove profile {name} from {file.path}"):
        del file.profiles[name]
        file.default = None if file.default == name else file.default
        file.save()
        session.out.note(f"profile {name} is removed")
