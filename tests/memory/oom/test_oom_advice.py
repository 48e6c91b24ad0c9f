"""What to do about one message: the first thing, what stands beside it, and what is left out because it is no use."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.knowledge.oom_remedies import FIRST
from foretrace.knowledge.out_of_memory import CLEARLY_BEYOND, OWN_OVERHEAD_SHARE
from foretrace.memory.oom.accounts import accounts_of
from foretrace.memory.oom.explain import explain_text
from foretrace.memory.oom.messages import find_messages
from foretrace.memory.oom.remedies import Case, places_of
from foretrace.memory.oom.verdict import judge
from foretrace.model.oom import Explanation
from memory.oom.oom_samples import REAL, capacity, metal, parentheses
from memory.oom.test_messages import ASYNC

GIB = 1 << 30

FULL = capacity("270.00 MiB", "21.98 GiB", "156.94 MiB", "21.42 GiB", "24.12 MiB", own="21.80 GiB")
VLLM = "(VllmWorker rank=1 pid=10) ERROR 06-05 06:18:13 [x.py:470] "


def explain(text: str, **known: Any) -> Explanation:
    """The one message of a text, explained."""
    (explanation,) = explain_text(text, **known).messages
    return explanation


def stances(explanation: Explanation) -> dict[str, str]:
    """How each remedy that has a word fits, in their order."""
    return {one.key: one.stance for one in explanation.remedies}


def crowded(tensors: str, cached: str, asked: str = "172.00 MiB") -> str:
    """A card of 14.75 GiB that one process holds."""
    return capacity(asked, "14.75 GiB", "23.06 MiB", tensors, cached, own="14.72 GiB")


# ------------------------------------------------------------------------------------------------------- nearly full


def test_nearly_full_is_not_fragmentation_and_both_remedies_stand_side_by_side():
    explanation = explain(crowded("14.20 GiB", "376.00 MiB"))

    assert explanation.verdict == "full"
    assert explanation.headline == (
        "nearly full: tensors take 14.20 GiB of 14.75 GiB, 172.00 MiB wanted; 376.00 MiB lie in pieces, which "
        "expandable_segments could gain"
    )
    assert list(stances(explanation))[:2] == ["expandable_segments", "smaller_step"]
    assert [one.stance for one in explanation.remedies[:2]] == ["helps", "helps"]
    assert "expandable_segments:True" in explanation.first
    assert "smaller step" in explanation.first


@pytest.mark.parametrize("cached", ["200.00 MiB", "270.00 MiB", "290.00 MiB", "310.00 MiB", "376.00 MiB"])
def test_nothing_changes_at_two_percent_of_a_device_that_tensors_fill(cached: str):
    explanation = explain(crowded("14.20 GiB", cached))

    assert (explanation.verdict, explanation.certain) == ("full", True)
    assert explanation.headline.startswith("nearly full")
    assert stances(explanation)["expandable_segments"] == "helps"


def test_what_cannot_be_gained_is_not_promised():
    explanation = explain(crowded("14.20 GiB", "376.00 MiB"), conf={"expandable_segments": "True"})

    assert "no use" in explanation.headline
    assert explanation.first.startswith("make the step smaller")


def test_before_2_1_there_is_nothing_that_joins_pieces():
    holed = parentheses("2.87 GiB", "14.76 GiB", "8.77 GiB", "19.75 MiB", "13.71 GiB")
    nearly = parentheses("236.00 MiB", "15.78 GiB", "14.25 GiB", "183.50 MiB", "14.34 GiB")

    assert stances(explain(holed))["expandable_segments"] == "cannot"
    assert explain(holed).first.startswith("update PyTorch to 2.1")
    assert explain(nearly).headline.endswith("which PyTorch before 2.1 cannot join")
    assert explain(nearly).first.startswith("make the step smaller")
    # The wording counts for more than a version that is given; NPU's package words newer ones alike.
    assert stances(explain(holed, version=(2, 2)))["expandable_segments"] == "cannot"
    assert stances(explain(holed.replace("CUDA", "NPU"), version=(2, 0)))["expandable_segments"] == "cannot"
    assert stances(explain(holed.replace("CUDA", "NPU")))["expandable_segments"] == "helps"


def test_tensors_that_leave_more_than_a_tenth_leave_fragmentation():
    assert explain(crowded("12.00 GiB", "2.50 GiB")).verdict == "fragmentation"
    assert explain(crowded("14.20 GiB", "376.00 MiB", asked="2.00 GiB")).headline.startswith("the device is full")


# --------------------------------------------------------------------------------------------------- cudaMallocAsync


def test_cuda_malloc_async_gets_the_same_verdicts_without_advice_on_fragments():
    explanation = explain(ASYNC)

    assert (explanation.verdict, explanation.certain) == ("full", True)
    assert [one.kind for one in explanation.accounts] == ["tensors", "free", "rest"]
    assert "driver's pool" in explanation.accounts[-1].what
    assert {stances(explanation)[key] for key in ("expandable_segments", "max_split_size_mb", "empty_cache")} == {
        "cannot"
    }
    assert explain(ASYNC.replace("0 bytes", "5.00 GiB").replace("7.53", "2.50")).verdict == "driver"
    assert explain(ASYNC.replace("20.00 MiB", "9.00 GiB")).verdict == "impossible"


def test_the_fraction_of_cuda_malloc_async_is_a_limit():
    text = ASYNC.replace("17179869184.00 GiB", "4.00 GiB").replace("7.53", "3.99").replace("0 bytes", "3.50 GiB")

    assert explain(text).verdict == "limit"


# ------------------------------------------------------------------------------------------------------------- others


def old(rest: float) -> str:
    """The wording before 2.1 on a device of 20 GiB, with so many GiB in use that are nobody's by the message."""
    return parentheses("1.50 GiB", "20.00 GiB", f"{19 - rest:.2f} GiB", "1.00 GiB", f"{19 - rest:.2f} GiB")


def test_others_are_named_only_clearly_beyond_what_a_process_has_beside_its_allocator():
    least = 20 * OWN_OVERHEAD_SHARE * CLEARLY_BEYOND

    assert explain(old(least + 0.1)).verdict == "other_process"
    below = explain(old(least - 0.1))
    assert below.verdict == "full"
    assert "end_other_process" not in stances(below)


def test_the_allowance_is_said():
    assert any("up to 2.00 GiB are assumed to be this process's" in said for said in explain(old(5)).because)
    assert any("too little to blame others" in said for said in explain(old(3)).because)


def test_what_is_nobodys_is_no_number_of_two_decimals_and_to_be_looked_at_first():
    explanation = explain(old(5.43))

    assert (explanation.headline, explanation.certain) == ("likely others hold it: about 3 GiB of 20.00 GiB", False)
    (remedy,) = [one for one in explanation.remedies if one.key == "end_other_process"]
    assert remedy.stance == "may"
    assert remedy.because.startswith("Look with nvidia-smi first: about 3 GiB")
    assert "nvidia-smi" in explanation.first
    (rest,) = [one for one in explanation.accounts if one.kind == "rest"]
    assert rest.what == "context and libraries of this process and other processes together"


def test_a_process_that_the_message_lists_is_ended():
    text = capacity(
        "1.16 GiB", "31.36 GiB", "471.69 MiB", "15.03 GiB", "1.00 GiB", own="16.63 GiB",
        processes=((19239, "14.26 GiB"),),
    )  # fmt: skip

    assert stances(explain(text))["end_other_process"] == "helps"
    assert "process 19239" in explain(text).first


# --------------------------------------------------------------------------------------------------- what is no use


def test_of_a_huge_request_the_shape_comes_first_and_no_batch_is_cut_down():
    explanation = explain(capacity("3186.00 GiB", "14.75 GiB", "14.00 GiB", "500.00 MiB", "20.00 MiB"))

    assert explanation.remedies[0].key == "check_shape"
    assert stances(explanation)["smaller_step"] == "cannot"
    assert "more_memory" not in stances(explanation)
    assert explanation.first.startswith("print the tensor's shape")


def test_a_request_of_a_few_devices_may_be_cut_down():
    explanation = explain(capacity("55.57 GiB", "12.00 GiB", "9.02 GiB", "984.52 MiB", "463.48 MiB"))

    assert explanation.remedies[0].key == "check_shape"
    assert stances(explanation)["smaller_step"] == "may"


def test_what_gains_next_to_nothing_is_left_out():
    assert "close_programs" not in stances(explain(metal("17.50 GiB", "512.00 KiB", "18.13 GiB", "1.00 GiB")))
    assert stances(explain(metal("15.00 GiB", "2.50 GiB", "18.13 GiB", "1.00 GiB")))["close_programs"] == "may"


def test_what_is_kept_by_accident_is_looked_for_where_the_device_is_full():
    shown = {real.source: "free_references" in stances(explain(real.text)) for real in REAL}
    full = {real.source: real.verdict == "full" for real in REAL}

    assert shown == full


# --------------------------------------------------------------------------------------------- servers and notebooks


@pytest.mark.parametrize("sign", [VLLM, '  File "/opt/lib/python3.12/site-packages/vllm/v1/worker.py", line 3\n'])
def test_in_vllm_its_own_settings_help_and_those_of_training_do_not(sign: str):
    keys = stances(explain(sign + FULL))

    assert {"vllm_utilization", "vllm_max_model_len", "vllm_max_num_seqs", "vllm_enforce_eager"} <= set(keys)
    assert not {"checkpointing", "optimizer", "smaller_step", "free_references"} & set(keys)
    assert explain(sign + FULL).first.startswith("lower gpu_memory_utilization")
    assert not [key for key in stances(explain(FULL)) if key.startswith("vllm")]


def test_no_memory_for_the_cache_is_a_share_used_up():
    explanation = explain("ValueError: No available memory for the cache blocks. Try increasing")

    assert explanation.verdict == "limit"
    assert explanation.first.startswith("raise gpu_memory_utilization")
    assert stances(explanation)["vllm_utilization"] == "helps"


def startup(free: str) -> Explanation:
    return explain(
        f"ValueError: Free memory on device ({free}/79.1 GiB) on startup is less than desired GPU memory utilization "
        "(0.9, 71.2 GiB)."
    )


def test_a_share_that_is_not_free_at_the_start_is_held_by_others_or_too_large():
    assert (startup("11.2").verdict, startup("11.2").certain) == ("other_process", False)
    assert "nvidia-smi" in startup("11.2").first
    # 7.95 GiB in use: less than twice what is assumed for a process and its driver.
    assert startup("71.15").verdict == "limit"
    assert "below 0.89" in startup("71.15").first


def test_nvmls_silence_is_out_of_memory_of_unknown_size():
    explanation = explain('NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":995')

    assert (explanation.verdict, explanation.requested) == ("unknown", None)
    assert explanation.headline.startswith("out of memory, sizes unknown")
    assert stances(explanation)["check_nvml"] == "helps"


@pytest.mark.parametrize(
    "sign", ["Cell In[9], line 3\n", "<ipython-input-4-ab> in <module>\n", "/tmp/ipykernel_12/1.py\n"]
)
def test_in_a_notebook_the_kernel_keeps_tensors(sign: str):
    explanation = explain(sign + FULL)
    (remedy,) = [one for one in explanation.remedies if one.key == "restart_kernel"]

    assert all(name in remedy.because for name in ("sys.last_traceback", "Out[]", "_", "`del`"))
    assert explanation.first.startswith("restart the notebook's kernel")
    assert "restart_kernel" not in stances(explain(FULL))


@pytest.mark.parametrize("real", REAL, ids=lambda real: real.source)
def test_every_message_has_a_first_thing_to_do(real: Any):
    first = explain(real.text).first

    assert 20 < len(first) < 130
    assert "{" not in first
    assert "does not say" not in first


def test_every_first_thing_can_be_filled_in():
    (message,) = find_messages(FULL)
    accounts = accounts_of(message)
    places = places_of(Case(message, accounts, judge(message, accounts)))

    assert not [text for text in FIRST.values() if "{" in text.format(**places)]
