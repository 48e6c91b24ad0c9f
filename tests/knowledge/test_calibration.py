"""The shipped calibration: whole, readable, and in the package."""

import json
import tomllib
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from foretrace.knowledge.calibration import calibration_for, margins
from foretrace.knowledge.gpus import find
from foretrace.knowledge.kernels import decode
from foretrace.prediction.clock.points import PRODUCT_AXES, product_points

ROOT = Path(__file__).parents[2]
H200 = calibration_for(find("H200"))
PRODUCTS = [f"{width} {layout}" for width in ("16-bit", "fp32") for layout in ("TN", "NN", "NT")]
OTHERS = sorted(H200.groups - set(PRODUCTS))


def test_a_gpu_that_was_measured_has_its_own_and_every_other_the_nearest():
    assert (H200.exact, H200.gpu) == (True, "H200")
    other = calibration_for(find("A100"))
    assert (other.exact, other.gpu) == (False, "H200")
    assert calibration_for(find("H200")) is H200


def test_it_says_where_it_comes_from():
    assert "benchmarks/predictor" in H200.source
    assert "H200" in H200.source
    assert "torch" in H200.source
    assert "products of the judged programs left out" in H200.source


def test_every_group_is_one_of_products_or_has_points_of_its_own():
    assert set(PRODUCTS) <= H200.groups
    assert all(H200.has_products(group) for group in PRODUCTS)
    assert not any(H200.has_products(group) for group in OTHERS)


@pytest.mark.parametrize("group", PRODUCTS)
def test_the_arrays_of_a_group_of_products_are_of_one_length_and_plausible(group):
    arrays = {name: H200.array(group, name) for name in ("sizes", "flags", "cold", "warm", "pattern", "extra")}
    count = len(arrays["sizes"])
    assert count > 500
    assert arrays["sizes"].shape == (count, 4)
    assert {len(array) for array in arrays.values()} == {count}
    assert (arrays["sizes"] >= 1).all()
    assert set(np.unique(arrays["flags"])) <= {0, 1, 2, 3}
    assert arrays["pattern"].max() < len(H200.patterns)
    assert ((arrays["extra"] >= 0) & (arrays["extra"] < 1)).all()
    for name in ("cold", "warm"):
        assert np.isfinite(arrays[name]).all()
        assert np.median(np.abs(arrays[name])) < 0.5


@pytest.mark.parametrize("group", OTHERS)
def test_the_arrays_of_another_group_are_of_one_length(group):
    features, cold, warm = (H200.array(group, name) for name in ("features", "cold", "warm"))
    assert features.shape == (len(cold), 3)
    assert len(cold) == len(warm) > 0
    assert all(np.isfinite(array).all() for array in (features, cold, warm))


def test_no_product_is_kept_twice():
    for group in PRODUCTS:
        calls = np.column_stack([H200.array(group, "sizes"), H200.array(group, "flags")])
        assert len(np.unique(calls, axis=0)) == len(calls)


def test_every_pattern_is_of_kernels_whose_names_are_known():
    """A memset may stand in front; the rest are products, or what a library puts beside them."""
    families = set()
    for pattern in H200.patterns:
        names = pattern[1:] if pattern[0] == "memset" else pattern
        assert names
        decoded = [decode(name) for name in names]
        assert "gemm" in {kernel.kind for kernel in decoded}
        families |= {kernel.family for kernel in decoded}
    assert {"nvjet", "cublas", "cutlass"} <= families
    assert "unknown" not in families


def test_a_name_that_is_asked_for_in_vain_is_a_key_error():
    with pytest.raises(KeyError):
        H200.array("16-bit TN", "features")
    with pytest.raises(KeyError):
        H200.array("16-bit XY", "sizes")


def test_the_constants_are_shares_that_physics_allows():
    constants = H200.constants
    assert constants["arch"] == find("H200").arch
    assert set(constants["products"]) == {"bf16", "fp32"}
    for shares in (*constants["products"].values(), constants["memory"]):
        assert shares["cold_tbps"] <= 1.0
        assert shares["warm_tbps"] >= shares["cold_tbps"]
        assert shares.get("tflops", 1.0) <= 1.0
        assert all(value > 0 for value in shares.values())
    assert 0 < constants["cache_share"] <= 1


def test_points_are_made_from_what_is_kept():
    sizes = H200.array("fp32 NT", "sizes").astype(float)
    flags = H200.array("fp32 NT", "flags")
    points = product_points(sizes, "NT", bias=flags & 1 != 0, dtype="fp32", fp16=flags & 2 != 0)
    assert points.shape == (len(sizes), len(PRODUCT_AXES))
    assert np.isfinite(points).all()


def test_it_is_part_of_the_package():
    """Hatch packs everything below the package's folder that version control does not ignore."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["packages"] == ["src/foretrace"]
    assert not {"exclude", "include", "only-include"} & (build.keys() | build["targets"]["wheel"].keys())
    ignored = (ROOT / ".gitignore").read_text().split()
    assert not {"*.npz", "*.json"} & set(ignored)
    folder = resources.files("foretrace.knowledge.calibration")
    assert json.loads(folder.joinpath("h200.json").read_text())["gpu"] == "H200"
    assert folder.joinpath("h200.npz").is_file()


def test_the_package_stays_small():
    assert (ROOT / "src/foretrace/knowledge/calibration/h200.npz").stat().st_size < 2 << 20


def test_margins_widen_with_ignorance():
    assert 0 < margins.AGREEING < margins.MEASURED < margins.STAND_IN < margins.MODEL_ONLY <= margins.OTHER_GPU
