#!/usr/bin/env bash
# The stages that made the checkpoints in pretrained/, each with its time and size on a machine of two cores.
#
#   analysis/reproduce.sh MINIPILE OUT
#
# MINIPILE: folder of *.train.jsonl.zst (pretrained/minipile/README.md has how it is built). OUT: a new folder.
# Every stage is an artifact that is made once, so the script can be stopped and started again.
set -euo pipefail
cd "$(dirname "$0")/.."
MINIPILE=$1 OUT=$2 SPLIT=pretrained/minipile
SHAPE=(--set context_len=512 --set batch_size=8 --set eval_tokens=65536 --max-train-count 100 --compile)
CORPORA=(--corpus "$OUT/train" --eval-corpus "$OUT/valid")

tokenized() { recallgap corpus build "${@:2}" --tokenizer $SPLIT/tokenizer.json --separator '<|endoftext|>' -o "$1"; }
tokenized "$OUT/train" "$MINIPILE"/*.train.jsonl.zst      # 74,261,529 tokens: 35 s, 150 MB
tokenized "$OUT/valid" $SPLIT/valid.jsonl.zst             # 397,390 tokens: 2 s

# A sweep of three learning rates of 3M tokens each, then a run of 30M with the best of them.
checkpoint() {  # NAME LEARNING_RATES BEST
  recallgap sweep "$1" "${CORPORA[@]}" -o "$OUT/sweep-$1" "${SHAPE[@]}" \
    --set tokens=3e6 --set evaluations=6 --set "learning_rate=$2"
  recallgap pretrain "$1" "${CORPORA[@]}" -o "$OUT/$1" "${SHAPE[@]}" \
    --set tokens=30e6 --set evaluations=30 --set "learning_rate=$3"
  python pretrained/ship.py "$OUT/$1" --corpus "$OUT/valid" --counts $SPLIT/counts --sweep "$OUT/sweep-$1/sweep.json"
}

checkpoint attention-3m 1.5e-3,3e-3,6e-3 3e-3             # 60 minutes and a sweep of 23 (the machine did other work)
checkpoint base-conv-3m 3e-3,6e-3,1.2e-2 1.2e-2           # 24 minutes and a sweep of 12
checkpoint base-conv-programmatic-3m 3e-3,6e-3,1.2e-2 1.2e-2  # 38 minutes and a sweep of 13, on one core
checkpoint hyena-3m 3e-3,6e-3,1.2e-2 3e-3                     # 45 minutes and a sweep of 15, on one core
checkpoint rwkv-3m 1.5e-3,3e-3,6e-3 6e-3                      # 43 minutes and a sweep of 13 (in two parts), on one core
checkpoint base-conv-full-3m 3e-3,6e-3,1.2e-2 1.2e-2          # 59 minutes and a sweep of 25 (the core did other work)
checkpoint long-conv-3m 3e-3,6e-3,1.2e-2 1.2e-2               # 61 minutes and a sweep of 27 (the core did other work)
checkpoint retnet-3m 1.5e-3,3e-3,6e-3 1.5e-3                  # 79 minutes and a sweep of 33 (the core did other work)
checkpoint base-conv-learned-3m 3e-3,6e-3,1.2e-2 1.2e-2       # 34 minutes and a sweep of 16, on one core
checkpoint h3-3m 1.5e-3,3e-3,6e-3 6e-3                        # 48 minutes and a sweep of 15, on one core
checkpoint base-conv-random-3m 3e-3,6e-3,1.2e-2 1.2e-2        # 33 minutes and a sweep of 10, on one core
checkpoint gated-delta-net-3m 1.5e-3,3e-3,6e-3 6e-3           # 99 minutes and a sweep of 28 (the core did other work)
checkpoint mamba2-3m 1.5e-3,3e-3,6e-3 3e-3                    # 82 minutes and a sweep of 33 (the core did other work)
python analysis/shipped.py "$OUT/shipped"                 # the table and curves of pretrained/README.md: 1 minute
