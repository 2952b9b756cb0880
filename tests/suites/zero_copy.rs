//! Replies that leave without a copy: what the counters say of each setting.
//!
//! Invariant: every byte of every reply is compared elsewhere; the whole of the suites runs again with `always`.

use zerohop_tests::{
    gateway::{Gateway, Settings},
    metrics::Metrics,
    wait::wait_for,
};

use crate::ask::{CHAT, answer, chat, with};

#[test]
fn the_counters_tell_how_replies_left() {
    for (setting, zero_copies) in [("always", true), ("auto", false), ("off", false)] {
        let gateway = Gateway::start(&Settings::default().with("/server/zero_copy", setting));
        // On epoll every send is plain, whatever is asked for.
        let zero_copies = zero_copies && gateway.log().contains("sockets by io_uring");
        for stream in [false, true] {
            let body = with(chat("What is the capital of France?"), "stream", stream);
            assert!(answer(gateway.address(), CHAT, &body).contains("Paris"));
        }
        let count = |name: &str| Metrics::of(gateway.address()).sum(name, &[]);
        let (plain, zero_copy) = (
            count("zerohop_ring_plain_sends_total"),
            count("zerohop_ring_zero_copy_sends_total"),
        );
        assert_eq!(zero_copy > 0.0, zero_copies, "{setting}: {zero_copy} without a copy");
        assert!(plain + zero_copy >= 3.0, "{setting}: {plain} + {zero_copy}");
        if zero_copies {
            assert!(
                count("zerohop_ring_registered_sends_total") + count("zerohop_ring_refused_sends_total") > 0.0,
                "registered memory was tried"
            );
            wait_for("the kernel to let go of all but the latest", || {
                (count("zerohop_ring_held_sends") <= 1.0).then_some(())
            });
        }
    }
}
