"""Numbers of things, in words."""


def amount(number: int, what: str, *, plural: str = "", grouped: bool = False) -> str:
    """`1 record`, `2 records`; `what` is the singular, and `plural` is given where it is not `what`
    with an s. `grouped` writes `1,000`."""
    shown = f"{number:,}" if grouped else str(number)
    return f"{shown} {what if number == 1 else plural or what + 's'}"
