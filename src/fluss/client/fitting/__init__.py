"""What goes in comes out: whether a value fits a column, and its form there. One implementation for every way in.

`fit_of` visits a data type and gives a `Fit`, which checks and converts single Python values (rows, keys) and whole
Arrow arrays (Arrow, pandas, polars, Spark) by the same rule: a value that the column cannot hold is refused, never
changed. `docs/values.md` has the table of what is taken, `tests/unit/client/fitting` holds the two sides together.
"""

from fluss.client.fitting.base import ExtraDigits, Fit, FitRules, UnfitTypeError, UnfitValueError
from fluss.client.fitting.visitor import fit_of

__all__ = ["ExtraDigits", "Fit", "FitRules", "UnfitTypeError", "UnfitValueError", "fit_of"]
