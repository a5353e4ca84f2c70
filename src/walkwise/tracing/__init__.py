"""Tracing: any PyTorch Geometric model and one input become a RelevanceChain."""

from walkwise.tracing import linearize
from walkwise.tracing.tracer import trace

__all__ = ["linearize", "trace"]
