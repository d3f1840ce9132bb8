"""Checks that a value fits a column, and converts it to its form there. One implementation for all inputs.

`fit_of` (`visitor`) returns the `Fit` of a data type. It checks and converts single Python values (rows, keys) and
whole Arrow arrays (Arrow, pandas, polars, Spark) by the same rule: a value that the column cannot hold is refused,
never changed. `docs/values.md` lists what is accepted; `tests/unit/client/fitting` compares the two sides.

Imported by `input`, `write`, `keys` and `engine`, and by `api`. Start with `base`.
"""

from fluss.client.fitting.base import ExtraDigits, Fit, FitRules, UnfitTypeError, UnfitValueError
from fluss.client.fitting.visitor import fit_of

__all__ = ["ExtraDigits", "Fit", "FitRules", "UnfitTypeError", "UnfitValueError", "fit_of"]
