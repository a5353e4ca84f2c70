"""What torch functions mean for relevance: their handlers, and the interpreter that handlers work with."""

from walkwise.tracing.meaning import moves, normalisations, weights  # noqa: F401  (they fill the table of functions)
