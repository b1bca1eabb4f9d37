"""A group of commands whose common options may stand before the command or after it."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class AnyOrderGroup(TyperGroup):
    """A group of commands. Its options may stand before the command or after it:
    ``admin --url URL list queues --user NAME`` is ``admin --user NAME list queues --url URL``.

    An option that the group and the command have belongs to the command.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put every option where it is expected, then parse the arguments."""
        return super().parse_args(ctx, self._sorted(ctx, args))

    def _sorted(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments in order: options of the group, command, options of the command."""
        of_group = _options(self)
        at = 0
        while at < len(args) and args[at].startswith("-"):
            at += _length(args[at], of_group)
        command = self.get_command(ctx, args[at]) if at < len(args) else None
        if command is None:
            return args
        of_command = _options(command)
        before: list[str] = []
        after: list[str] = []
        place = 0
        while place < at:
            end = place + _length(args[place], of_group)
            # The group has some options of its commands only to show them in its help.
            (after if _name(args[place]) in of_command else before).extend(args[place:end])
            place = end
        place = at + 1
        while place < len(args) and args[place] != "--":
            name = _name(args[place])
            known = of_command if name in of_command else of_group
            end = place + _length(args[place], known)
            (before if name in of_group and name not in of_command else after).extend(
                args[place:end]
            )
            place = end
        return [*before, args[at], *after, *args[place:]]


def _options(command: Any) -> dict[str, bool]:
    """Return the options of a command or a group, each with whether it has a value."""
    return {
        name: not param.is_flag
        for param in command.params
        if param.param_type_name == "option"
        for name in (*param.opts, *param.secondary_opts)
    }


def _name(word: str) -> str:
    """Return the name of an option in a word such as ``--url=URL``."""
    return word.partition("=")[0] if word.startswith("-") else ""


def _length(word: str, options: dict[str, bool]) -> int:
    """Return the number of words of an option with its value; 1 for any other word."""
    return 2 if options.get(word, False) else 1
