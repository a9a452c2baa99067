"""Train the mini-Pile's tokenizer: byte-level BPE on its train split.

    python pretrained/minipile/train_tokenizer.py FOLDER_OF_JSONL_ZST

The same text gives the same bytes. GPT-2's splitting pattern, but every digit on its own, so that numbers are
spelt alike wherever they stand.
"""

import sys
from pathlib import Path

from make_eval import documents
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB_SIZE = 4096
END = "<|endoftext|>"


def texts(folder):
    """All train texts, domain by domain."""
    for path in sorted(folder.glob("*.train.jsonl.zst")):
        for document in documents(path):
            yield document["text"]


def main():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(Path(sys.argv[1])), trainer)
    out = Path(__file__).with_name("tokenizer.json")
    tokenizer.save(str(out))
    print(f"{out.name}: {tokenizer.get_vocab_size()} entries, {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
