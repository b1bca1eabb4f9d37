"""A group of commands whose common options may stand before the command or after it."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class AnyOrderGroup(TyperGroup):
    """A group of commands. Its options may stand before the command or after it:
    ``admin --url URL list queues --user NAME`` is ``admin --user NAME list queues --url URL``.

    If the group and the command have different options of one name, the place decides. If they have
    the same option, it is the command's: the group has it only to show it in its help.
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
            shared = _is_same(of_group, of_command, _name(args[place]))
            (after if shared else before).extend(args[place:end])
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


def _options(command: Any) -> dict[str, Any]:
    """Return the options of a command or a group by name."""
    return {
        name: param
        for param in command.params
        if param.param_type_name == "option"
        for name in (*param.opts, *param.secondary_opts)
    }


def _name(word: str) -> str:
    """Return the name of an option in a word such as ``--url=URL``."""
    return word.partition("=")[0] if word.startswith("-") else ""


def _is_same(of_group: dict[str, Any], of_command: dict[str, Any], name: str) -> bool:
    """Return whether the group and the command have the same option."""
    return name in of_group and name in of_command and of_group[name].help == of_command[name].help


def _length(word: str, options: dict[str, Any]) -> int:
    """Return the number of words of an option with its value; 1 for any other word."""
    param = options.get(word)
    return 1 if param is None or param.is_flag else 2
