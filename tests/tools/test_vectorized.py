"""Every loop over a function of vmath.h is vectorized at every CPU level, and who checks it would see
if one was not."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import vectorized  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "accelerators/cpu/kernels"
# The instructions are x86's. Elsewhere there is only the code of `generic`.
LEVELS = ["generic", "v3", "v4"] if platform.machine() == "x86_64" else []

LOOP = """
#include "vmath.h"
float sum(const float *x, int n);
float sum(const float *x, int n) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) {
        sum += CALL;
    }
    return sum;
}
"""


def compiled(folder, call, *flags):
    source = folder / "loop.c"
    source.write_text(LOOP.replace("CALL", call))
    path = folder / "loop.o"
    subprocess.run(["gcc", "-O3", "-g", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", f"-I{KERNELS}",
                    *flags, "-c", source, "-o", path], check=True)
    return vectorized.findings(vectorized.disassemble(path))


@pytest.mark.parametrize("call, flags, text", [
    ("vm_exp(x[i])", ["-mavx2"], None),
    ("vm_exp(x[i])", [], None),
    ("vm_exp(x[i])", ["-O1", "-fno-openmp-simd"], "loop.c:8: the loop over a function of vmath.h is scalar"),
    ("x[i] > 0 ? vm_log(x[n - i]) : 0", ["-ftrapping-math"], "loop.c:8: the loop over a function of vmath.h is scalar"),
    ("vm_exp(x[i])", ["-fno-inline"], "a function was not inlined"),
    ("vm_sqrt(x[i])", ["-fno-tree-vectorize", "-fmath-errno"], "a function of vmath.h calls another one"),
    ("vm_exp(x[i])", ["-g0"], "compile with -g"),
])
@pytest.mark.skipif(not LEVELS, reason="no Python package for the instructions of this machine")
def test_loop_is_judged_when_compiled(tmp_path, call, flags, text):
    found = compiled(tmp_path, call, *flags)
    assert len(found) == 0 if text is None else any(text in f for f in found), found


def test_every_loop_over_vmath_is_vectorized_when_built():
    build = Path(os.environ.get("TRAIND_BUILD", ROOT / "build")).resolve()
    sources = [s for s in sorted(KERNELS.rglob("*.c")) if '/vmath.h"' in s.read_text()]
    assert len(sources) >= 5
    found = []
    for source in sources if LEVELS else []:
        for level in LEVELS:
            path = build / "obj" / source.relative_to(ROOT).with_suffix(f".{level}.o")
            found += [f"{level}: {text}" for text in vectorized.findings(vectorized.disassemble(path))]
    assert not found, "\n".join(found)
