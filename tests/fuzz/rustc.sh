#!/bin/sh
# Stands between cargo and rustc when the fuzz targets are built (RUSTC_WORKSPACE_WRAPPER): the product and the targets get
# the counters that guide libFuzzer and checks of arithmetic, everything else stays as it is built for the tests. These
# passes are LLVM's own, so the stable compiler has them.
case " $* " in
*" --crate-name zerohop "* | *" --crate-name zerohop_simd "* | *" --crate-name zerohop_engine "* | *" --crate-name zerohop_fuzz "* | *" --crate-name fuzz "*)
    exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks
    ;;
*)
    exec "$@"
    ;;
esac
