//! The binary: everything is in the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    zerohop::cli::main(std::env::args_os())
}
