#!/bin/sh
# Shows on a machine with an NVIDIA GPU that models and masks run there. Takes under 8 minutes, downloads nothing.
#
#   bench/gpu.sh [--cpu] [MODEL]      MODEL: a directory with f16 keys and values, models/tiny-f16 by itself
#
# ZEROHOP_CUDA names the folder that `cargo xtask setup --cuda FOLDER` filled, brought along. ZEROHOP_GPU_BENCH may name the
# program built elsewhere (cargo build --release -p zerohop-engine --example gpu), so that no compiler is needed here.
# With --cpu everything that can be computed without a GPU is, on the CPU provider (by ORT_DYLIB_PATH or the library that
# `cargo xtask setup` fetched). Ends with 1 if a check failed.
set -eu
cd "$(dirname "$0")/.."

provider=cuda
if [ "${1:-}" = --cpu ]; then
    provider=cpu
    shift
fi
model=${1:-models/tiny-f16}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

if [ "$provider" = cuda ]; then
    : "${ZEROHOP_CUDA:?names the folder that cargo xtask setup --cuda FOLDER filled}"
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
    ORT_DYLIB_PATH=$(ls "$ZEROHOP_CUDA"/libonnxruntime.so.*)
    export ORT_DYLIB_PATH ZEROHOP_CUDA
elif [ -z "${ORT_DYLIB_PATH:-}" ]; then
    ORT_DYLIB_PATH=$(ls target/onnxruntime/libonnxruntime.so.*)
    export ORT_DYLIB_PATH
    unset ZEROHOP_CUDA || true
fi
program=${ZEROHOP_GPU_BENCH:-}
if [ -z "$program" ]; then
    cargo build --quiet --release -p zerohop-engine --example gpu
    program=target/release/examples/gpu
fi
timeout 420 "$program" "$provider" "$model" "$out"
