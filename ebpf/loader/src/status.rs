//! How steering stands: for metrics, and as text for an operator.
//!
//! Invariant: what a step does not know is absent, never 0.

use std::fmt::Write as _;

use crate::{Policy, Rung};

/// How steering stands at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteeringStats {
    /// What chooses.
    pub rung: Rung,
    /// By what policy; `None` where the step has none.
    pub policy: Option<Policy>,
    /// Why not a better step.
    pub reasons: Vec<String>,
    /// By worker; empty where the step knows nothing of them.
    pub workers: Vec<WorkerStats>,
    /// Outcomes of the program since it was attached, by name; empty where there is none.
    pub outcomes: Vec<(&'static str, u64)>,
}

/// How a worker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerStats {
    /// What it has to do, as it says.
    pub score: u64,
    /// Choices of it.
    pub chosen: u64,
    /// Takes new connections.
    pub open: bool,
    /// Its loop turns.
    pub alive: bool,
}

impl SteeringStats {
    /// As text, a few lines.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = format!("steering: {}", self.rung);
        if let Some(policy) = self.policy {
            let _ = write!(text, ", policy {policy}");
        }
        text.push('\n');
        for reason in &self.reasons {
            let _ = writeln!(text, "  not better, since: {reason}");
        }
        if !self.workers.is_empty() {
            let _ = writeln!(text, "  {:<8}{:>10}{:>12}  state", "worker", "load", "chosen");
        }
        for (index, worker) in self.workers.iter().enumerate() {
            let state = match (worker.alive, worker.open) {
                (false, _) => "hangs",
                (true, false) => "drains",
                (true, true) => "open",
            };
            let _ = writeln!(text, "  {index:<8}{:>10}{:>12}  {state}", worker.score, worker.chosen);
        }
        if !self.outcomes.is_empty() {
            let outcomes: Vec<String> = self
                .outcomes
                .iter()
                .map(|(name, count)| format!("{name} {count}"))
                .collect();
            let _ = writeln!(text, "  choices: {}", outcomes.join(", "));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_step_reason_and_workers() {
        let worker = |score, open, alive| WorkerStats {
            score,
            chosen: 7,
            open,
            alive,
        };
        let mut stats = SteeringStats {
            rung: Rung::Ebpf,
            policy: Some(Policy::Least),
            reasons: Vec::new(),
            workers: vec![worker(12, true, true), worker(3, false, true), worker(0, true, false)],
            outcomes: vec![("home", 1), ("least", 20)],
        };
        let expected = "steering: eBPF, policy least\n  \
                        worker        load      chosen  state\n  \
                        0               12           7  open\n  \
                        1                3           7  drains\n  \
                        2                0           7  hangs\n  \
                        choices: home 1, least 20\n";
        assert_eq!(stats.render(), expected);
        stats = SteeringStats {
            rung: Rung::Hash,
            policy: None,
            reasons: vec!["eBPF: no".into()],
            workers: Vec::new(),
            outcomes: Vec::new(),
        };
        assert_eq!(
            stats.render(),
            "steering: the kernel's hash\n  not better, since: eBPF: no\n"
        );
    }
}
