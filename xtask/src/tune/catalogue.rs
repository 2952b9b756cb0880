//! All settings that are known: where each lies, in which direction it is better, why it matters here, what it does not
//! do, and where that can be read up.
//!
//! No wanted value stands here; those are in the profiles. Invariant: a setting without a reason and a source does not
//! exist, and what a setting does not do is said beside what it does.

use super::rule::Rule;

/// Where a setting lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    /// Below `/proc/sys`, where its name says.
    Sysctl,
    /// A file with all words, of which the one in brackets holds; only shown.
    Bracketed(&'static str),
    /// A limit of processes, set at login.
    Limit {
        /// Its name in `limits.conf`.
        item: &'static str,
        /// Its name in `/proc/self/limits`.
        label: &'static str,
        /// So many of the unit that processes count in are one of the unit that the file counts in.
        scale: u64,
    },
    /// The processors that share the packets of a receive queue, for each queue of a card that has too few.
    PacketCpus,
}

/// A setting and what is known of it.
#[derive(Debug)]
pub(super) struct Setting {
    /// The name in profiles.
    pub(super) name: &'static str,
    pub(super) home: Home,
    pub(super) rule: Rule,
    /// What it does for the gateway.
    pub(super) why: &'static str,
    /// What it does not do.
    pub(super) but: &'static str,
    /// A page of the kernel's documentation, or of the manual.
    pub(super) source: &'static str,
}

/// The setting of that name.
pub(super) fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

const IP: &str = "docs.kernel.org/networking/ip-sysctl.html";
const NET: &str = "docs.kernel.org/admin-guide/sysctl/net.html";
const VM: &str = "docs.kernel.org/admin-guide/sysctl/vm.html";
const FS: &str = "docs.kernel.org/admin-guide/sysctl/fs.html";
const KERNEL: &str = "docs.kernel.org/admin-guide/sysctl/kernel.html";
const LIMITS: &str = "limits.conf(5), getrlimit(2)";

/// A setting without a word that may give way: only shown, and left as it is.
const fn shown(words: &'static [&'static str]) -> Rule {
    Rule::Choice { words, replaces: &[] }
}

/// A switch whose first value gives way.
const fn switch(words: &'static [&'static str], replaces: &'static [&'static str]) -> Rule {
    Rule::Choice { words, replaces }
}

const fn sysctl(name: &'static str, rule: Rule, why: &'static str, but: &'static str, source: &'static str) -> Setting {
    Setting {
        name,
        home: Home::Sysctl,
        rule,
        why,
        but,
        source,
    }
}

/// The table, by what the settings are for.
pub(super) const SETTINGS: [Setting; 26] = [
    // Many connections.
    sysctl(
        "net.core.somaxconn",
        Rule::More,
        "The longest queue of finished handshakes that a listener may have. The gateway asks for 65535 and gets the lesser \
         of the two; a full queue lets clients wait for a retransmission.",
        "Nothing is accepted faster, and a listener keeps the length that it was opened with: restart the gateway.",
        IP,
    ),
    sysctl(
        "net.ipv4.tcp_max_syn_backlog",
        Rule::More,
        "Handshakes that a listener may have in progress before it falls back to SYN cookies.",
        "No defence: a flood fills any queue. That is what SYN cookies are for.",
        IP,
    ),
    sysctl(
        "net.ipv4.tcp_syncookies",
        switch(&["0", "1", "2"], &["0"]),
        "When the queue of handshakes is full, they go on without a place in it.",
        "2 sends cookies always, which is for tests of networks; it is kept where it is set.",
        IP,
    ),
    sysctl(
        "net.ipv4.tcp_migrate_req",
        switch(&["0", "1"], &["0"]),
        "When one of several listeners on a port closes, handshakes and connections that wait in it go to another one \
         instead of being reset.",
        "It holds for listeners that are opened afterwards, and helps only where another one is still open.",
        IP,
    ),
    sysctl(
        "net.ipv4.tcp_fin_timeout",
        Rule::Less { floor: 0 },
        "Seconds for which the kernel keeps a connection that we have closed and the client has not: memory of clients \
         that vanished.",
        "It does not shorten TIME_WAIT, which is a fixed minute, and touches no connection that a program holds.",
        IP,
    ),
    sysctl(
        "net.netfilter.nf_conntrack_max",
        Rule::More,
        "Where a firewall tracks connections: how many. When its table is full, packets of new ones are dropped.",
        "Absent where nothing tracks, and then not needed. A boot sets it only if the module is loaded by then. The number \
         of hash buckets is another setting.",
        "docs.kernel.org/networking/nf_conntrack-sysctl.html",
    ),
    sysctl(
        "net.ipv4.ip_local_port_range",
        Rule::Wider,
        "Ports for connections that this machine opens: a load test on the same machine runs out of them first.",
        "Nothing for connections that come in.",
        IP,
    ),
    sysctl(
        "fs.file-max",
        Rule::More,
        "Open files of the whole machine; a connection is one.",
        "It lets no single process open more: for that there are limits.nofile and fs.nr_open. Root may go beyond it.",
        FS,
    ),
    sysctl(
        "fs.nr_open",
        Rule::More,
        "The highest that anybody's limits.nofile can be.",
        "It raises no limit by itself.",
        FS,
    ),
    Setting {
        name: "limits.nofile",
        home: Home::Limit {
            item: "nofile",
            label: "Max open files",
            scale: 1,
        },
        rule: Rule::More,
        why: "Open files of one process; a connection is one. Without a free one the gateway accepts nobody.",
        but: "Set at login by pam_limits: not for what runs already, not for services of systemd (LimitNOFILE= in their \
              unit) or containers, and not for root.",
        source: LIMITS,
    },
    // Congestion control and long paths.
    sysctl(
        "net.ipv4.tcp_allowed_congestion_control",
        Rule::Holds,
        "The gateway asks for cubic on its own sockets, since bbr took 2.7 to 5 times as long for replies of 1 MiB on one \
         machine. An ordinary user gets it only if it is in this list.",
        "It changes no other program's sockets. In a network namespace of its own it cannot be changed.",
        IP,
    ),
    sysctl(
        "net.ipv4.tcp_congestion_control",
        switch(&[], &["reno"]),
        "What sockets use that ask for nothing.",
        "The gateway's own sockets ask for cubic. bbr, where somebody has chosen it, is kept.",
        IP,
    ),
    sysctl(
        "net.ipv4.tcp_slow_start_after_idle",
        switch(&["0", "1"], &["1"]),
        "0: a kept-alive connection sends its next large reply at the rate that it had reached, also after a pause.",
        "Nothing for streams of tokens, which are smaller than the first window. On a path whose capacity changed \
         meanwhile, the first burst may lose packets.",
        IP,
    ),
    sysctl(
        "net.ipv4.tcp_rmem",
        Rule::MoreEach(3),
        "Bytes of a receive buffer: least, first, most. Clients far away that send long prompts need a large most.",
        "Buffers grow only as far as a connection needs, but many that do can take much memory together.",
        IP,
    ),
    sysctl(
        "net.ipv4.tcp_wmem",
        Rule::MoreEach(3),
        "Bytes of a send buffer: least, first, most. Large replies to clients far away need a large most.",
        "As above; within a data centre the kernel's own values do.",
        IP,
    ),
    sysctl(
        "net.ipv4.tcp_mtu_probing",
        switch(&["0", "1", "2"], &["0"]),
        "1: where a path swallows large packets in silence, smaller ones are tried instead of a stalled connection.",
        "Nothing on paths that report what they cannot carry.",
        IP,
    ),
    // Packets, XDP, queues.
    sysctl(
        "net.core.netdev_max_backlog",
        Rule::More,
        "Packets that may wait for a processor, on lo and where packets are spread over processors; more are dropped.",
        "Nothing for a card whose queues are served by the processors that they interrupt.",
        NET,
    ),
    sysctl(
        "net.core.bpf_jit_enable",
        switch(&["0", "1", "2"], &["0"]),
        "Programs that look at packets (XDP, steering) run as machine code instead of being interpreted.",
        "Nothing where no program is attached. 2 also logs the code, for whoever debugs it; it is kept.",
        NET,
    ),
    Setting {
        name: "nic.rps",
        home: Home::PacketCpus,
        rule: switch(&["all"], &[]),
        why: "On a card with fewer receive queues than processors: packets of different connections are worked on by all of \
              them, not only by those that the card interrupts.",
        but: "More queues of the card are better (`ethtool -L`), and a queue for each processor needs no RPS. A choice of \
              processors that is set already is kept. A boot forgets it: apply again then.",
        source: "docs.kernel.org/networking/scaling.html",
    },
    // io_uring and locked memory.
    sysctl(
        "kernel.io_uring_disabled",
        shown(&["0", "1", "2"]),
        "0: workers use io_uring. Otherwise they use epoll, and say so at start.",
        "A value above 0 is a decision about safety, so it is shown and not changed.",
        KERNEL,
    ),
    Setting {
        name: "limits.memlock",
        home: Home::Limit {
            item: "memlock",
            label: "Max locked memory",
            scale: 1024,
        },
        rule: Rule::More,
        why: "Memory that io_uring may hold for large replies without a copy. Beyond it the same path goes on with plain \
              memory.",
        but: "It locks nothing and reserves nothing; weights and caches can still be swapped. It is set as limits.nofile \
              is, with the same exceptions (LimitMEMLOCK=).",
        source: "io_uring_register(2), limits.conf(5)",
    },
    // Memory.
    sysctl(
        "vm.swappiness",
        Rule::Less { floor: 1 },
        "Weights and keys are read at every step; to read one page from a disk costs more than a step. 1: swap as the last \
         resort but one.",
        "Not 0: then nothing is swapped until free and file pages are nearly gone, and a process is killed where one idle \
         page could have gone. It does not forbid swapping, and does nothing without swap.",
        VM,
    ),
    sysctl(
        "vm.overcommit_memory",
        shown(&["0", "1", "2"]),
        "0 and 1 let the gateway reserve address space for the keys and values of a whole batch (MAP_NORESERVE) and fill \
         it as needed. With 2 every reservation counts as if it were full, and a model may not start.",
        "No value gives memory: what is really used must fit, or a process is killed. 1 is no faster than 0. Whatever is \
         set is kept.",
        VM,
    ),
    sysctl(
        "vm.nr_hugepages",
        shown(&[]),
        "Shown because reserved huge pages are missing for all else, and nothing here uses them: the gateway moves \
         weights onto transparent huge pages by itself.",
        "Pages that somebody reserved, for another program, are kept.",
        VM,
    ),
    Setting {
        name: "thp.enabled",
        home: Home::Bracketed("/sys/kernel/mm/transparent_hugepage/enabled"),
        rule: shown(&["always", "madvise", "never"]),
        why: "madvise: memory comes on huge pages where its program asks. The gateway moves its weights there with \
              MADV_COLLAPSE, which this switch does not govern.",
        but: "always also gives them to whoever did not ask, at a cost in memory. Whatever is set is kept.",
        source: "docs.kernel.org/admin-guide/mm/transhuge.html, madvise(2)",
    },
    sysctl(
        "kernel.shmmax",
        Rule::More,
        "The largest piece of System V shared memory. The kernel's own value is as good as no bound; some old advice sets \
         less.",
        "Nothing for the gateway, which shares memory by memfd. Here for programs beside it that use shmget.",
        KERNEL,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_says_why_and_where_it_is_written() {
        for (at, setting) in SETTINGS.iter().enumerate() {
            assert!(!setting.why.is_empty() && !setting.but.is_empty(), "{}", setting.name);
            assert!(
                setting.source.starts_with("docs.kernel.org/") || setting.source.contains('('),
                "{}",
                setting.name
            );
            assert!(
                SETTINGS[..at].iter().all(|other| other.name != setting.name),
                "{} twice",
                setting.name
            );
        }
    }
}
