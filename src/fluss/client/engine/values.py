"""How values of the outside become values of columns."""

from __future__ import annotations

from fluss.client.fitting import ExtraDigits, FitRules
from fluss.client.input.arrow_input import ArrowInput, Source

__all__ = ["ArrowInput", "ExtraDigits", "FitRules", "Source"]
