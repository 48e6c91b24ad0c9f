"""Text becomes what its out-of-memory messages say: every wording, wherever it stands, within its rounding."""

from __future__ import annotations

import json
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.memory.oom.messages import Amount, Message, find_messages, read_messages
from memory.oom.oom_samples import REAL, capacity, metal, parentheses

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

MODERN = capacity(
    "1.16 GiB", "31.36 GiB", "471.69 MiB", "15.03 GiB", "1.00 GiB",
    processes=((19239, "14.26 GiB"),), own="16.63 GiB", private="572.00 MiB", allowed="28.00 GiB", device=3,
)  # fmt: skip
CLASSIC = parentheses("20.00 MiB", "23.69 GiB", "21.73 GiB", "13.94 MiB", "22.07 GiB", allowed="22.10 GiB", device=1)


def only(text: str) -> Message:
    """The one message of a text."""
    (message,) = find_messages(text)
    return message


def about(amount: Amount | None, size: float) -> bool:
    """Whether the amount is that size, as far as two decimals of its unit say."""
    return amount is not None and amount.low <= size <= amount.high


# ---------------------------------------------------------------------------------------------------------- wordings


def test_since_2_1_every_number_is_read():
    message = only(MODERN)

    assert (message.kind, message.backend, message.device, message.wording) == ("allocator", "CUDA", 3, "private")
    assert about(message.asked, 1.16 * GIB)
    assert about(message.total, 31.36 * GIB)
    assert about(message.free, 471.69 * MIB)
    assert about(message.own, 16.63 * GIB)
    assert [(one.pid, about(one.amount, 14.26 * GIB)) for one in message.others] == [(19239, True)]
    assert about(message.allowed, 28.0 * GIB)
    assert about(message.allocated, 15.03 * GIB)
    assert about(message.private, 572.0 * MIB)
    assert about(message.unallocated, 1.0 * GIB)
    assert about(message.reserved, 16.03 * GIB)
    assert message.advice == "expandable_segments"


def test_in_2_0_and_before_every_number_is_read_and_the_cache_follows():
    message = only(CLASSIC)

    assert (message.device, message.wording, message.advice) == (1, "parentheses", "max_split_size_mb")
    assert about(message.asked, 20 * MIB)
    assert about(message.allowed, 22.10 * GIB)
    assert about(message.reserved, 22.07 * GIB)
    assert about(message.unallocated, 0.34 * GIB)
    assert message.own is None


def test_cached_is_what_reserved_was_called_before_1_4():
    text = parentheses("8.13 GiB", "10.76 GiB", "643.57 MiB", "8.20 GiB", "32.43 MiB", advice=False)
    message = only(text.replace("reserved in total by PyTorch", "cached"))

    assert message.wording == "cached"
    assert about(message.reserved, 32.43 * MIB)


def test_npu_says_also_what_is_active():
    text = parentheses(
        "138.00 MiB", "60.96 GiB", "13.22 GiB", "295.52 MiB", "13.86 GiB", active="13.22 GiB", backend="NPU"
    )
    message = only(text)

    assert (message.backend, message.device) == ("NPU", 0)
    assert about(message.free, 295.52 * MIB)
    assert about(message.reserved, 13.86 * GIB)


@pytest.mark.parametrize("backend", ["HIP", "XPU", "MUSA", "PrivateUse1"])
def test_other_devices_word_it_alike(backend: str):
    message = only(capacity("192.00 MiB", "31.89 GiB", "13.22 GiB", "9.00 GiB", "1.00 GiB", backend=backend))

    assert message.backend == backend
    assert about(message.free, 13.22 * GIB)


@pytest.mark.parametrize("unit", ["GB", "GiB"])
def test_metal_means_powers_of_two_in_either_spelling(unit: str):
    message = only(metal(f"5.56 {unit}", f"1.10 {unit}", f"6.80 {unit}", "768.00 MB"))

    assert message.backend == "MPS"
    assert about(message.allocated, 5.56 * GIB)
    assert about(message.elsewhere, 1.10 * GIB)
    assert about(message.allowed, 6.80 * GIB)
    assert message.asked is not None
    assert message.asked.high - message.asked.low < 0.011 * MIB


def test_a_size_that_the_driver_does_not_know_is_not_taken_for_a_number():
    message = only(capacity("3.98 GiB", "31.84 GiB", "16.30 GiB", "6.74 GiB", "7.02 GiB", own="17179869184.00 GiB"))

    assert message.own is None
    assert message.own_hidden


ASYNC = """Allocation on device 0 would exceed allowed memory. (out of memory)
Currently allocated     : 7.53 GiB
Requested               : 20.00 MiB
Device limit            : 8.00 GiB
Free (according to CUDA): 0 bytes
PyTorch limit (set by user-supplied memory fraction)
                        : 17179869184.00 GiB"""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ASYNC, id="as it is written"),
        pytest.param(" ".join(ASYNC.split()), id="in one line"),
        pytest.param("**" + "\n".join(" ".join(row.split()) for row in ASYNC.split("\n")) + "**", id="in an issue"),
        pytest.param(json.dumps({"exception_message": ASYNC}), id="in JSON"),
        pytest.param("\n".join(f"2026-08-29 15:24:01 [ERROR] {row}" for row in ASYNC.split("\n")), id="in a log"),
    ],
)
def test_cuda_malloc_asyncs_message_is_read_with_all_its_sizes(text: str):
    message = only(text)

    assert (message.kind, message.backend, message.device) == ("async", "CUDA", 0)
    assert about(message.allocated, 7.53 * GIB)
    assert about(message.asked, 20 * MIB)
    assert about(message.total, 8 * GIB)
    assert about(message.free, 0)
    # 2^64 bytes: no limit was set.
    assert message.allowed is None


def test_a_limit_of_cuda_malloc_async_is_one():
    message = only(ASYNC.replace("17179869184.00 GiB", "4.00 GiB"))

    assert about(message.allowed, 4 * GIB)
    assert about(message.counted, 7.53 * GIB)


@pytest.mark.parametrize("device", ["device", "device cuda:3"])
def test_vllms_refusal_to_start_is_read(device: str):
    message = only(
        f"ValueError: Free memory on {device} (11.2/79.1 GiB) on startup is less than desired GPU memory utilization "
        "(0.9, 71.2 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
    )

    assert (message.kind, message.device) == ("vllm_startup", 3 if ":" in device else None)
    assert about(message.free, 11.2 * GIB)
    assert about(message.total, 79.1 * GIB)
    assert about(message.asked, 71.2 * GIB)
    assert message.utilization == 0.9


def test_the_old_runtimes_error_and_the_line_above_it_are_one_message():
    log = "THCudaCheck FAIL file=/pytorch/THC/generic/THCStorage.cu line=58 error=2 : out of memory"
    error = "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/THC/generic/THCStorage.cu:58"

    assert [only(text).kind for text in (log, error)] == ["runtime_call", "runtime_call"]
    assert only(f"{log}\nTraceback (most recent call last):\n{error}").count == 1


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_the_variable_is_the_one_the_message_names(name: str):
    assert only(MODERN.replace("PYTORCH_CUDA_ALLOC_CONF", name)).variable == name
    assert only(CLASSIC).variable is None


@pytest.mark.parametrize(
    ("text", "kind", "backend", "asked"),
    [
        ("RuntimeError: CUDA error: out of memory", "driver_call", "CUDA", None),
        ("torch.AcceleratorError: HIP error: out of memory", "driver_call", "HIP", None),
        ("CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY", "driver_call", "CUDA", None),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "library", "CUDA", None),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "library", "CUDA", None),
        ("NCCL WARN Failed to CUDA calloc 536870912 bytes", "nccl", "CUDA", 512 * MIB),
        ("Failed to CUDA calloc async 2432 bytes", "nccl", "CUDA", 2432),
        ("Failed to CUDA host alloc 1024 bytes", "nccl_host", "CPU", KIB),
        ("Cuda failure 2 'out of memory'", "nccl_driver", "CUDA", None),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 7 bytes. Error code 12", "host", "CPU", 7),
        ("DefaultCPUAllocator: not enough memory: you tried to allocate 911360 bytes.", "host", "CPU", 911360),
        ("CUDA out of memory. Tried to allocate more than 1EB memory.", "exabyte", "CUDA", None),
        ("RuntimeError: Invalid buffer size: 12.50 GB", "mps_buffer", "MPS", int(12.5 * GIB)),
        ("UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", "xpu_call", "XPU", None),
        ("HSA_STATUS_ERROR_OUT_OF_RESOURCES: Available Free mem : 24 MB", "hip_call", "HIP", None),
        ("torch.OutOfMemoryError: no memory left on the device", "bare", "CUDA", None),
        (
            'Traceback (most recent call last):\n  File "a.py", line 3, in f\ntorch.OutOfMemoryError',
            "bare",
            "CUDA",
            None,
        ),
        (
            'RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":830',
            "nvml",
            "CUDA",
            None,
        ),
        (
            "NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at "
            '"../c10/cuda/CUDACachingAllocator.cpp":1123, please report a bug to PyTorch.',
            "nvml",
            "CUDA",
            None,
        ),
        ("ValueError: No available memory for the cache blocks. Try increasing", "vllm_cache", "CUDA", None),
        ("Allocation on device 0 would exceed allowed memory. (out of memory)", "async", "CUDA", None),
    ],
)
def test_messages_with_few_numbers_or_none(text: str, kind: str, backend: str, asked: int | None):
    message = only(text)

    assert (message.kind, message.backend) == (kind, backend)
    assert message.asked is None if asked is None else about(message.asked, asked)


@pytest.mark.parametrize(
    "text", ["", "all is well", "memory: 12.00 GiB free", "RuntimeError: shape mismatch", "(((((;;;;"]
)
def test_text_without_a_message_has_none(text: str):
    assert find_messages(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "Tip: catch torch.cuda.OutOfMemoryError around the step",
        "try:\n    step()\nexcept torch.cuda.OutOfMemoryError:\n    torch.cuda.empty_cache()",
        "except (RuntimeError, torch.OutOfMemoryError): pass",
        "torch.cuda.OutOfMemoryError",
        'if "CUDA out of memory" in str(error):',
        "retry = 'CUDA error: out of memory' not in message",
        "java.lang.OutOfMemoryError: Java heap space",
    ],
)
def test_programs_and_texts_about_it_are_no_message(text: str):
    assert find_messages(text) == []


def test_a_size_of_any_length_is_read_and_never_rounds_to_a_memory():
    message = only(f"CUDA out of memory. Tried to allocate {'9' * 40}.99 GiB. GPU 0 has a total capacity of 8.00 GiB")

    assert message.asked is not None
    assert message.asked.unreal
    assert message.below_zero is None
    assert about(message.total, 8 * GIB)


def test_a_size_below_zero_is_one_that_wrapped_around():
    message = only("DefaultCPUAllocator: can't allocate memory: you tried to allocate 18446744056529682432 bytes.")

    assert message.below_zero == Amount.exactly(2**64 - 18446744056529682432)


def test_more_than_so_many_different_messages_are_only_counted():
    text = "\n".join(f"CUDA out of memory. Tried to allocate {size}.00 MiB." for size in (22, 24, 26, 22, 24))
    messages, left_out = read_messages(text, 2)

    assert [(one.line, one.count) for one in messages] == [(1, 2), (2, 2)]
    assert left_out == 1


@pytest.mark.parametrize("line", ["CUDA out of memory. Tried to allocate ", MODERN + " "], ids=["cut off", "whole"])
def test_a_long_log_of_one_message_is_read_once(line: str):
    (message,) = find_messages(line * 20_000)

    assert message.count == 20_000


def test_a_bare_mention_counts_only_where_nothing_says_more():
    assert [one.kind for one in find_messages("CUDA out of memory again!\n" + MODERN)] == ["allocator"]
    assert [one.kind for one in find_messages("I get CUDA out of memory again!")] == ["bare"]


# ------------------------------------------------------------------------------------------------- wherever it stands

TRACEBACK = (
    'Traceback (most recent call last):\n  File "C:\\new\\train.py", line 8, in <module>\ntorch.OutOfMemoryError: '
)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"epoch 3\n{TRACEBACK}{MODERN}\nsaving", id="in a traceback"),
        pytest.param(f"\x1b[1;31mOutOfMemoryError\x1b[0m: \x1b[1m{MODERN}\x1b[0m", id="coloured"),
        pytest.param("\n".join(textwrap.wrap(MODERN, 40)), id="wrapped at words"),
        pytest.param("\n".join(MODERN[at : at + 23] for at in range(0, len(MODERN), 23)), id="wrapped anywhere"),
        pytest.param("\r\n".join(f"│ {row:<60} │" for row in textwrap.wrap(MODERN, 60)), id="in a box"),
        pytest.param("\n".join(f"# {row}" for row in textwrap.wrap(MODERN, 70)), id="commented out"),
        pytest.param("\n".join(f"> {row}" for row in textwrap.wrap(MODERN, 70)), id="quoted"),
        pytest.param(json.dumps({"error": f"{TRACEBACK}{MODERN}\n\tat"}), id="in JSON"),
        pytest.param(json.dumps(json.dumps([f"a\nb\n{MODERN}\n"])), id="in JSON in JSON"),
        pytest.param(repr(RuntimeError(TRACEBACK + MODERN)), id="as Python writes it"),
        pytest.param("```\n**" + MODERN.replace("allocate", "allocate`` ``") + "**\n```", id="in Markdown"),
        pytest.param(
            "\n".join(f"2026-08-29T15:24:01,123Z [ERROR] [a.py:12] {row}" for row in textwrap.wrap(MODERN, 50)),
            id="behind time stamps",
        ),
        pytest.param(
            "\n".join(
                f"(VllmWorker rank=2 pid=10) ERROR 06-05 06:18:13 [x.py:470] {r}" for r in textwrap.wrap(MODERN, 90)
            ),
            id="behind vLLM's prefix",
        ),
    ],
)
def test_the_same_is_read_wherever_it_stands(text: str):
    found, wanted = only(text), only(MODERN)

    for name in ("asked", "total", "free", "own", "others", "allowed", "allocated", "private", "unallocated"):
        assert getattr(found, name) == getattr(wanted, name), name


def test_where_it_stands_is_told():
    assert only("one\ntwo\n" + CLASSIC).line == 3


@pytest.mark.parametrize(
    "prefix", ["[rank3]: ", "rank 3: ", "(VllmWorker rank=3 pid=9) ", "(Worker_TP3 pid=99) ", "[default3]:", "3: "]
)
def test_the_rank_is_told(prefix: str):
    assert only(prefix + CLASSIC).ranks == (3,)


def test_lines_of_two_ranks_between_each_other_are_told_apart():
    first = textwrap.wrap(MODERN, 60)
    second = textwrap.wrap(MODERN.replace("GPU 3", "GPU 4"), 60)
    rows = [row for one, two in zip(first, second, strict=True) for row in (f"[rank0]: {one}", f"[rank1]: {two}")]

    messages = find_messages("\n".join(rows))

    assert [(one.device, one.ranks) for one in messages] == [(3, (0,)), (4, (1,))]
    assert all(about(one.unallocated, 1.0 * GIB) for one in messages)


def test_equal_messages_are_one_with_its_count_and_its_ranks():
    text = "\n".join([f"[rank{rank}]: {CLASSIC}" for rank in (2, 0, 0)] + [MODERN])

    first, second = find_messages(text)

    assert (first.count, first.ranks, first.line) == (3, (0, 2), 1)
    assert (second.count, second.device) == (1, 3)


def test_a_message_that_is_cut_off_keeps_what_it_has():
    message = only(MODERN[: MODERN.index("Including")] + "…")

    assert about(message.free, 471.69 * MIB)
    assert message.own is None
    assert message.unallocated is None
    assert message.reserved is None


def test_two_messages_in_one_line_are_two():
    assert len(find_messages(f"{MODERN} During handling: {CLASSIC}")) == 2


def test_every_real_message_is_one_message():
    for real in REAL:
        assert len(find_messages(f"some log\n{real.text}\nmore")) == 1, real.source


# ----------------------------------------------------------------------------------------------------------- rounding


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("0 bytes", 0, 0),
        ("511 bytes", 511, 511),
        ("1.00 KiB", 1019, 1029),
        ("0.00 GiB", 0, 5368709),
        ("50 GiB", 49.5 * GIB, 50.5 * GIB),
        ("2.0 GB", 1.95e9, int(2.05 * GIB)),  # nobody knows which of the two is meant
    ],
)
def test_a_printed_size_is_an_interval(text: str, low: float, high: float):
    amount = Amount.read(text)

    assert (amount.low, amount.high) == (low, high)


def test_comparisons_know_what_the_rounding_hides():
    one, other = Amount.read("5.59 GiB"), Amount.read("5.59 GiB")

    assert one.at_least(other) is None
    assert one.at_least(Amount.read("5.58 GiB")) is True
    assert Amount.read("5.58 GiB").at_least(Amount.read("5.60 GiB")) is False
    assert (one - other).low < 0 < (one - other).high


def as_torch_prints(size: int) -> str:
    """format_size of c10: the unit changes above 1024 of one, not at it."""
    for limit, unit in ((1 << 10, "bytes"), (1 << 20, "KiB"), (1 << 30, "MiB")):
        if size <= limit:
            return f"{size} bytes" if unit == "bytes" else f"{size / (limit >> 10):.2f} {unit}"
    return f"{size / GIB:.2f} GiB"


sizes = st.one_of(st.integers(0, 4096), st.integers(0, 1 << 24), st.integers(0, 1 << 42))


@given(st.lists(sizes, min_size=8, max_size=8), st.integers(0, 15), st.sampled_from(["CUDA", "HIP", "XPU"]), st.data())
@settings(max_examples=150, deadline=None)
def test_what_is_written_is_read_back_within_its_rounding(
    numbers: list[int], device: int, backend: str, data: st.DataObject
):
    asked, total, free, own, other, allocated, private, unallocated = numbers
    written = [as_torch_prints(size) for size in numbers]
    text = capacity(
        written[0], written[1], written[2], written[5], written[7],
        processes=((77, written[4]),), own=written[3], private=written[6], backend=backend, device=device,
        typo=data.draw(st.booleans()), own_first=data.draw(st.booleans()),
    )  # fmt: skip
    width = data.draw(st.integers(5, 200))
    message = only("\n".join(text[at : at + width] for at in range(0, len(text), width)))

    assert (message.backend, message.device) == (backend, device)
    for amount, size in (
        (message.asked, asked), (message.total, total), (message.free, free), (message.own, own),
        (message.others[0].amount, other), (message.allocated, allocated), (message.private, private),
        (message.unallocated, unallocated), (message.reserved, allocated + unallocated),
    ):  # fmt: skip
        assert about(amount, size)


@given(st.lists(sizes, min_size=4, max_size=4), sizes)
@settings(max_examples=100, deadline=None)
def test_the_wording_in_parentheses_is_read_back_too(numbers: list[int], rest: int):
    asked, total, allocated, free = numbers
    written = [as_torch_prints(size) for size in numbers]
    message = only(parentheses(*written, as_torch_prints(allocated + rest)))

    for amount, size in (
        (message.asked, asked), (message.total, total), (message.allocated, allocated), (message.free, free),
        (message.reserved, allocated + rest), (message.unallocated, rest),
    ):  # fmt: skip
        assert about(amount, size)


# ------------------------------------------------------------------------------------------------------------ hostile

pieces = st.sampled_from(
    [
        *(MODERN, CLASSIC, "CUDA out of memory. Tried to allocate ", "99999999999999999999.99 PiB", "(GPU 0; "),
        *(
            " free; ",
            "Process 1 has ",
            " memory in use.",
            "\\u001b[31m",
            "\x1b[",
            "\\\\\\n",
            "[rank",
            "1]: ",
            "\x00",
            "│",
        ),
        *("\u202e", "\ud800", "Failed to CUDA calloc 99999999999999999999 bytes", "1.2.3 GiB", "\n"),
        "is reserved by PyTorch but unallocated",
        *(ASYNC, "NVML_SUCCESS == ", "THCudaCheck FAIL file=", " line=1 error=2 : out of memory"),
        *(
            "Free memory on device (1.2/",
            "3.4.5 GiB) on startup is less than desired GPU memory utilization (.",
            "0, 1 GiB)",
        ),
    ]
)


@given(st.lists(st.one_of(pieces, st.text(max_size=20)), max_size=12))
@settings(max_examples=200, deadline=None)
def test_hostile_text_is_read_without_an_error(parts: list[str]):
    for message in find_messages("".join(parts)):
        assert message.count >= 1
        assert message.line >= 1


def test_long_runs_cost_no_more_than_their_length():
    # Each would take minutes if a pattern went over it anew from every position.
    for text in (
        "\\" * 300_000,
        "\x1b[" * 100_000,
        "[rank1]: " * 30_000,
        "9" * 300_000,
        "(" * 300_000,
        "NVML_SUCCESS == " * 20_000,
        "THCudaCheck FAIL file=" * 20_000,
    ):
        assert find_messages(text) == []
