"""Foreign text made harmless and finite, and numbers in words.

Traces hold anything: control characters, text that turns the reading direction around, lines of
a megabyte. Escaping for HTML is the template's; here characters that a browser would act on or
not show become visible, and long text is cut with a count.
"""

import math
import re

from pivotune.core.estimate import Estimate

MINUS = "\N{MINUS SIGN}"
NO_BREAK = "\N{NO-BREAK SPACE}"
UNDEFINED = "undefined"

# C0 and C1 controls but tab and newline, zero-width and direction marks, surrogates, specials.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff]"
)


def show(text: str, limit: int = 2000) -> str:
    """Text with unseen characters written out as ‹U+202E›, cut at `limit` characters."""
    cut = text if len(text) <= limit else text[:limit]
    clean = _UNSEEN.sub(_name, cut.replace("\r\n", "\n"))
    left = len(text) - len(cut)
    return f"{clean}… ({left:,} more characters)" if left else clean


def show_line(text: str, limit: int = 80) -> str:
    """The same on one line of at most `limit` characters, for names and table cells."""
    one = _UNSEEN.sub(_name, " ".join(text[: 4 * limit].split()))
    return one if len(one) <= limit else f"{one[: limit - 1]}…"


def _name(match: re.Match[str]) -> str:
    return f"‹U+{ord(match.group()):04X}›"


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction as a percentage."""
    if value is None or math.isnan(value):
        return UNDEFINED
    return f"{value * 100:.{digits}f}{NO_BREAK}%"


def points(value: float | None) -> str:
    """A difference of fractions in percentage points, always with its sign."""
    if value is None or math.isnan(value):
        return UNDEFINED
    rounded = round(value * 100, 1)
    sign = "+" if rounded > 0 else MINUS if rounded < 0 else "±"
    return f"{sign}{abs(rounded):.1f}"


def interval(estimate: Estimate | None, *, change: bool = False) -> str:
    """The 95 % interval, in percent, or in points for a `change`; empty without one."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    if math.isnan(estimate.low) or math.isnan(estimate.high):
        return ""
    if change:
        return f"{points(estimate.low)} to {points(estimate.high)}"
    return f"{estimate.low * 100:.1f} to {estimate.high * 100:.1f}"


def number(value: float | None, digits: int = 3) -> str:
    """A plain number; counts with thousands separated."""
    if value is None or math.isnan(value):
        return UNDEFINED
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}".replace("-", MINUS)
    return f"{value:,.{digits}f}".replace("-", MINUS)


def signed(value: float | None) -> str:
    """A plain number, with a plus where it is positive."""
    text = number(value)
    return f"+{text}" if value is not None and value > 0 else text


def signed_interval(estimate: Estimate) -> str:
    """The 95 % interval of a signed number; empty without one."""
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{signed(estimate.low)} to {signed(estimate.high)}"


def duration(seconds: float) -> str:
    """Seconds in the unit that a person would use."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
