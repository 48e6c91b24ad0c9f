"""The ways a program can run that can be predicted, and why the others cannot."""

from __future__ import annotations

from foretrace.errors import InputError

__all__ = ["VARIANTS", "check_variant"]

VARIANTS = ("eager", "compile", "foretrace", "liger")
# Variants that `foretrace run` records and nothing without the GPU can tell.
_UNPREDICTED = {
    "max-autotune": "max-autotune times candidate kernels on the GPU itself to choose among them",
    "reduce-overhead": "reduce-overhead replays CUDA graphs of the kernels that compile launches",
}


def check_variant(variant: str) -> None:
    """Raise `InputError` for a variant that cannot be predicted, with the reason where there is one."""
    if variant in VARIANTS:
        return
    if variant.startswith("hub:"):
        raise InputError(
            f"--variant {variant} cannot be predicted: what a layer of the hub launches is known to its code alone; "
            "record it with foretrace run, or predict foretrace or liger"
        )
    if variant == "foretrace+compile":
        raise InputError(
            f"--variant {variant} cannot be predicted: how the compiler fuses what surrounds the fused operators is "
            "not modelled; --variant foretrace is the nearest"
        )
    reason = _UNPREDICTED.get(variant.removeprefix("compile-"))
    if reason is not None:
        raise InputError(f"--variant {variant} cannot be predicted: {reason}; --variant compile is the nearest")
    raise InputError(f"--variant {variant} is not known; choose from {', '.join(VARIANTS)}")
