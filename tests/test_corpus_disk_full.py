"""A full disk is a clear error, and nothing that was finished is lost. Needs the right to mount a tmpfs."""

import shutil

import numpy as np
import pytest
from conftest import DISK_KILOBYTES
from test_corpus_build import content

from recallgap.corpus import BuildConfig, build_corpus
from recallgap.errors import ArtifactError


def test_a_full_disk(disk, tokenizer_file, tmp_path):
    """Whatever file the space runs out in, the error says so, and the next run ends in the same bytes."""
    random = np.random.default_rng(1)
    for n in range(40):
        (tmp_path / "texts").mkdir(exist_ok=True)
        text = "".join(map(chr, random.integers(33, 127, 1000)))
        (tmp_path / "texts" / f"{n:02}.txt").write_text(text)
    config = BuildConfig(tokenizer=str(tokenizer_file), shard_tokens=8000)
    whole = build_corpus([tmp_path / "texts"], tmp_path / "whole", config=config)
    n_failed = 0
    for free in range(4, 160, 12):
        ballast, out = disk / "ballast", disk / f"out-{free}"
        ballast.write_bytes(bytes((DISK_KILOBYTES - free) << 10))
        with pytest.raises(
            ArtifactError, match=r"the disk is full.*\d finished file\(s\) are kept in .*partial"
        ):
            build_corpus([tmp_path / "texts"], out, config=config)
        n_failed += 1
        ballast.unlink()
        build_corpus([tmp_path / "texts"], out, config=config)
        assert content(out) == content(whole.path)
        shutil.rmtree(out)
    assert n_failed > 5
