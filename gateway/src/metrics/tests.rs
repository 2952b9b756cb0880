//! The document as a scraper reads it: by a strict reader of the format, then by the samples that were counted.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use super::*;

/// What a strict reader found: families with their kinds, and every sample as it stands on its line.
#[derive(Default)]
struct Document {
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<String, f64>,
}

fn is_name(text: &str) -> bool {
    let first = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || b"_:".contains(&byte));
    first
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_:".contains(&byte))
}

/// The name of a sample and its label pairs; fails on anything that the format does not allow.
fn read_series(series: &str) -> (&str, Vec<(String, String)>) {
    let Some((name, rest)) = series.split_once('{') else {
        assert!(is_name(series), "{series}");
        return (series, Vec::new());
    };
    assert!(is_name(name), "{series}");
    let mut rest = rest.strip_suffix('}').expect("closed");
    let mut pairs = Vec::new();
    while !rest.is_empty() {
        let (label, behind) = rest.split_once("=\"").expect("label and quote");
        assert!(is_name(label) && !label.contains(':'), "{series}");
        let mut value = String::new();
        let mut chars = behind.char_indices();
        let end = loop {
            match chars.next().expect("closing quote") {
                (at, '"') => break at,
                (_, '\\') => match chars.next().expect("escaped").1 {
                    'n' => value.push('\n'),
                    escaped @ ('\\' | '"') => value.push(escaped),
                    other => panic!("escape {other}: {series}"),
                },
                (_, char) => value.push(char),
            }
        };
        pairs.push((label.to_owned(), value));
        rest = &behind[end + 1..];
        assert!(rest.is_empty() || rest.starts_with(','), "{series}");
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    let labels: HashSet<_> = pairs.iter().map(|(label, _)| label).collect();
    assert_eq!(labels.len(), pairs.len(), "labels differ: {series}");
    (name, pairs)
}

fn read(text: &str) -> Document {
    let mut document = Document::default();
    let mut family = (String::new(), String::new());
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("name and help");
            assert!(is_name(name) && help.ends_with('.'), "{line}");
            family = (name.to_owned(), String::new());
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("name and kind");
            assert_eq!(name, family.0, "behind its help");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(
                document.kinds.insert(name.to_owned(), kind.to_owned()).is_none(),
                "announced twice: {line}"
            );
            family.1 = kind.to_owned();
        } else {
            let (series, value) = line.rsplit_once(' ').expect("series and value");
            let (name, pairs) = read_series(series);
            let stem = name.strip_prefix(family.0.as_str()).expect("in its family");
            let histogram = ["_bucket", "_sum", "_count"].contains(&stem);
            assert!(
                if family.1 == "histogram" {
                    histogram
                } else {
                    stem.is_empty()
                },
                "{line}"
            );
            assert_eq!(
                stem == "_bucket",
                pairs.iter().any(|(label, _)| label == "le"),
                "{line}"
            );
            let value: f64 = value.parse().expect("a number");
            assert!(value >= 0.0 && value.is_finite(), "{line}");
            assert!(
                document.samples.insert(series.to_owned(), value).is_none(),
                "twice: {line}"
            );
        }
    }
    document
}

/// Buckets rise with their bounds and in count, and the last one is the count.
fn check_histograms(text: &str) -> usize {
    let mut histograms = 0;
    let mut last: Option<(f64, f64)> = None;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').expect("series and value");
        let (name, pairs) = read_series(series);
        let value: f64 = value.parse().expect("a number");
        if let Some((_, bound)) = pairs.iter().find(|(label, _)| label == "le") {
            let bound = if bound == "+Inf" {
                f64::INFINITY
            } else {
                bound.parse().expect("a bound")
            };
            let (below, count) = last.unwrap_or((0.0, 0.0));
            assert!(bound > below && value >= count, "{line}");
            last = Some((bound, value));
        } else if name.ends_with("_count") {
            assert_eq!(last.take(), Some((f64::INFINITY, value)), "{line}");
            histograms += 1;
        }
    }
    histograms
}

fn workers() -> Vec<Arc<WorkerMetrics>> {
    let workers: Vec<_> = (0..2).map(|_| Arc::new(WorkerMetrics::new())).collect();
    for (index, worker) in workers.iter().enumerate() {
        let by = index as u64 + 1;
        worker.request(Route::Messages, Some(Dialect::Anthropic), 200);
        worker.request(Route::ChatCompletions, Some(Dialect::OpenAi), 503);
        worker.request(Route::Other, None, 404);
        worker.error(ErrorKind::QueueFull);
        worker.client_gone.add(by);
        worker.unknown_fields.add(10 * by);
        worker.connections_accepted.add(100 * by);
        worker.connections_refused.increment();
        worker.connections_open.set(by);
        worker.memory_held.set(1000 * by);
        worker.memory_refusals.add(by);
        worker.requests_in_flight.set(3);
        worker.parse.observe(1_500 * by);
        worker.publish_io(&IoStats {
            syscalls: 1,
            turns: 2,
            sleeps: 3,
            buffers_exhausted: 4,
            short_sends: 5,
            bytes_received: 6 * by,
            bytes_sent: 7 * by,
            plain_sends: 8,
            zero_copy_sends: 9,
            registered_sends: 10,
            copied_sends: 11,
            refused_sends: 12,
            held_sends: 13,
            held_bytes: 14,
            file_reads: 15,
            file_bytes_read: 16,
            file_read_errors: 17,
            file_reads_refused: 18,
        });
    }
    workers
}

/// What two workers count for one model.
fn cells() -> [ModelMetrics; 2] {
    let cells = [ModelMetrics::new(), ModelMetrics::new()];
    for model in &cells {
        model.queue.observe(2_000_000);
        model.first_token.observe(30_000_000);
        model.per_token.observe_many(4_000_000, 5);
        model.total.observe(1_000_000_000);
        model.inference.observe(900_000_000);
        model.prompt_tokens.add(20);
        model.cached_tokens.add(4);
        model.generated_tokens.add(6);
        model.tool_calls.add(3);
        model.structured_requests.increment();
        model.finished(FinishedReason::Stop);
        model.finished(FinishedReason::Abort);
    }
    cells
}

fn document(region: Option<&str>) -> String {
    let engine = EngineGauges {
        waiting: 3,
        running: 4,
        batch_peak: 8,
        steps: 1000,
        decode_tokens: 900,
        prefill_tokens: 5000,
        cancelled: 2,
        failed: 1,
        kv_committed: 70,
        prefix_tokens: 71,
        cached_tokens: 72,
        prefix_evictions: 73,
        preempted: 74,
        timed_out: 75,
        device_draws: 76,
        host_draws: 77,
        wide_draws: 78,
        device_bytes: 79,
        huge_bytes: 81,
        embedded: 80,
        kv_used: 64,
        kv_capacity: 256,
        rejected: 7,
        run_nanos: 1_500_000_000,
        own_nanos: 250_000_000,
        mask_nanos: 125_000_000,
        mask_wait_nanos: 500_000,
        masked_tokens: 70,
        safety_rejections: 5,
    };
    let scrape = Scrape {
        common: &Common {
            instance_id: "node \"1\"".into(),
            region: region.map(Into::into),
            start_time: 1_700_000_000,
        },
        workers: &workers(),
        models: &[
            ModelScrape {
                name: "idle",
                version: "v0",
                engine: EngineGauges::default(),
                cells: &[],
                rules: Vec::new(),
            },
            ModelScrape {
                name: "tiny",
                version: "v1",
                engine,
                cells: &cells(),
                rules: vec![("age".into(), 3)],
            },
        ],
        process: ProcessGauges {
            resident_bytes: Some(1 << 40),
            virtual_bytes: None,
            threads: Some(9),
        },
        memory_limit: 1 << 30,
        log_lines_dropped: 11,
        cache: Some(cache()),
        flights: 31,
        control: Some(&control()),
        steering: Some(steering()),
        guard: Some(guard()),
    };
    let mut out = Vec::new();
    render(&scrape, &mut out);
    String::from_utf8(out).expect("text")
}

fn control() -> ControlMetrics {
    let control = ControlMetrics::new(&["status", "cache.stat"]);
    control.command(Some("status"), true);
    control.command(Some("cache.stat"), false);
    control.command(None, false);
    for _ in 0..3 {
        control.came();
        control.stranger();
    }
    control.went();
    control.full();
    control
}

fn cache() -> zerohop_cache::Stats {
    zerohop_cache::Stats {
        entries: 21,
        bytes: 22,
        pinned: 23,
        waiting_bytes: 24,
        puts: 25,
        puts_refused: 26,
        puts_too_large: 27,
        evicted_bucket: 28,
        evicted_size: 29,
        purged: 30,
        evicted_part: 31,
        lost: 32,
        disk_bytes: 33,
        hot_bytes: 34,
        parts: 35,
        segment_bytes_written: 36,
        part_bytes_written: 37,
        index_bytes_written: 38,
        appended_bytes: 39,
        seals: 40,
        compactions: 41,
        commits: 42,
        disk_errors: 43,
        probation: 1,
        promoted: 31,
        returned: 32,
        shadow_looks: 100,
        shadow_hits_with: 25,
        shadow_hits_without: 20,
        shadow_lost: 33,
    }
}

fn steering() -> zerohop_steer::SteeringStats {
    let worker = |open, alive| zerohop_steer::WorkerStats {
        score: 31,
        chosen: 32,
        open,
        alive,
    };
    zerohop_steer::SteeringStats {
        rung: zerohop_steer::Rung::Ebpf,
        policy: Some(zerohop_steer::Policy::Local),
        reasons: Vec::new(),
        workers: vec![worker(true, true), worker(true, false)],
        outcomes: vec![("home", 33), ("least", 34)],
    }
}

fn guard() -> zerohop_steer::GuardStats {
    zerohop_steer::GuardStats {
        interface: "eth0".into(),
        native: true,
        verdicts: vec![("passed", 35), ("blocked", 36)],
        prefixes: 37,
    }
}

#[test]
fn a_strict_reader_accepts_the_document() {
    for region in [None, Some("eu")] {
        let text = document(region);
        let document = read(&text);
        for series in document.samples.keys() {
            let (_, pairs) = read_series(series);
            let common = |label: &str| {
                pairs
                    .iter()
                    .find(|(other, _)| other == label)
                    .map(|(_, value)| value.as_str())
            };
            assert_eq!(
                (common("instance_id"), common("region")),
                (Some("node \"1\""), region),
                "{series}"
            );
        }
        // Parsing, and nine of each model.
        assert_eq!(check_histograms(&text), 1 + 2 * 9);
    }
}

#[test]
fn counted_values_are_shown() {
    let text = document(None);
    let document = read(&text);
    let table = [
        (
            r#"zerohop_requests_total{route="messages",dialect="anthropic",status="2xx""#,
            2.0,
        ),
        (
            r#"zerohop_requests_total{route="chat_completions",dialect="openai",status="5xx""#,
            2.0,
        ),
        (
            r#"zerohop_requests_total{route="other",dialect="none",status="4xx""#,
            2.0,
        ),
        (r#"zerohop_rejected_total{reason="queue_full""#, 2.0),
        (r#"zerohop_rejected_total{reason="bad_http""#, 0.0),
        ("zerohop_client_gone_total{", 3.0),
        ("zerohop_unknown_fields_total{", 30.0),
        ("zerohop_requests_in_flight{", 6.0),
        (
            r#"zerohop_parse_seconds_bucket{instance_id="node \"1\"",le="0.000002""#,
            1.0,
        ),
        (
            r#"zerohop_parse_seconds_bucket{instance_id="node \"1\"",le="0.000005""#,
            2.0,
        ),
        ("zerohop_parse_seconds_sum{", 0.000_004_5),
        (r#"zerohop_connections_accepted_total{worker="0""#, 100.0),
        (r#"zerohop_connections_accepted_total{worker="1""#, 200.0),
        (r#"zerohop_connections_refused_total{worker="1""#, 1.0),
        (r#"zerohop_connections_open{worker="1""#, 2.0),
        (r#"zerohop_ring_syscalls_total{worker="0""#, 1.0),
        (r#"zerohop_ring_turns_total{worker="0""#, 2.0),
        (r#"zerohop_ring_sleeps_total{worker="0""#, 3.0),
        (r#"zerohop_ring_buffers_exhausted_total{worker="0""#, 4.0),
        (r#"zerohop_ring_short_sends_total{worker="0""#, 5.0),
        (r#"zerohop_ring_plain_sends_total{worker="0""#, 8.0),
        (r#"zerohop_ring_zero_copy_sends_total{worker="0""#, 9.0),
        (r#"zerohop_ring_registered_sends_total{worker="0""#, 10.0),
        (r#"zerohop_ring_copied_sends_total{worker="0""#, 11.0),
        (r#"zerohop_ring_refused_sends_total{worker="0""#, 12.0),
        (r#"zerohop_ring_held_sends{worker="0""#, 13.0),
        (r#"zerohop_ring_file_reads_total{worker="0""#, 15.0),
        (r#"zerohop_ring_file_read_bytes_total{worker="0""#, 16.0),
        (r#"zerohop_ring_file_read_errors_total{worker="0""#, 17.0),
        (r#"zerohop_ring_file_reads_refused_total{worker="0""#, 18.0),
        (r#"zerohop_memory_held_bytes{worker="1""#, 2000.0),
        (r#"zerohop_memory_refusals_total{worker="1""#, 2.0),
        ("zerohop_memory_limit_bytes{", 1_073_741_824.0),
        (r#"zerohop_received_bytes_total{worker="1""#, 12.0),
        (r#"zerohop_sent_bytes_total{worker="1""#, 14.0),
        (r#"zerohop_engine_waiting{model="tiny",model_version="v1""#, 3.0),
        (r#"zerohop_engine_running{model="tiny",model_version="v1""#, 4.0),
        (r#"zerohop_engine_running{model="idle",model_version="v0""#, 0.0),
        (r#"zerohop_engine_batch_peak{model="tiny""#, 8.0),
        (r#"zerohop_engine_steps_total{model="tiny""#, 1000.0),
        (r#"zerohop_engine_decode_tokens_total{model="tiny""#, 900.0),
        (r#"zerohop_engine_prefill_tokens_total{model="tiny""#, 5000.0),
        (r#"zerohop_engine_cancelled_total{model="tiny""#, 2.0),
        (r#"zerohop_engine_failed_total{model="tiny""#, 1.0),
        (r#"zerohop_engine_kv_committed{model="tiny""#, 70.0),
        (r#"zerohop_engine_prefix_tokens{model="tiny""#, 71.0),
        (r#"zerohop_engine_cached_tokens_total{model="tiny""#, 72.0),
        (r#"zerohop_engine_prefix_evictions_total{model="tiny""#, 73.0),
        (r#"zerohop_engine_preempted_total{model="tiny""#, 74.0),
        (r#"zerohop_engine_timed_out_total{model="tiny""#, 75.0),
        (r#"zerohop_tool_calls_total{model="tiny",model_version="v1""#, 6.0),
        (r#"zerohop_structured_requests_total{model="tiny""#, 2.0),
        (r#"zerohop_masked_tokens_total{model="tiny",model_version="v1""#, 70.0),
        (r#"safety_rejections_total{model="tiny",model_version="v1""#, 5.0),
        (
            r#"zerohop_mask_seconds_total{model="tiny",model_version="v1",part="compute""#,
            0.125,
        ),
        (
            r#"zerohop_mask_seconds_total{model="tiny",model_version="v1",part="wait""#,
            0.0005,
        ),
        (r#"zerohop_safety_rule_fired_total{rule="age",model="tiny""#, 3.0),
        (r#"zerohop_engine_device_draws_total{model="tiny""#, 76.0),
        (r#"zerohop_engine_host_draws_total{model="tiny""#, 77.0),
        (r#"zerohop_engine_wide_draws_total{model="tiny""#, 78.0),
        (r#"zerohop_engine_device_bytes_total{model="tiny""#, 79.0),
        (r#"zerohop_engine_embedded_total{model="tiny""#, 80.0),
        (r#"zerohop_engine_huge_page_bytes{model="tiny""#, 81.0),
        (r#"zerohop_engine_kv_used{model="tiny""#, 64.0),
        (r#"zerohop_engine_kv_capacity{model="tiny""#, 256.0),
        (r#"zerohop_engine_rejected_total{model="tiny""#, 7.0),
        (
            r#"zerohop_engine_busy_seconds_total{model="tiny",model_version="v1",part="scheduler""#,
            0.25,
        ),
        (
            r#"zerohop_engine_busy_seconds_total{model="tiny",model_version="v1",part="model""#,
            1.5,
        ),
        (
            r#"inference_latency_ms_bucket{model="tiny",model_version="v1",instance_id="node \"1\"",le="800""#,
            0.0,
        ),
        (
            r#"inference_latency_ms_bucket{model="tiny",model_version="v1",instance_id="node \"1\"",le="1000""#,
            2.0,
        ),
        (r#"inference_latency_ms_sum{model="tiny",model_version="v1""#, 1800.0),
        (r#"inference_latency_ms_count{model="idle",model_version="v0""#, 0.0),
        (r#"zerohop_queue_seconds_sum{model="tiny""#, 0.004),
        (r#"zerohop_first_token_seconds_sum{model="tiny""#, 0.06),
        (r#"zerohop_token_seconds_count{model="tiny""#, 10.0),
        (r#"zerohop_request_seconds_sum{model="tiny""#, 2.0),
        (r#"vllm:num_requests_running{model_name="tiny",engine="0""#, 4.0),
        (r#"vllm:num_requests_waiting{model_name="tiny",engine="0""#, 3.0),
        (r#"vllm:kv_cache_usage_perc{model_name="tiny",engine="0""#, 0.25),
        (r#"vllm:kv_cache_usage_perc{model_name="idle",engine="0""#, 0.0),
        (r#"vllm:prompt_tokens_total{model_name="tiny",engine="0""#, 40.0),
        (r#"vllm:prompt_tokens_cached_total{model_name="tiny",engine="0""#, 8.0),
        (r#"vllm:generation_tokens_total{model_name="tiny",engine="0""#, 12.0),
        (
            r#"vllm:request_success_total{model_name="tiny",engine="0",finished_reason="stop""#,
            2.0,
        ),
        (
            r#"vllm:request_success_total{model_name="tiny",engine="0",finished_reason="length""#,
            0.0,
        ),
        (
            r#"vllm:request_success_total{model_name="tiny",engine="0",finished_reason="abort""#,
            2.0,
        ),
        (
            r#"vllm:time_to_first_token_seconds_sum{model_name="tiny",engine="0""#,
            0.06,
        ),
        (
            r#"vllm:inter_token_latency_seconds_count{model_name="tiny",engine="0""#,
            10.0,
        ),
        (
            r#"vllm:e2e_request_latency_seconds_sum{model_name="tiny",engine="0""#,
            2.0,
        ),
        (
            r#"vllm:request_queue_time_seconds_count{model_name="tiny",engine="0""#,
            2.0,
        ),
        (r#"zerohop_build_info{version="0.1.0""#, 1.0),
        ("zerohop_workers{", 2.0),
        ("zerohop_log_lines_dropped_total{", 11.0),
        (r#"zerohop_steering_mode{mode="ebpf""#, 1.0),
        (r#"zerohop_steering_mode{mode="hash""#, 0.0),
        (r#"zerohop_steering_load{worker="1""#, 31.0),
        (r#"zerohop_steering_chosen_total{worker="0""#, 32.0),
        (r#"zerohop_steering_open{worker="0""#, 1.0),
        (r#"zerohop_steering_open{worker="1""#, 0.0),
        (r#"zerohop_steering_outcomes_total{outcome="least""#, 34.0),
        (r#"zerohop_xdp_attached{interface="eth0",mode="native""#, 1.0),
        (r#"zerohop_xdp_blocked_prefixes{"#, 37.0),
        (r#"zerohop_xdp_packets_total{verdict="blocked""#, 36.0),
        (r#"zerohop_cache_requests_total{result="hit""#, 0.0),
        (r#"zerohop_cache_requests_total{result="join""#, 0.0),
        (r#"zerohop_flight_requests_total{part="promoted""#, 0.0),
        ("zerohop_flight_orphans_total{", 0.0),
        ("zerohop_flights_open{", 31.0),
        ("zerohop_cache_entries{", 21.0),
        ("zerohop_cache_bytes{", 22.0),
        ("zerohop_cache_pinned{", 23.0),
        ("zerohop_cache_waiting_bytes{", 24.0),
        (r#"zerohop_cache_puts_total{result="kept""#, 25.0),
        (r#"zerohop_cache_puts_total{result="writer_behind""#, 26.0),
        (r#"zerohop_cache_puts_total{result="too_large""#, 27.0),
        (r#"zerohop_cache_removed_total{reason="bucket_full""#, 28.0),
        (r#"zerohop_cache_removed_total{reason="size""#, 29.0),
        (r#"zerohop_cache_removed_total{reason="purged""#, 30.0),
        (r#"zerohop_cache_removed_total{reason="part""#, 31.0),
        (r#"zerohop_cache_removed_total{reason="lost""#, 32.0),
        (r#"zerohop_cache_reads_total{result="ok""#, 0.0),
        (r#"zerohop_cache_reads_total{result="failed""#, 0.0),
        ("zerohop_cache_disk_bytes{", 33.0),
        ("zerohop_cache_hot_bytes{", 34.0),
        ("zerohop_cache_parts{", 35.0),
        (r#"zerohop_cache_written_bytes_total{file="segment""#, 36.0),
        (r#"zerohop_cache_written_bytes_total{file="part""#, 37.0),
        (r#"zerohop_cache_written_bytes_total{file="index""#, 38.0),
        ("zerohop_cache_appended_bytes_total{", 39.0),
        ("zerohop_cache_seals_total{", 40.0),
        ("zerohop_cache_compactions_total{", 41.0),
        ("zerohop_cache_commits_total{", 42.0),
        ("zerohop_cache_disk_errors_total{", 43.0),
        ("zerohop_cache_probation{", 1.0),
        (r#"zerohop_cache_proved_total{how="promoted""#, 31.0),
        (r#"zerohop_cache_proved_total{how="returned""#, 32.0),
        (r#"zerohop_cache_shadow_hit_ratio{probation="on""#, 0.25),
        (r#"zerohop_cache_shadow_hit_ratio{probation="off""#, 0.2),
        ("zerohop_cache_shadow_lost_total{", 33.0),
        (r#"zerohop_control_requests_total{command="status",result="ok""#, 1.0),
        (r#"zerohop_control_requests_total{command="status",result="error""#, 0.0),
        (
            r#"zerohop_control_requests_total{command="cache.stat",result="error""#,
            1.0,
        ),
        (
            r#"zerohop_control_requests_total{command="unknown",result="error""#,
            1.0,
        ),
        ("zerohop_control_clients{", 2.0),
        (r#"zerohop_control_refused_total{reason="user""#, 3.0),
        (r#"zerohop_control_refused_total{reason="full""#, 1.0),
        ("process_resident_memory_bytes{", 1_099_511_627_776.0),
        ("process_threads{", 9.0),
        ("process_start_time_seconds{", 1_700_000_000.0),
    ];
    let mut shown = BTreeSet::new();
    for (start, expected) in table {
        let found: Vec<_> = document
            .samples
            .iter()
            .filter(|(series, _)| series.starts_with(start))
            .collect();
        assert_eq!(found.len(), 1, "{start}: {found:?}");
        assert_eq!(*found[0].1, expected, "{start}");
        let name = start.split('{').next().unwrap_or_default();
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .unwrap_or(name);
        shown.insert(family.to_owned());
    }
    assert_eq!(
        shown,
        document.kinds.keys().cloned().collect(),
        "every family has a row in this table"
    );
    assert!(
        !text.contains("process_virtual_memory_bytes"),
        "what is not known is not shown"
    );
}

#[test]
fn cells_do_not_share_cache_lines() {
    assert_eq!(align_of::<WorkerMetrics>(), 128);
    assert_eq!(size_of::<WorkerMetrics>() % 128, 0);
    assert_eq!(align_of::<ModelMetrics>(), 128);
}

#[test]
fn bounds_rise_and_fit() {
    for bounds in [PARSE, QUEUE, FIRST_TOKEN, PER_TOKEN, TOTAL] {
        assert!(
            bounds.len() <= cell::MAX_BOUNDS && bounds.is_sorted_by(|a, b| a < b),
            "{bounds:?}"
        );
    }
}
