"""What Python adds over ONNX Runtime's C API: the same short model called from a loop in C, and by inferlab.

The library comes with the onnxruntime wheel; its functions stand in a table whose order is fixed for good.
A C compiler is needed for the loop (thirty lines, below).
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import util
from pathlib import Path

import numpy as np

from benchmarks import side_by_side as side
from benchmarks.sync_overhead import MODEL

LOOP = """
#include <stdint.h>
#include <stddef.h>
#include <time.h>
typedef const char *const *names_t;
typedef void *(*run_t)(void *, void *, names_t, void *const *, size_t, names_t, size_t, void **);
static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
int64_t loop(run_t run, void *session, const char *input, void *value, const char *output, void **result,
             int64_t *spans, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        int64_t start = now();
        if (run(session, 0, &input, &value, 1, &output, 1, result)) return i;
        spans[i] = now() - start;
    }
    return count;
}
"""

# Places in the table of functions (OrtApi), the same since version 1.
CREATE_ENV, CREATE_SESSION, RUN, CREATE_OPTIONS, INTRA_THREADS, TENSOR_OF_DATA, CPU_MEMORY = (
    3,
    7,
    9,
    10,
    24,
    49,
    69,
)
API_VERSION = 16
FLOAT = 1
Pointer = ctypes.c_void_p


def main(rounds: int = 9) -> None:
    """Compare inferlab's median (IO binding) with the C loop's."""
    with tempfile.TemporaryDirectory() as folder:
        model, inputs = side.inputs_file(MODEL, Path(folder))

        def in_c() -> float:
            command = [sys.executable, "-m", "benchmarks.c_api", str(model), str(inputs)]
            output = subprocess.run(command, capture_output=True, text=True, check=True)
            return float(json.loads(output.stdout)["median_ms"])

        for option in ("io_binding=1", "io_binding=0"):

            def ours(option: str = option) -> float:
                result = side.inferlab(MODEL, "-s", "sync", "-ncores", "1", "--engine-option", option)
                return float(result["benchmark_result"]["median"])

            side.report(f"sync median, {option}, inferlab / C loop", side.ratios(ours, in_c, rounds), "stated")


def measure(model: str, inputs: str) -> float:
    """The median of a loop in C, in milliseconds, on core 0 with one thread."""
    os.sched_setaffinity(0, [0])
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    spec = util.find_spec("onnxruntime")
    assert spec is not None and spec.origin is not None
    [library] = Path(spec.origin).parent.glob("capi/libonnxruntime.so.*")
    api = _Table(ctypes.CDLL(str(library)))
    env, options, session, memory, value = (Pointer() for _ in range(5))
    api(CREATE_ENV, ctypes.c_int)(3, b"c_api", ctypes.byref(env))
    api(CREATE_OPTIONS)(ctypes.byref(options))
    api(INTRA_THREADS, Pointer, ctypes.c_int)(options, 1)
    api(CREATE_SESSION)(env, model.encode(), options, ctypes.byref(session))
    api(CPU_MEMORY, ctypes.c_int, ctypes.c_int)(1, 0, ctypes.byref(memory))
    [(name, array)] = dict(np.load(inputs)).items()
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    api(TENSOR_OF_DATA, Pointer, Pointer, ctypes.c_size_t, Pointer, ctypes.c_size_t, ctypes.c_int)(
        memory, array.ctypes.data, array.nbytes, shape, array.ndim, FLOAT, ctypes.byref(value)
    )
    return _loop(api.address(RUN), session, name, value, Path(model))


class _Table:
    """The table of functions; each call raises where it returns a status."""

    def __init__(self, library: ctypes.CDLL) -> None:
        library.OrtGetApiBase.restype = ctypes.POINTER(Pointer)
        get = ctypes.CFUNCTYPE(ctypes.POINTER(Pointer), ctypes.c_uint32)(library.OrtGetApiBase()[0])
        self._table = get(API_VERSION)

    def address(self, place: int) -> int:
        """A function's address."""
        return int(self._table[place] or 0)

    def __call__(self, place: int, *types: type) -> Callable[..., None]:
        def call(*arguments: object) -> None:
            filled = list(types) + [Pointer] * (len(arguments) - len(types))
            pointers = [ctypes.cast(a, Pointer) if isinstance(a, bytes) else a for a in arguments]  # type: ignore[arg-type]
            if ctypes.CFUNCTYPE(Pointer, *filled)(self.address(place))(*pointers):
                raise RuntimeError(f"function {place} of the C API failed")

        return call


def _loop(run: int, session: Pointer, name: str, value: Pointer, model: Path, count: int = 100_000) -> float:
    import onnx

    output = onnx.load(str(model), load_external_data=False).graph.output[0].name
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder) / "loop.c", Path(folder) / "loop.so"
        source.write_text(LOOP)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", built], check=True)
        loop = ctypes.CDLL(str(built)).loop
        loop.restype = ctypes.c_int64
        spans = (ctypes.c_int64 * count)()
        result = Pointer()
        loop.argtypes = [
            Pointer,
            Pointer,
            ctypes.c_char_p,
            Pointer,
            ctypes.c_char_p,
            Pointer,
            Pointer,
            ctypes.c_int64,
        ]
        for _ in range(2):  # the first round warms up
            calls = loop(run, session, name.encode(), value, output.encode(), ctypes.byref(result), spans, count)
            assert calls == count, "the C API's Run failed"
    return float(np.median(np.ctypeslib.as_array(spans))) / 1e6


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps({"median_ms": measure(sys.argv[1], sys.argv[2])}))
    else:
        main()
