//! The section `steering`: defaults, the guard, and what a reload may change.

use super::{
    super::{SteeringMode, SteeringPolicy, XdpMode},
    FULL, good,
};

#[test]
fn without_a_word_the_best_is_tried_and_nothing_is_kept_out() {
    let steering = good("").steering;
    assert_eq!(
        (steering.mode, steering.policy, steering.xdp),
        (SteeringMode::Auto, SteeringPolicy::Local, None)
    );
    for text in [
        "xdp: {}",
        "xdp: {interface: null, syn_rate: null, blocklist: null, mode: generic}",
    ] {
        assert_eq!(good(&format!("steering: {{{text}}}\n")).steering.xdp, None, "{text}");
    }
}

#[test]
fn the_guard_is_what_the_file_says() {
    let full = good(FULL).steering;
    assert_eq!((full.mode, full.policy), (SteeringMode::Ebpf, SteeringPolicy::Least));
    let xdp = full.xdp.expect("a guard");
    assert_eq!(
        (xdp.interface.as_str(), xdp.mode, xdp.syn_rate),
        ("eth0", XdpMode::Generic, Some(2_000))
    );
    assert_eq!(xdp.blocked().len(), 2);
    for (rate, expected) in [("5", 5), ("5/s", 5), ("\"1000000 /s\"", 1_000_000)] {
        let xdp = good(&format!("steering: {{xdp: {{interface: eth0, syn_rate: {rate}}}}}\n"))
            .steering
            .xdp;
        let xdp = xdp.expect("a guard");
        assert_eq!((xdp.syn_rate, xdp.mode), (Some(expected), XdpMode::Auto), "{rate}");
        assert!(xdp.blocked().is_empty());
    }
}

#[test]
fn policy_rate_and_prefixes_need_no_restart() {
    let of = |text: &str| good(&format!("steering: {{{text}}}\n"));
    let guard = of("xdp: {interface: eth0}");
    for (text, expected) in [
        (
            "policy: least, xdp: {interface: eth0, syn_rate: 5, blocklist: blocked.txt}",
            &[][..],
        ),
        ("mode: hash, xdp: {interface: eth0}", &["steering.mode"]),
        ("xdp: {interface: eth1}", &["the place of steering.xdp"]),
        ("xdp: {interface: eth0, mode: native}", &["the place of steering.xdp"]),
        ("policy: cpu", &["the place of steering.xdp"]),
    ] {
        assert_eq!(guard.needs_restart(&of(text)), expected, "{text}");
    }
}
