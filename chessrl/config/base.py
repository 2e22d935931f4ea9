"""What all settings share: the one error of a user, and how a field is checked or marked."""

from dataclasses import field
from typing import Any


class InputError(Exception):
    """Something a user gave cannot be used; the message is one line and says what to do."""


def operational(default: Any) -> Any:
    """A field that changes no outcome and so takes no part in the identity of a run."""
    return field(default=default, metadata={"operational": True})


def added(default: Any) -> Any:
    """A field newer than runs that are kept: at its default it is left out of their identity."""
    return field(default=default, metadata={"added": True})


def require(holds: bool, message: str) -> None:
    """Refuse a value; `parse` turns the message into one line for the user."""
    if not holds:
        raise ValueError(message)
