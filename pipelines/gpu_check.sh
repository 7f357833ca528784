#!/usr/bin/env bash
# Speed on one GPU in under eight minutes, on a bare machine too:
#
#     pipelines/gpu_check.sh                                  a 7B shape with random weights
#     pipelines/gpu_check.sh --model random:qwen3-vl-8b
#
# 1. Finds a Python whose torch sees the GPU and that can import the package; else makes one in
#    .venv-gpu over what the system has. Nothing is downloaded where all imports work already.
# 2. Runs the tests that need a GPU.
# 3. Measures (pipelines/gpu_check.py); options are handed on to it.
#
# PYTHON=...  use this interpreter; OUT=...  where results go (runs/gpu_check);
# SETUP_S, TESTS_S, MINUTES: most time of each step; without MINUTES the third takes what the others
# leave of seven and a half. Exit status: 1 where a test or a part failed; a missed target is none.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
export HF_HUB_OFFLINE=1 MPLBACKEND=Agg OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0
out=${OUT:-runs/gpu_check}
setup_s=${SETUP_S:-150} tests_s=${TESTS_S:-60} total_s=450

sees_gpu() { "$1" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2> /dev/null; }
imports() { "$1" -c 'import hermes_like.session, pipelines.gpu_check' > /dev/null 2>&1; }
missing() { "$1" -c 'import hermes_like.session, pipelines.gpu_check' 2>&1 | tail -1; }

# One that sees the GPU before one that does not: a checkout may carry a CPU build of torch.
candidates=(${PYTHON:+"$PYTHON"} .venv/bin/python .venv-gpu/bin/python python3 python)
pick() {
    local test python
    for test in sees_gpu true; do
        for python in "${candidates[@]}"; do
            command -v "$python" > /dev/null && "$test" "$python" && imports "$python" \
                && echo "$python" && return
        done
    done
    return 1
}

make_environment() {
    local base=${PYTHON:-python3}
    echo "no interpreter can import everything ($base: $(missing "$base")); making .venv-gpu"
    "$base" -m venv --system-site-packages .venv-gpu || return 1
    # With what the system has where that is enough, and with a package index where it is not.
    timeout "$setup_s" .venv-gpu/bin/python -m pip install --quiet --no-build-isolation \
        --no-deps -e . 2> /dev/null
    imports .venv-gpu/bin/python \
        || timeout "$setup_s" .venv-gpu/bin/python -m pip install --quiet -e . pytest
}

if python=$(pick); then
    # Without a GPU everything still runs, small, so that the check itself can be checked.
    echo "interpreter: $python"
else
    make_environment || { echo "an environment could not be made" >&2; exit 1; }
    python=.venv-gpu/bin/python
    imports "$python" || { echo "$python: $(missing "$python")" >&2; exit 1; }
fi
sees_gpu "$python" || echo "torch of $python sees no GPU: the figures are those of a CPU"

status=0
if "$python" -c 'import pytest' 2> /dev/null; then
    timeout "$tests_s" "$python" -m pytest -p no:cacheprovider -m gpu -rs tests/gpu tests/codec \
        tests/memory/test_kernels.py tests/models/test_device_map_session.py
    code=$?
    [ "$code" = 0 ] || [ "$code" = 5 ] || { echo "tests on the GPU: exit status $code"; status=1; }
else
    echo "tests on the GPU: left out, pytest is not installed"
fi

left_s=$((total_s - SECONDS))
minutes=${MINUTES:-$(printf '%d.%02d' $((left_s / 60)) $((left_s % 60 * 100 / 60)))}
"$python" -m pipelines.gpu_check --minutes "$minutes" --out "$out" "$@" || status=1
exit "$status"
