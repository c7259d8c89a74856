"""Reads `key=value` options."""

import click


def parse_settings(settings: tuple[str, ...], option: str = "--set") -> dict[str, str]:
    """`key=value` arguments as a mapping; the last of two with one key counts."""
    pairs: dict[str, str] = {}
    for each in settings:
        key, equals, value = each.partition("=")
        if not equals:
            raise click.BadParameter(f"{each!r} is not KEY=VALUE", param_hint=option)
        pairs[key.strip()] = value.strip()
    return pairs
