"""Subjects by instruction: each is a kernel that has the instruction of its name, proved."""

import pytest

import taskfuse as tf
from taskfuse.kir import walk
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, TmaLoad, TmaStore
from taskfuse.kir.products import LdMatrix, Mma, StMatrix, Wgmma
from taskfuse.testing.instruction_subjects import INSTRUCTIONS

HAS = {
    "wgmma:bf16": (Wgmma, TmaLoad),
    "wgmma:e4m3": (Wgmma, TmaLoad),
    "wgmma:tf32": (Wgmma, TmaLoad),
    "wgmma:registers": (Wgmma, LdMatrix),
    "wgmma:blocks": (Wgmma,),
    "wgmma:threads": (Wgmma,),
    "wgmma:stored": (Wgmma, StMatrix, TmaStore),
    "wgmma:persistent": (Wgmma, TmaLoad),
    "wgmma:cluster": (Wgmma, TmaLoad),
    "mma:ldmatrix": (Mma, LdMatrix),
    "mma:stmatrix": (Mma, LdMatrix, StMatrix),
    "mma:cp.async": (Mma, LdMatrix, AsyncCopy),
    "update:vectors": (AtomicUpdate,),
    "update:boxes": (TmaStore,),
    "update:blocks": (TmaStore,),
}


def test_every_subject_is_expected() -> None:
    assert HAS.keys() == INSTRUCTIONS.keys()


@pytest.mark.parametrize("name", HAS)
def test_instructions(name: str) -> None:
    kernel = tf.lower(INSTRUCTIONS[name]())
    found = {type(s) for s in walk(kernel)}
    assert {*HAS[name]} <= found
    assert (Mma if Wgmma in HAS[name] else Wgmma) not in found
    assert (max(str(n) for n in kernel.cluster) != "1") is (name == "wgmma:cluster")
