//! The bound of what all connections hold: who is refused when it is used up, who is not, and that it comes back.
//!
//! Invariant: what is asserted is a count or a state, reached by its own deadline, never a speed.

use zerohop_tests::{
    gateway::{Gateway, Settings},
    http::{self, Client},
    metrics::Metrics,
    wait::wait_for,
};

use crate::ask::{CHAT, MESSAGES, answer, chat, message};

const HELD: &str = "zerohop_memory_held_bytes";
const REFUSALS: &str = "zerohop_memory_refusals_total";
const MIB: usize = 1 << 20;

fn held(gateway: &Gateway) -> f64 {
    Metrics::of(gateway.address()).sum(HELD, &[])
}

/// What is held with only the asking connection open.
fn settled(gateway: &Gateway, at_most: f64) {
    wait_for("memory to be given back", || (held(gateway) <= at_most).then_some(()));
}

#[test]
fn bodies_share_a_bound() {
    const CLIENTS: usize = 8;
    let settings = Settings::default()
        .with("/server/max_body_bytes", "8MiB")
        .with("/server/memory", "24MiB");
    let gateway = Gateway::start(&settings);
    assert_eq!(
        Metrics::of(gateway.address()).sum("zerohop_memory_limit_bytes", &[]),
        (24 * MIB) as f64
    );
    let idle = held(&gateway);
    for path in [MESSAGES, CHAT] {
        let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", 8 * MIB);
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(gateway.address())).collect();
        let before = Metrics::of(gateway.address()).sum(REFUSALS, &[]);
        let body = vec![b' '; 7 * MIB];
        for client in &mut clients {
            client.send(&head);
            // Whoever is refused is told before it has sent everything, and may find the connection closed.
            let _ = client.try_send(&body);
        }
        let refusals = wait_for("some to be refused", || {
            let refusals = Metrics::of(gateway.address()).sum(REFUSALS, &[]) - before;
            // 24 MiB hold three bodies of 7 MiB, fewer if their buffers have doubled beyond.
            (refusals >= (CLIENTS - 3) as f64).then_some(refusals)
        });
        assert!(refusals < CLIENTS as f64, "some are still being read");
        assert!(held(&gateway) <= (25 * MIB) as f64, "{} are held", held(&gateway));
        // Requests that need no memory of their own are answered all the same.
        assert!(answer(gateway.address(), MESSAGES, &message("What is the capital of France?")).contains("Paris"));
        // A refused client hears why, and when to come back, in the words of its dialect.
        let mut told = 0;
        for client in clients.iter_mut().filter(|client| client.has_bytes()) {
            let response = client.response();
            assert_eq!(response.status, 503, "{}", response.text());
            assert!(response.header("retry-after").is_some(), "{}", response.head);
            let kind = &response.json()["error"]["type"];
            assert!(
                kind == "overloaded_error" || kind == "service_unavailable_error",
                "{kind}"
            );
            told += 1;
        }
        assert!(told > 0, "nobody was told");
        drop(clients);
        settled(&gateway, idle + 65_536.0);
        assert!(answer(gateway.address(), CHAT, &chat("What is the capital of France?")).contains("Paris"));
    }
}

/// Resident memory of the process, in KiB.
fn resident(gateway: &Gateway) -> f64 {
    let path = format!("/proc/{}/status", gateway.id());
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let field = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = field.and_then(|field| field.split_whitespace().next()?.parse().ok());
    number.unwrap_or_else(|| panic!("{path} has no VmRSS"))
}

/// Once the C library kept what slow readers had held: 377 MiB of 412, for as long as the process lived.
#[test]
fn memory_goes_back_to_the_system() {
    const CLIENTS: usize = 300;
    // Registered memory is there for good, so it would hide what is looked for.
    let gateway = Gateway::start(&Settings::default().with("/server/zero_copy", "off"));
    let idle = resident(&gateway);
    let flood = || {
        let requests = http::request_bytes("GET", "/metrics").repeat(200);
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(gateway.address())).collect();
        for client in &mut clients {
            client.send(&requests);
        }
        wait_for("replies to pile up", || {
            (held(&gateway) > (CLIENTS * 64 * 1024) as f64).then_some(())
        });
        let most = resident(&gateway);
        drop(clients);
        settled(&gateway, 262_144.0);
        most
    };
    for round in ["first", "second"] {
        let most = flood();
        wait_for(&format!("half of the {round} flood to go back"), || {
            (resident(&gateway) < f64::midpoint(idle, most)).then_some(())
        });
    }
}

#[test]
fn readers_who_let_replies_pile_up_are_cut_off() {
    const CLIENTS: usize = 64;
    let settings = Settings::default()
        .with("/server/max_body_bytes", "64KiB")
        .with("/server/memory", "4MiB");
    let gateway = Gateway::start(&settings);
    let idle = held(&gateway);
    let requests = http::request_bytes("GET", "/metrics").repeat(600);
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = Client::connect(gateway.address());
        // It may be cut off while it still asks.
        let _ = client.try_send(&requests);
        clients.push(client);
    }
    wait_for("slow readers to be cut off", || {
        (Metrics::of(gateway.address()).sum(REFUSALS, &[]) >= 1.0).then_some(())
    });
    // Beside the bound there is at most a pile of each that is not yet worth cutting off.
    assert!(held(&gateway) <= (4 * MIB + CLIENTS * 128 * 1024) as f64);
    assert!(answer(gateway.address(), CHAT, &chat("What is the capital of France?")).contains("Paris"));
    drop(clients);
    settled(&gateway, idle + 65_536.0);
}

/// Once a small request in two segments was refused when memory was short, though it needs next to nothing.
#[test]
fn small_requests_are_read_however_short_memory_is() {
    const CLIENTS: usize = 200;
    const LIMIT: f64 = (1056 * 1024) as f64;
    let settings = Settings::default()
        .with("/server/max_body_bytes", "8KiB")
        .with("/server/memory", "1056KiB");
    let gateway = Gateway::start(&settings);
    let idle = held(&gateway);
    let begun = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: 7000\r\n\r\n{}",
        " ".repeat(6000)
    );
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(gateway.address())).collect();
    clients.iter_mut().for_each(|client| client.send(&begun));
    wait_for("memory to be short", || (held(&gateway) > LIMIT).then_some(()));
    let request = http::post_bytes(CHAT, chat("What is the capital of France?").to_string().as_bytes());
    let end = request
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .map_or(0, |at| at + 4);
    for at in [end / 2, end, end + 10, request.len()] {
        let mut client = Client::connect(gateway.address());
        client.send(&request[..at]);
        // The first segment has been read when a later request is answered.
        assert_eq!(http::get(gateway.address(), "/health").status, 200);
        client.send(&request[at..]);
        assert_eq!(client.response().status, 200, "cut at {at}");
    }
    assert!(held(&gateway) > LIMIT, "memory was short all the time");
    assert_eq!(Metrics::of(gateway.address()).sum(REFUSALS, &[]), 0.0);
    drop(clients);
    settled(&gateway, idle + 65_536.0);
}
