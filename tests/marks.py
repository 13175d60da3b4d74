"""Marks that tests of several files have."""
import os

import pytest

FULL = bool(os.environ.get("TD_FULL"))  # make check-full
full_only = pytest.mark.skipif(not FULL, reason="only in check-full")


def some(always, cases):
    """Cases of a parametrize: those in `always`, and the others in check-full."""
    return [c if c in always else pytest.param(c, marks=full_only) for c in cases]
