//! The operation table on every maker: io_uring at every level that the kernel has, epoll, and the simulation, perfect
//! and rough.

#![allow(clippy::print_stderr, reason = "what is skipped is said aloud")]

mod support;

use support::worlds;
use zerohop_ring::{Backend, Level, Options, Uring, probe, sim::Faults};

mod cases {
    pub(crate) use super::support::{cases::*, reads::*};
}

/// Seeds of the rough simulated runs of each case.
const SEEDS: u64 = 12;

/// The levels that this machine allows; none where io_uring is forbidden, which is said aloud.
fn levels() -> Vec<Level> {
    if let Err(error) = probe(Backend::Uring) {
        eprintln!("skipped, no io_uring here: {error}");
    }
    let allowed = |level: &Level| Uring::new(Options::default(), *level).is_ok();
    Level::ALL.into_iter().filter(allowed).collect()
}

macro_rules! table {
    ($($case:ident),* $(,)?) => {
        mod uring {
            $(#[test] fn $case() {
                for level in super::levels() {
                    super::cases::$case(super::worlds::uring(level));
                }
            })*
        }
        mod zero_copy {
            $(#[test] fn $case() {
                for level in super::levels() {
                    super::cases::$case(super::worlds::zero_copy(level));
                }
            })*
        }
        mod epoll {
            $(#[test] fn $case() {
                super::cases::$case(super::worlds::epoll);
            })*
        }
        mod sim {
            $(#[test] fn $case() {
                super::cases::$case(super::worlds::sim(0, super::Faults::NONE));
                for seed in 0..super::SEEDS {
                    super::cases::$case(super::worlds::sim(seed, super::Faults::ROUGH));
                }
            })*
        }
    };
}

table! {
    accept,
    echo,
    nothing_before_recv,
    pipelined,
    many_at_once,
    pause_and_resume,
    pause_of_nothing,
    pause_taken_back,
    slow_reader,
    empty_send,
    parcels,
    parcels_of_one_piece,
    second_send_panics,
    close_after_send,
    abort_cuts_a_send,
    abort_overtakes_close,
    peer_resets,
    peer_resets_a_send,
    half_close,
    finish_then_receive,
    past_ids_do_nothing,
    overflow,
    stop_takes_the_backlog,
    stop_before_start,
    deadline,
    wake_when_awake,
    wake_when_asleep,
    fewer_buffers_than_connections,
    held_buffers,
    close_of_the_starved_behind_a_send,
    buffers_begin_at_pages,
    close_in_every_state,
    drop_with_everything_in_flight,
    read_whole,
    read_wakes_a_sleeper,
    read_several,
    read_past_the_end,
    read_of_nothing,
    read_that_fails,
    read_of_a_foreign_file,
    read_when_the_file_was_dropped,
    read_beyond_the_bound,
    read_given_up_by_close,
    read_given_up_behind_a_send,
    read_answered_before_the_close,
    read_for_the_past,
    read_beside_traffic,
    drop_with_reads_in_flight,
}
