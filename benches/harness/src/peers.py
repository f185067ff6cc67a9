"""The sides that are written in Python, measured as `Run::measure` measures ours."""

import json
import statistics
import sys
import time

FILE = "model.safetensors"


def main(side, *arguments):
    if side == "versions":
        return versions()
    folder, repeat = arguments
    load, read = SIDES[side](f"{folder}/{FILE}")
    loads, loads_and_reads = [], []
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")
    before = status("VmRSS:")
    for _ in range(int(repeat)):
        start = time.perf_counter_ns()
        loaded = load()
        loads.append(time.perf_counter_ns() - start)
        total = read(loaded)
        loads_and_reads.append(time.perf_counter_ns() - start)
        del loaded
    measured = {
        "load_ns": statistics.median_high(loads),
        "load_and_read_ns": statistics.median_high(loads_and_reads),
        "found": {"Sum": total},
        "peak_rss": max(0, status("VmHWM:") - before),
    }
    print(json.dumps(measured))


def versions():
    import numpy
    import safetensors
    import torch

    python = sys.version.split()[0]
    print(
        f"Python {python}, safetensors {safetensors.__version__}, "
        f"numpy {numpy.__version__}, torch {torch.__version__}"
    )


def numpy_load(path):
    from safetensors.numpy import load_file

    return lambda: load_file(path), sum_of_arrays


def numpy_half_of_rows(path):
    return numpy_slices(path, lambda tensor, rows, columns: tensor[: rows // 2])


def numpy_half_of_columns(path):
    return numpy_slices(path, lambda tensor, rows, columns: tensor[:, : columns // 2])


def numpy_slices(path, part):
    import numpy
    from safetensors import safe_open

    def load():
        with safe_open(path, framework="numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}
            return {name: part(whole, *whole.get_shape()) for name, whole in slices.items()}

    return load, sum_of_arrays


def torch_load_and_read(path):
    """The load maps the file: it is done when every byte has been read."""
    import numpy
    from safetensors.torch import load_file

    def load():
        tensors = load_file(path)
        return tensors, sum_of_tensors(tensors)

    return load, lambda loaded: loaded[1]


def torch_one_of_many(path):
    import numpy
    import torch
    from safetensors import safe_open

    def load():
        with safe_open(path, framework="pt") as file:
            return {"": file.get_tensor("model.embed_tokens.weight")}

    return load, sum_of_tensors


def sum_of_tensors(tensors):
    import torch

    arrays = {name: tensor.view(torch.uint8).numpy() for name, tensor in tensors.items()}
    return sum_of_arrays(arrays)


def sum_of_arrays(arrays):
    import numpy

    words = (array.reshape(-1).view(numpy.uint64) for array in arrays.values())
    return sum(int(of_one.sum()) for of_one in words) % (1 << 64)


def status(field):
    with open("/proc/self/status") as lines:
        for line in lines:
            if line.startswith(field):
                return int(line.split()[1]) << 10


SIDES = {
    side.__name__: side
    for side in (
        numpy_load,
        numpy_half_of_rows,
        numpy_half_of_columns,
        torch_load_and_read,
        torch_one_of_many,
    )
}

main(*sys.argv[1:])
