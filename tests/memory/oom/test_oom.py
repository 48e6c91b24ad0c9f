"""What out-of-memory messages mean: the verdict, the accounts, what helps and what cannot, and what a snapshot adds."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.errors import InputError
from foretrace.knowledge.oom_remedies import REMEDIES
from foretrace.memory.oom import evidence
from foretrace.memory.oom.accounts import accounts_of
from foretrace.memory.oom.explain import explain_text
from foretrace.memory.oom.messages import find_messages
from foretrace.memory.oom.remedies import Case, places_of
from foretrace.memory.oom.settings import read_conf, read_version
from foretrace.memory.oom.verdict import judge
from foretrace.memory.snapshot import ACTIONS, History, Snapshot
from foretrace.model.memory import Fragmentation, Free, HistoryInfo, Memory, OutOfMemory, Pin, Request, Source, Totals
from foretrace.model.oom import Explanation, Remedy
from foretrace.report.json import to_json
from foretrace.report.oom import render_oom
from memory.oom.oom_samples import REAL, capacity, metal, parentheses
from memory.oom.test_messages import pieces

MIB, GIB = 1 << 20, 1 << 30

FRAGMENTED = capacity("472.00 MiB", "23.70 GiB", "114.56 MiB", "18.26 GiB", "3.69 GiB", own="23.58 GiB")
FULL = capacity("16.00 GiB", "79.11 GiB", "4.65 GiB", "73.30 GiB", "335.88 MiB", own="74.45 GiB")
TAGGUI = capacity("20.00 MiB", "4.00 GiB", "2.35 GiB", "825.15 MiB", "24.85 MiB")


def explain(text: str, **known: Any) -> Explanation:
    """The one message of a text, explained."""
    (explanation,) = explain_text(text, **known).messages
    return explanation


def title_of(text: str, **known: Any) -> str:
    """The title under which expandable segments are shown."""
    return remedy(explain(text, **known), "expandable_segments").title


def remedy(explanation: Explanation, key: str) -> Remedy:
    """One of its remedies."""
    (found,) = [one for one in explanation.remedies if one.key == key]
    return found


# ----------------------------------------------------------------------------------------------------------- verdicts


@pytest.mark.parametrize("real", REAL, ids=lambda real: real.source)
def test_real_messages_have_the_right_verdict(real: Any):
    explanation = explain(real.text)

    assert (explanation.verdict, explanation.certain) == (real.verdict, real.certain)


def test_sixteen_gigabytes_with_336_megabytes_cached_are_no_fragmentation():
    # The advice of the message itself (vllm#7721) is to set expandable_segments.
    explanation = explain(FULL)

    assert explanation.verdict == "full"
    assert explanation.said.advice == "expandable_segments"
    advice = remedy(explanation, "expandable_segments")
    assert (advice.stance, advice.preconditions) == ("cannot", [])
    assert "335.88 MiB" in advice.because
    assert explanation.missing is not None
    assert explanation.missing.low_bytes <= 11.35 * GIB <= explanation.missing.high_bytes


def test_more_free_than_asked_for_is_the_drivers_refusal():
    explanation = explain(TAGGUI)

    assert explanation.verdict == "driver"
    assert remedy(explanation, "expandable_segments").stance == "cannot"
    assert any("page file" in one for one in remedy(explanation, "check_driver").preconditions)


def test_the_last_of_the_free_memory_is_no_refusal():
    # 10 MiB more free than asked for: the driver does not give away the last of it.
    near = capacity("32.00 MiB", "4.00 GiB", "41.56 MiB", "2.58 GiB", "1.90 MiB", own="3.90 GiB")
    far = near.replace("41.56 MiB", "141.56 MiB")

    assert explain(near).verdict == "full"
    assert "never gives the last of it" in " ".join(explain(near).because)
    assert explain(far).verdict == "driver"


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [("2.00 MiB", 1, MIB), ("20.00 MiB", MIB + 1, 20 * MIB), ("22.00 MiB", 20 * MIB - 5000, 22 * MIB + 6000)],
)
def test_the_message_names_the_segment_and_the_program_asked_for_less(asked: str, least: int, most: int):
    explanation = explain(parentheses(asked, "23.69 GiB", "21.73 GiB", "1.94 MiB", "22.07 GiB"))

    assert explanation.requested is not None
    assert least - 1000 <= explanation.requested.low_bytes <= explanation.requested.high_bytes <= most


def test_holes_of_the_size_that_every_run_has_are_no_fragmentation():
    explanation = explain(capacity("22.00 MiB", "23.65 GiB", "11.06 MiB", "22.90 GiB", "194.87 MiB", own="23.60 GiB"))

    assert explanation.verdict == "full"
    assert "0.8 %" in remedy(explanation, "expandable_segments").because


def test_nothing_is_concluded_from_less_than_the_rounding():
    # Asked for, and cached, are equal as printed: it may fit or not.
    text = capacity("2.00 GiB", "24.00 GiB", "0 bytes", "21.00 GiB", "2.00 GiB", own="23.60 GiB")
    explanation = explain(text)

    assert (explanation.verdict, explanation.certain) == ("fragmentation", False)
    assert explanation.causes[0].suffices is None
    assert explain(text.replace("and 2.00 GiB", "and 2.02 GiB")).certain
    assert explain(text.replace("and 2.00 GiB", "and 1.98 GiB")).verdict == "full"


def test_a_desktop_that_holds_little_is_not_why_the_device_is_full():
    text = capacity(
        "18.00 MiB",
        "23.68 GiB",
        "11.06 MiB",
        "22.79 GiB",
        "173.99 MiB",
        own="23.21 GiB",
        processes=((9, "458.00 MiB"),),
    )
    explanation = explain(text)

    assert explanation.verdict == "full"
    assert [(one.verdict, one.suffices, one.counts) for one in explanation.causes] == [
        ("other_process", True, False),
        ("fragmentation", True, False),
    ]
    assert remedy(explanation, "end_other_process").stance == "may"


def test_idle_private_pools_are_found():
    text = capacity(
        "1.00 GiB", "24.00 GiB", "200.00 MiB", "22.00 GiB", "600.00 MiB", own="23.70 GiB", private="4.00 GiB"
    )
    explanation = explain(text)

    assert (explanation.verdict, explanation.certain) == ("graph_pool", True)
    assert [one.verdict for one in explanation.causes] == ["graph_pool", "fragmentation"]
    assert remedy(explanation, "share_graph_pool").stance == "helps"
    assert remedy(explanation, "expandable_segments").stance == "cannot"
    # What the message calls allocated includes what is idle in private pools.
    (tensors,) = [one for one in explanation.accounts if one.kind == "tensors"]
    assert tensors.size.bytes == 18 * GIB


def test_causes_come_by_size_and_the_largest_that_suffices_is_the_verdict():
    text = capacity(
        "1.00 GiB", "40.00 GiB", "0 bytes", "20.00 GiB", "2.00 GiB", own="22.50 GiB", processes=((7, "17.00 GiB"),)
    )
    explanation = explain(text)

    assert [(one.verdict, one.suffices) for one in explanation.causes] == [
        ("other_process", True),
        ("fragmentation", True),
    ]
    assert explanation.verdict == "other_process"
    assert "process 7 (17.00 GiB)" in remedy(explanation, "end_other_process").because


def test_what_suffices_only_together_is_said_to_be_likely():
    text = capacity(
        "6.00 GiB", "40.00 GiB", "1.00 GiB", "30.00 GiB", "3.00 GiB", own="33.50 GiB", processes=((7, "4.00 GiB"),)
    )
    explanation = explain(text)

    assert (explanation.verdict, explanation.certain) == ("other_process", False)
    assert [one.suffices for one in explanation.causes] == [False, False]


def test_a_limit_that_leaves_room_on_the_device_is_the_cause():
    text = capacity(
        "996.00 MiB", "44.43 GiB", "9.06 GiB", "17.44 GiB", "59.88 MiB", own="17.81 GiB", allowed="17.69 GiB"
    )

    assert explain(text).verdict == "limit"
    assert remedy(explain(text), "raise_limit").stance == "helps"
    # Above the limit by itself: raising it helps where the device could give it.
    assert explain(text.replace("996.00 MiB", "8.00 GiB")).verdict == "limit"
    impossible = explain(text.replace("996.00 MiB", "20.00 GiB"))
    assert (impossible.verdict, remedy(impossible, "raise_limit").stance) == ("impossible", "may")


def test_a_limit_that_is_far_away_is_not_the_cause():
    assert explain(TAGGUI.replace("free. ", "free. 3.90 GiB allowed; ")).verdict == "driver"


def test_square_matrices_are_recognised():
    explanation = explain(FULL)

    assert "65536 × 65536" in remedy(explanation, "fused_attention").because
    assert not [one for one in explain(FULL.replace("16.00 GiB", "17.30 GiB")).remedies if one.key == "fused_attention"]


def test_metal_has_a_limit_of_its_own():
    explanation = explain(metal("15.72 GiB", "2.41 MiB", "18.13 GiB", "5.81 GiB"))

    assert explanation.verdict == "limit"
    assert remedy(explanation, "mps_watermark").stance == "may"
    assert not [one for one in explanation.remedies if one.key == "expandable_segments"]
    assert explain(metal("1.00 GiB", "1.00 GiB", "18.13 GiB", "33.92 GiB")).verdict == "impossible"


def test_what_is_not_said_is_said_not_to_be_known():
    explanation = explain("RuntimeError: CUDA error: out of memory")

    assert (explanation.verdict, explanation.certain) == ("unknown", False)
    assert explanation.said.asked is None
    assert "how much was asked for" in explanation.not_known


# ----------------------------------------------------------------------------------------------------------- accounts


def test_the_accounts_add_up_to_the_device():
    explanation = explain(
        capacity(
            "876.00 MiB",
            "23.68 GiB",
            "251.06 MiB",
            "22.65 GiB",
            "77.68 MiB",
            own="22.98 GiB",
            processes=((2612630, "458.00 MiB"),),
        )
    )

    assert [one.kind for one in explanation.accounts] == ["tensors", "unallocated", "own_other", "process", "free"]
    total = explanation.said.total
    assert explanation.adds_up
    assert total is not None
    assert sum(one.size.low_bytes for one in explanation.accounts) <= total.high_bytes
    assert sum(one.size.high_bytes for one in explanation.accounts) >= total.low_bytes


def test_in_a_container_the_process_itself_has_a_strange_number():
    text = capacity(
        "496.00 MiB", "14.75 GiB", "235.06 MiB", "14.06 GiB", "330.42 MiB", processes=((20398, "14.52 GiB"),)
    )
    explanation = explain(text)

    assert explanation.headline.startswith("nearly full")
    assert not [one for one in explanation.causes if one.verdict == "other_process"]
    assert any("20398 is taken for this one" in sentence for sentence in explanation.because)


def test_sums_that_do_not_add_up_are_told():
    # A message of a published guide: it has more than its device.
    explanation = explain(capacity("3.15 GiB", "39.56 GiB", "6.80 GiB", "31.66 GiB", "4.11 GiB", own="36.61 GiB"))

    assert explanation.adds_up is False
    assert explanation.certain is False
    assert explanation.surplus_bytes is not None
    assert abs(explanation.surplus_bytes - 3.85 * GIB) < 0.02 * GIB


def test_more_reserved_than_the_device_has_is_windows_spilling():
    explanation = explain(parentheses("160.00 MiB", "8.00 GiB", "14.25 GiB", "0 bytes", "14.50 GiB"))

    assert explanation.verdict == "full"
    assert any("host's memory" in sentence for sentence in explanation.because)


# ----------------------------------------------------------------------------------------------------------- remedies


@pytest.mark.parametrize(
    ("known", "stance"),
    [
        ({}, "helps"),
        ({"conf": {"expandable_segments": "True"}}, "cannot"),  # pytorch#173049: the message recommends it still
        ({"conf": {"max_split_size_mb": "128"}}, "may"),
        ({"version": (2, 0)}, "helps"),  # no 2.0 words it so
        ({"version": (2, 4)}, "helps"),
    ],
)
def test_expandable_segments_help_only_where_they_can(known: dict[str, Any], stance: str):
    advice = remedy(explain(FRAGMENTED, **known), "expandable_segments")

    assert advice.stance == stance
    assert bool(advice.preconditions) == (stance != "cannot")


def test_on_windows_expandable_segments_cannot_help():
    assert remedy(explain('  File "C:\\Users\\a\\train.py"\n' + FRAGMENTED), "expandable_segments").stance == "cannot"
    assert remedy(explain('  File "/home/a/train.py"\n' + FRAGMENTED), "expandable_segments").stance == "helps"


def test_the_variable_is_that_of_the_device():
    cut = FRAGMENTED.replace("PYTORCH_CUDA_ALLOC_CONF=", "").replace("CUDA out of", "{} out of")

    assert title_of(cut.format("HIP")) == "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True"
    assert title_of(cut.format("CUDA")) == "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    assert title_of(cut.format("CUDA"), version=(2, 9)) == "PYTORCH_ALLOC_CONF=expandable_segments:True"


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_the_variable_is_named_as_the_message_does(name: str):
    text = FRAGMENTED.replace("PYTORCH_CUDA_ALLOC_CONF", name)

    assert title_of(text) == f"{name}=expandable_segments:True"
    assert f"set {name}=" in explain(text).first


def test_empty_cache_cannot_help_what_the_allocator_did_already():
    assert all(remedy(explain(text), "empty_cache").stance == "cannot" for text in (FRAGMENTED, FULL, TAGGUI))


def test_what_helps_stands_before_what_cannot():
    order = [one.stance for one in explain(FRAGMENTED).remedies]

    assert order == sorted(order, key=("helps", "may", "cannot").index)
    assert explain(FRAGMENTED).remedies[0].key == "expandable_segments"


def test_every_text_of_the_knowledge_can_be_filled_in():
    (message,) = find_messages(FULL)
    accounts = accounts_of(message)
    names = places_of(Case(message, accounts, judge(message, accounts)))
    for known in REMEDIES.values():
        assert "{" not in known.title.format(**names)
        for fit in known.fits.values():
            assert "{" not in fit.because.format(**names)


# ----------------------------------------------------------------------------------------------------------- settings


def test_the_allocators_options_are_read_as_it_reads_them():
    assert read_conf(" expandable_segments : True , max_split_size_mb:128") == {
        "expandable_segments": "True",
        "max_split_size_mb": "128",
    }
    assert read_conf("PYTORCH_CUDA_ALLOC_CONF=roundup_power2_divisions:[256:1,>:4],backend:native") == {
        "roundup_power2_divisions": "[256:1,>:4]",
        "backend": "native",
    }
    assert read_conf("expandable_segments:True,expandable_segments:False")["expandable_segments"] == "False"
    assert read_conf("") == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("expandable_segments:true", "takes True or False"),
        ("expandable_segments=True", "NAME:VALUE"),
        ("expandable_segment:True", "no option 'expandable_segment'"),
        ("max_split_size_mb:many", "a whole number"),
        (":::", "NAME:VALUE"),
    ],
)
def test_options_that_the_allocator_refuses_are_refused(text: str, said: str):
    with pytest.raises(InputError, match=said):
        read_conf(text)


def test_versions():
    assert [read_version(text) for text in ("2.4", "v2.10.1+cu121", "1.13.0a0")] == [(2, 4), (2, 10), (1, 13)]
    with pytest.raises(InputError, match="no version"):
        read_version("nightly")


# ------------------------------------------------------------------------------------------------------ unreal numbers


@pytest.mark.parametrize(
    ("text", "headline"),
    [
        (
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 18446744056529682432 bytes.",
            "impossible: the size overflowed: it was 16.00 GiB below zero",
        ),
        (capacity("99999999999999999999.99 GiB", "8.00 GiB", "1.00 GiB", "6.00 GiB", "1.00 MiB"),
         "impossible: 1 EiB or more wanted"),
        (f"CUDA out of memory. Tried to allocate {'9' * 30}.00 GiB.", "impossible: 1 EiB or more wanted"),
    ],
)  # fmt: skip
def test_no_size_is_invented_for_one_that_no_memory_has(text: str, headline: str):
    explanation = explain(text)

    assert (explanation.verdict, explanation.headline) == ("impossible", headline)
    everything = " ".join([explanation.first, *explanation.because, *(one.because for one in explanation.remedies)])
    assert "536870912" not in everything
    assert "1073741824" not in everything
    assert "does not say" not in everything


def test_a_process_smaller_than_its_allocator_blames_nobody():
    text = capacity("2.00 GiB", "79.15 GiB", "1.50 GiB", "70.00 GiB", "7.00 GiB", own="20.00 GiB")
    explanation = explain(text)

    assert "contradict" in explanation.because[0]
    assert explanation.verdict != "other_process"
    assert not explanation.certain
    assert explanation.adds_up is False
    assert sum(one.size.bytes for one in explanation.accounts) <= 79.16 * GIB
    assert "end_other_process" not in [one.key for one in explanation.remedies if one.stance == "helps"]


def test_others_in_a_message_that_contradicts_itself_are_only_perhaps_to_blame():
    text = capacity(
        "2.00 GiB", "79.15 GiB", "1.50 GiB", "40.00 GiB", "0.50 GiB", own="20.00 GiB", processes=((7, "30.00 GiB"),)
    )
    explanation = explain(text)

    assert not explanation.certain
    assert remedy(explanation, "end_other_process").stance == "may"
    assert "cannot all be true" in remedy(explanation, "end_other_process").because


def test_a_process_that_holds_more_than_the_device_has_is_not_the_verdict():
    text = capacity("2.00 GiB", "24.00 GiB", "1.00 GiB", "10.00 GiB", "0.10 GiB", processes=((7, "30.00 GiB"),))
    explanation = explain(text)

    assert (explanation.verdict, explanation.certain) == ("full", False)
    assert "a process is said to hold more" in explanation.because[0]


def test_a_device_that_no_memory_could_fill_has_an_unknown_total():
    explanation = explain(capacity("2.00 GiB", f"{'9' * 21}.00 GiB", "1.50 GiB", "70.00 GiB", "7.00 GiB"))

    assert explanation.said.total is None
    assert explanation.verdict == "fragmentation"


def test_no_verdict_rests_on_more_free_than_there_is():
    explanation = explain(capacity("2.00 GiB", "24.00 GiB", "40.00 GiB", "10.00 GiB", "1.00 GiB"))

    assert (explanation.verdict, explanation.certain) == ("unknown", False)
    assert explanation.because[0] == "The numbers contradict each other: 40.00 GiB free of 24.00 GiB."
    assert "free" not in [one.kind for one in explanation.accounts]


def test_metals_limit_is_not_blamed_where_it_left_room():
    explanation = explain(metal("5.00 GB", "1.00 GB", "9.07 GB", "1.00 GB"))

    assert (explanation.verdict, explanation.certain) == ("driver", False)
    assert "2.07 GiB of the limit of 9.07 GiB would still have been left" in explanation.because[0]


def test_metals_limit_may_have_refused_a_whole_heap():
    explanation = explain(metal("7.50 GB", "1.00 GB", "9.07 GB", "100.00 MB"))

    assert (explanation.verdict, explanation.certain) == ("limit", False)


def test_a_version_that_does_not_word_it_so_is_refuted_by_the_wording():
    explanation = explain(FRAGMENTED, version=(1, 12))

    assert explanation.because[0].startswith("--torch 1.12 does not fit: PyTorch 2.2 or later")
    assert remedy(explanation, "expandable_segments").stance == "helps"
    assert not explain(FRAGMENTED, version=(2, 4)).because[0].startswith("--torch")


# ----------------------------------------------------------------------------------------------------------- snapshot


def memory(*, reserved: float, hard: int = 0, soft: int = 0, stream: int = 0, **settings_: object) -> Memory:
    """What a snapshot would say, in MiB."""
    return Memory(
        source=Source(path="s.pickle", format="snapshot", device=0, settings=dict(settings_), repairs=[]),
        totals=Totals(requested_bytes=None, allocated_bytes=None, active_bytes=None, reserved_bytes=int(reserved)),
        free=Free(whole_segments_bytes=soft * MIB, holes_bytes=hard * MIB, largest_hole_bytes=90 * MIB),
        fragmentation=Fragmentation(
            hard_bytes=hard * MIB, soft_bytes=soft * MIB, stream_bytes=stream * MIB, rounding_bytes=0
        ),
        segments=[],
        blocks=[],
        pinned_by=[
            Pin(
                where=f"model.py:{n} forward", stack=[], blocks=1, bytes=1, segments=1, holes_bytes=1, only_here_bytes=1
            )
            for n in range(5)
        ],
        health=[],
        devices=[],
        findings=[],
        history=HistoryInfo(
            entries=9,
            span_us=None,
            truncated=None,
            live_blocks=0,
            live_blocks_with_stack=0,
            segment_allocs=0,
            segment_frees=0,
            out_of_memory=[
                OutOfMemory(bytes=471 * MIB, device_free_bytes=None, time_us=None, stack=["train.py:8 step"])
            ],
        ),
    )


def with_snapshot(
    monkeypatch: pytest.MonkeyPatch, of: Memory | None, text: str = FRAGMENTED, **known: Any
) -> Explanation:
    monkeypatch.setattr("foretrace.memory.oom.explain.examined", lambda snapshot, message, judgement: of)
    return explain(text, snapshot=Snapshot("s.pickle", ()), **known)


RESERVED = 21.95 * GIB  # of FRAGMENTED


def test_a_snapshot_bears_the_verdict_out(monkeypatch: pytest.MonkeyPatch):
    explanation = with_snapshot(monkeypatch, memory(reserved=RESERVED, hard=3700))

    assert explanation.snapshot is not None
    assert explanation.snapshot.agrees is True
    assert explanation.snapshot.where == "train.py:8 step"
    assert explanation.snapshot.pinned_by == [f"model.py:{n} forward" for n in range(3)]
    assert remedy(explanation, "expandable_segments").stance == "helps"


def test_memory_of_other_streams_is_not_joined_by_expandable_segments(monkeypatch: pytest.MonkeyPatch):
    explanation = with_snapshot(monkeypatch, memory(reserved=RESERVED, hard=100, stream=3600))

    assert explanation.snapshot is not None
    assert explanation.snapshot.agrees is False
    assert remedy(explanation, "expandable_segments").stance == "cannot"


def test_a_snapshot_of_another_moment_is_not_held_against_the_verdict(monkeypatch: pytest.MonkeyPatch):
    explanation = with_snapshot(monkeypatch, memory(reserved=10 * GIB, hard=100))

    assert explanation.snapshot is not None
    assert explanation.snapshot.agrees is None
    assert "another moment" in explanation.snapshot.because[0]
    assert explanation.snapshot.pinned_by == []
    assert explanation.snapshot.where is None


def test_nothing_is_taken_from_a_snapshot_that_does_not_fit(monkeypatch: pytest.MonkeyPatch):
    of = memory(reserved=10 * GIB, hard=100, expandable_segments=True)
    explanation = with_snapshot(monkeypatch, of)

    assert remedy(explanation, "expandable_segments").stance == "helps"
    assert explanation.snapshot is not None
    assert explanation.snapshot.because[-1] == "Nothing of it is used."


def test_what_is_allocated_has_to_fit_as_well(monkeypatch: pytest.MonkeyPatch):
    of = memory(reserved=RESERVED, hard=3700)
    of.totals.allocated_bytes = 9 * GIB
    explanation = with_snapshot(monkeypatch, of)

    assert explanation.snapshot is not None
    assert "9.00 GiB allocated in it, 18.26 GiB when the request failed" in explanation.snapshot.because[0]
    assert explanation.snapshot.pinned_by == []


def test_a_snapshot_in_which_the_request_succeeds_is_of_another_moment(monkeypatch: pytest.MonkeyPatch):
    of = memory(reserved=RESERVED, hard=100, soft=3600)
    of.request = Request(
        bytes=1,
        rounded_bytes=512,
        stream=0,
        pool=[0, 0],
        succeeds=True,
        from_="release",
        because="A segment is given back.",
    )
    explanation = with_snapshot(monkeypatch, of)

    assert explanation.snapshot is not None
    assert explanation.snapshot.agrees is None
    assert explanation.snapshot.because[-1] == "A segment is given back."
    assert remedy(explanation, "expandable_segments").stance == "helps"


@pytest.mark.parametrize(
    "recorded", [{"expandable_segments": True}, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}]
)
def test_the_snapshots_settings_count(monkeypatch: pytest.MonkeyPatch, recorded: dict[str, object]):
    explanation = with_snapshot(monkeypatch, memory(reserved=RESERVED, hard=3700, **recorded))

    assert remedy(explanation, "expandable_segments").stance == "cannot"
    assert remedy(explanation, "expandable_segments").because.startswith("It is on already")
    assert not any("expandable" in one for one in explanation.not_known)


def test_the_failed_request_of_the_history_is_what_is_tried_again(monkeypatch: pytest.MonkeyPatch):
    asked: list[dict[str, Any]] = []

    def examine(snapshot: Snapshot, **given: Any) -> Memory:
        asked.append(given)
        return memory(reserved=RESERVED, hard=3700)

    module = ModuleType("foretrace.memory.examining")
    module.examine = examine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "foretrace.memory.examining", module)
    history = History(
        device=0,
        action=np.array([ACTIONS.index(name) for name in ("oom", "alloc", "oom")], np.uint8),
        address=np.zeros(3, np.uint64),
        size=np.array([471 * MIB, 471 * MIB, 3 * MIB]),
        stream=np.array([7, 8, 9]),
        time_us=np.zeros(3, np.int64),
        stack=np.zeros(3, np.int32),
        metadata=np.zeros(3, np.int32),
    )
    snapshot = Snapshot("s.pickle", (), histories=(history,))

    explain(FRAGMENTED, snapshot=snapshot)
    explain(FRAGMENTED.replace("472.00", "900.00"), snapshot=snapshot)

    assert [(one["request_bytes"], one["stream"]) for one in asked] == [(471 * MIB, 7), (900 * MIB, None)]
    assert asked[0]["device"] == 0
    assert asked[0]["limit_bytes"] is None
    assert abs(asked[0]["device_free_bytes"] - 114.56 * MIB) <= 1


def test_the_snapshot_may_be_of_another_device(monkeypatch: pytest.MonkeyPatch):
    explanation = with_snapshot(monkeypatch, None)

    assert explanation.snapshot is not None
    assert explanation.snapshot.because == ["The snapshot holds no memory at all.", "Nothing of it is used."]


def test_an_empty_snapshot_is_said_to_be_empty():
    explanation = explain(FRAGMENTED, snapshot=Snapshot("s.pickle", ()))

    assert explanation.snapshot is not None
    assert explanation.snapshot.because[0] == "The snapshot holds no memory at all."


def test_options_of_a_snapshot_are_put_into_the_words_of_the_variable():
    recorded = {"max_split_size": 128 * MIB, "expandable_segments": False, "PYTORCH_ALLOC_CONF": "backend:native"}

    assert evidence.conf_of(memory(reserved=0, **recorded)) == {
        "backend": "native",
        "expandable_segments": "False",
        "max_split_size_mb": "128",
    }
    assert evidence.conf_of(memory(reserved=0, max_split_size=-1)) == {}


# --------------------------------------------------------------------------------------------------------- properties

sizes = st.one_of(st.integers(0, 4096), st.integers(0, 1 << 30), st.integers(0, 1 << 37)).map(
    lambda size: f"{size / GIB:.2f} GiB" if size > GIB else f"{size / MIB:.2f} MiB" if size > MIB else f"{size} bytes"
)


@given(st.lists(sizes, min_size=8, max_size=8), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_numbers_get_one_verdict_whose_reasons_hold(numbers: list[str], own: bool, allowed: bool, private: bool):
    text = capacity(
        *numbers[:5], own=numbers[5] if own else None, allowed=numbers[6] if allowed else None,
        private=numbers[7] if private else None, processes=((5, numbers[7]),) * own,
    )  # fmt: skip
    oom = explain_text(text)
    (explanation,) = oom.messages
    said = explanation.said
    assert said.asked is not None
    assert said.total is not None
    assert said.free is not None

    if explanation.verdict == "impossible":
        most = min(size.high_bytes for size in (said.total, said.allowed) if size is not None)
        assert said.asked.low_bytes > most or not explanation.certain
    elif explanation.verdict == "driver":
        assert said.free.low_bytes > said.asked.high_bytes
    elif explanation.verdict == "full":
        assert not any(one.suffices and one.counts for one in explanation.causes)
    else:
        (cause, *_) = [one for one in explanation.causes if one.verdict == explanation.verdict]
        assert cause.suffices or not explanation.certain
    assert [one.size.bytes for one in explanation.causes] == sorted(
        (one.size.bytes for one in explanation.causes), reverse=True
    )
    for account in explanation.accounts:
        assert 0 <= account.size.low_bytes <= account.size.high_bytes
    assert render_oom(oom)
    assert to_json(oom)


@given(st.lists(st.one_of(pieces, st.text(max_size=20)), max_size=8))
@settings(max_examples=150, deadline=None)
def test_hostile_text_is_explained_or_refused_in_one_sentence(parts: list[str]):
    try:
        oom = explain_text("".join(parts))
    except InputError as error:
        assert str(error).startswith("there is no out-of-memory message")  # noqa: PT017  (either is right)
        return
    screen = render_oom(oom)
    assert "\x1b" not in screen
    assert "\u202e" not in screen
    assert to_json(oom)
