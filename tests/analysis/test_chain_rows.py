"""Which events the nodes of a dispatch chain stand for."""

import pytest

from builders import TraceBuilder
from foretrace.analysis.chain_rows import chain_events
from foretrace.analysis.explain import explain
from foretrace.analysis.timeline import timeline_of
from foretrace.model.report import Launcher
from foretrace.trace import load


def nodes(chain: list[Launcher]) -> list[Launcher]:
    found: list[Launcher] = []
    for node in chain:
        found += [node, *nodes(node.children)]
    return found


def laid_over(trace):
    report = explain(trace)
    events = chain_events(report, timeline_of(trace, report))
    listed = nodes(report.chain)
    assert len(events) == len(listed)
    return list(zip(listed, events, strict=True))


def test_a_node_stands_for_its_rows_in_its_own_step():
    build = TraceBuilder()
    for number, (at, length) in enumerate([(0, 700), (800, 800), (1700, 1000)]):
        build.step(number, at, length)
        build.op("aten::mm", at + 10, 30)
        build.kernel("gemm", at + 50, 100, launch=build.launch(at + 20))
    trace = build.trace()
    names = {event: trace.name(row) for row, event in enumerate(trace.event.tolist())}
    starts = {event: trace.start_us(row) for row, event in enumerate(trace.event.tolist())}
    for node, events in laid_over(trace):
        assert [names[event] for event in events] == [node.name]
        assert 800 <= starts[events[0]] < 1700  # the step of median length


def test_folded_neighbours_stand_for_all_of_their_rows_in_order():
    build = TraceBuilder()
    build.step(0, 0, 900)
    ops, kernels = [], []
    for number in range(3):
        at = 10 + 100.0 * number
        ops.append(build.op("aten::add", at, 30))
        launch = build.launch(at + 5)
        kernels.append(build.kernel("add_kernel", at + 40, 10, launch=launch))
    found = {(node.name, node.kind): (node.count, events) for node, events in laid_over(build.trace())}
    assert found["aten::add", "operator"] == (3, ops)
    assert found["add_kernel", "kernel"] == (1, kernels)


def test_equal_names_in_different_places_are_told_apart():
    build = TraceBuilder()
    build.step(0, 0, 900)
    add = [build.op("aten::add", 10, 10)]
    build.op("aten::mul", 30, 10)
    add.append(build.op("aten::add", 50, 10))
    found = [events for node, events in laid_over(build.trace()) if node.name == "aten::add"]
    assert found == [[add[0]], [add[1]]]


def test_rows_that_are_not_drawn_leave_a_node_without_events_rather_than_with_wrong_ones():
    build = TraceBuilder()
    build.step(0, 0, 900)
    for number in range(4):
        build.op("aten::add" if number % 2 else "aten::mul", 10 + 20.0 * number, 10 + number)
    trace = build.trace()
    report = explain(trace)
    whole = chain_events(report, timeline_of(trace, report))
    cut = chain_events(report, timeline_of(trace, report, most_rows=3))
    assert all(whole)
    assert len(cut) == len(whole)
    assert all(few in ([], all_of_it) for few, all_of_it in zip(cut, whole, strict=True))
    assert any(not few for few in cut)


def test_work_without_launches_is_found_by_name_and_order():
    build = TraceBuilder()
    kernels = [build.kernel(name, 100.0 * at, 10) for at, name in enumerate(["a", "b", "b", "a"])]
    found = [(node.name, events) for node, events in laid_over(build.trace())]
    assert found == [("a", kernels[:1]), ("b", kernels[1:3]), ("a", kernels[3:])]


@pytest.mark.parametrize("name", ["mlp_eager", "mlp_compile", "mlp_train_eager", "mlp_cudagraph", "linear_eager"])
def test_on_real_traces_every_event_has_the_name_of_its_node(name):
    trace = load(f"tests/data/traces/{name}.json.gz")
    row_of = {event: row for row, event in enumerate(trace.event.tolist())}
    known = 0
    for node, events in laid_over(trace):
        assert all(trace.name(row_of[event]) == node.name for event in events)
        assert len(events) == len(set(events))
        known += bool(events)
    assert known
