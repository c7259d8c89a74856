"""Numbers of things, in words."""


def amount(number: int, what: str, *, plural: str = "", grouped: bool = False) -> str:
    """A number with its noun, as text: `1 record`, `2 records`.

    `what` is the singular. Pass `plural` where the plural is not `what` with an s. `grouped` writes
    thousands as `1,000`."""
    shown = f"{number:,}" if grouped else str(number)
    return f"{shown} {what if number == 1 else plural or what + 's'}"
