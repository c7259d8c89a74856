"""Text from outside, made safe to show: characters that a terminal or a browser obeys are escaped.

A key, a value or an error of a history may hold control characters (a terminal obeys them),
bidirectional overrides (a line then reads backwards), characters of no width, or half a surrogate
pair. None of them is shown as itself.
"""

import unicodedata
from typing import Any, Final

_HIDDEN: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
"""Unicode's categories: control, format (bidi and zero width are here), surrogate, private,
unassigned, line and paragraph separators."""


def visible(text: str, keep: str = "") -> str:
    r"""`text` with invisible characters and those that change how others look as escapes (`\x1b`,
    `\u202e`). Characters in `keep` stay; callers keep line feeds."""
    if text.isprintable():
        return text
    return "".join(
        char if char in keep or unicodedata.category(char) not in _HIDDEN else _escaped(ord(char))
        for char in text
    )


def _escaped(code: int) -> str:
    if code < 0x100:
        return {9: r"\t", 10: r"\n", 13: r"\r"}.get(code, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible_everywhere(data: Any) -> Any:
    """A JSON document with every text in it, names too, made visible; line feeds stay."""
    if isinstance(data, str):
        return visible(data, "\n")
    if isinstance(data, dict):
        return {visible(str(name)): visible_everywhere(value) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [visible_everywhere(item) for item in data]
    return data
