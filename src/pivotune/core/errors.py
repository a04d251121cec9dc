"""Errors that a user can meet. Each says what, where, got, expected and what to do.

Every class has an exit code of its own, so that scripts can tell them apart:

    10 recipe   11 data   12 model   13 template   14 verifier   15 store   16 replay
    17 sampler  20 no pivots   21 preflight   22 numerics
"""


class PivotuneError(ValueError):
    """Base of every error that is shown to a user without a traceback."""

    exit_code = 1

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        got: object = None,
        expected: str | None = None,
        fix: str | None = None,
    ) -> None:
        self.what = what
        self.where = where
        self.got = None if got is None else _short(got)
        self.expected = expected
        self.fix = fix
        super().__init__(self._text())

    def _text(self) -> str:
        lines = [f"{self.where}: {self.what}" if self.where else self.what]
        parts = (("got", self.got), ("expected", self.expected), ("what to do", self.fix))
        return "\n".join(lines + [f"  {name}: {value}" for name, value in parts if value])


def _short(value: object, limit: int = 200) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


class RecipeError(PivotuneError):
    """A recipe or an override that cannot be read or makes no sense."""

    exit_code = 10


class DataError(PivotuneError):
    """Input data (traces, games, tallies) that cannot be used."""

    exit_code = 11


class ModelError(PivotuneError):
    """A model, tokenizer or checkpoint that cannot be loaded or used."""

    exit_code = 12


class TemplateError(PivotuneError):
    """A chat template that cannot render a conversation."""

    exit_code = 13


class VerifierError(PivotuneError):
    """A verifier that cannot run, or too many of whose verdicts are invalid."""

    exit_code = 14


class StoreError(PivotuneError):
    """A run folder that cannot be read or written (a full disk, a damaged file)."""

    exit_code = 15


class ReplayMismatch(PivotuneError):
    """A replayed observation differs from the recorded one."""

    exit_code = 16


class SamplerError(PivotuneError):
    """A sampler that cannot do what it is asked, or an endpoint that fails."""

    exit_code = 17


class NoPivots(PivotuneError):
    """A selection that leaves nothing to train on."""

    exit_code = 20


class PreflightError(PivotuneError):
    """A plan that shows the run would be wasted (everything clipped, nothing fits)."""

    exit_code = 21


class NumericsError(PivotuneError):
    """A numeric check of a run failed (ratio, reference KL, fast against plain path, NaN)."""

    exit_code = 22
