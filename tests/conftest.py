"""What all tests share."""

from __future__ import annotations

import pytest
import torch

from potion.embedded import Embedded, embedded_model


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def embedded():
    """The embedded scenario; its data sets are read once."""
    return Embedded()


@pytest.fixture(scope="session")
def victim():
    """The embedded poisoned model. Tests must not change it: heal never does."""
    return embedded_model("victim")
