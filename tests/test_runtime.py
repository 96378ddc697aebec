"""What is asked of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from potion.runtime import native_bfloat16


def test_a_cpu_has_bfloat16_where_the_system_says_so():
    told = Path("/proc/cpuinfo")
    if not told.exists() or "flags" not in told.read_text():
        pytest.skip("only Linux on x86 tells what its CPU can do in /proc/cpuinfo")
    flags = set(told.read_text().split())
    assert native_bfloat16(torch.device("cpu")) == bool(flags & {"avx512_bf16", "amx_tile"})


def test_of_other_devices_nothing_is_assumed():
    assert not native_bfloat16(torch.device("meta"))
