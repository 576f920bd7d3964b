"""What register() was asked for."""

from __future__ import annotations


class Settings:
    """What register() of this process was last given; every model reads it as it runs."""

    #: Whether padding is planned for (tiles of padding are skipped; its values are read, which
    #: waits for a GPU) or goes along as a bias (nothing is read, so that CUDA graphs can be
    #: captured).
    plan_padding = True
    #: Arguments of attention modules that the user declared to have no effect.
    ignored: frozenset[str] = frozenset()
