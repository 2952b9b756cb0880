mod machine;
mod network;

use std::path::Path;

use super::{
    Choice, Name, Tree, Tune, apply, catalogue,
    files::Disk,
    journal,
    plan::{self, LIMITS_FILE, SYSCTL_FILE, State},
    profile::{self, Profile},
    revert, table,
};
use crate::failure::Outcome;
use machine::{Boot, Cut, Machine};

const SOMAXCONN: &str = "/proc/sys/net/core/somaxconn";
const SWAPPINESS: &str = "/proc/sys/vm/swappiness";
const FILE_MAX: &str = "/proc/sys/fs/file-max";
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
const RMEM: &str = "/proc/sys/net/ipv4/tcp_rmem";
const RPS: &str = "/sys/class/net/eth0/queues/rx-0/rps_cpus";

/// A machine with two processors and one queue.
const KERNEL: [(&str, &str); 11] = [
    (SOMAXCONN, "4096\n"),
    (SWAPPINESS, "60\n"),
    (FILE_MAX, "9223372036854775807\n"),
    ("/proc/sys/fs/nr_open", "1048576\n"),
    (ALLOWED, "reno bbr\n"),
    (RMEM, "4096\t131072\t6291456\n"),
    ("/proc/self/limits", LIMITS),
    ("/sys/devices/system/cpu/online", "0-1\n"),
    ("/sys/class/net/eth0/device/vendor", "0x1af4\n"),
    (RPS, "00\n"),
    // No card, so not looked at.
    ("/sys/class/net/lo/queues/rx-0/rps_cpus", "00\n"),
];
const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max open files            1024                 524288               files\n\
                      Max locked memory         8388608              unlimited            bytes\n";

const PROFILE: &str = "net.core.somaxconn = 65535\nvm.swappiness = 1\nfs.file-max = 2097152\n\
                       net.ipv4.tcp_allowed_congestion_control = cubic\nnet.ipv4.tcp_rmem = 4096 131072 16777216\n\
                       net.ipv4.tcp_mtu_probing = 1\nnic.rps = all\nlimits.nofile = 1048576\n\
                       limits.memlock = 2147483648\n";

fn wanted() -> Profile {
    profile::parse("test", PROFILE).expect("a profile")
}

/// Applies, and what was told.
fn applied(machine: &Machine, profile: &Profile) -> (Outcome, String) {
    let mut told = String::new();
    let outcome = apply::apply(machine, profile, &mut |line| told.extend([line, "\n"]));
    (outcome, told)
}

/// Reverts, and what was told.
fn reverted(machine: &Machine) -> (Outcome, String) {
    let mut told = String::new();
    let outcome = revert::revert(machine, &mut |line| told.extend([line, "\n"]));
    (outcome, told)
}

#[test]
fn apply_sets_what_is_worse_and_revert_takes_it_back() {
    let machine = Machine::new(&KERNEL);
    let before = machine.everything();
    let (outcome, told) = applied(&machine, &wanted());
    outcome.expect("it applies");
    for (path, expected) in [
        (SOMAXCONN, "65535\n"),
        (SWAPPINESS, "1\n"),
        (FILE_MAX, "9223372036854775807\n"),
        (ALLOWED, "reno bbr cubic\n"),
        (RMEM, "4096 131072 16777216\n"),
        (RPS, "03\n"),
        ("/sys/class/net/lo/queues/rx-0/rps_cpus", "00\n"),
    ] {
        assert_eq!(machine.get(path).as_deref(), Some(expected), "{path}\n{told}");
    }
    let head = "# Written by `cargo xtask tune apply --profile test`; `cargo xtask tune revert` removes it.\n";
    assert_eq!(
        machine.get(SYSCTL_FILE).expect("a drop-in file"),
        format!(
            "{head}net.core.somaxconn = 65535\nvm.swappiness = 1\n\
             net.ipv4.tcp_allowed_congestion_control = reno bbr cubic\nnet.ipv4.tcp_rmem = 4096 131072 16777216\n"
        )
    );
    assert_eq!(
        machine.get(LIMITS_FILE).expect("a drop-in file"),
        format!("{head}* soft nofile 1048576\n* hard nofile 1048576\n* soft memlock 2097152\n")
    );
    assert!(told.contains("net.core.somaxconn: 4096 → 65535"), "{told}");
    reverted(&machine).0.expect("it reverts");
    assert_eq!(machine.everything(), before);
    let (outcome, told) = reverted(&machine);
    outcome.expect("nothing is left");
    assert_eq!(told, "Nothing is applied.\n");
}

/// Crashes an apply at every change, in every way, before every kind of boot; then a revert has to restore the machine.
#[test]
fn an_apply_that_is_cut_short_anywhere_is_reverted() {
    let mut crashes = 0;
    for cut in [Cut::Before, Cut::Half, Cut::After] {
        for boot in [Boot::None, Boot::Bare, Boot::WithDropIns] {
            for change in 0.. {
                let machine = Machine::new(&KERNEL);
                let before = machine.everything();
                machine.crash_at(change, cut);
                let (outcome, _) = applied(&machine, &wanted());
                let over = !machine.crashed();
                assert_eq!(outcome.is_ok(), over, "{change} {cut:?}");
                machine.start(boot);
                let (outcome, told) = reverted(&machine);
                outcome.unwrap_or_else(|failure| panic!("{change} {cut:?} {boot:?}: {failure}"));
                assert_eq!(machine.everything(), before, "{change} {cut:?} {boot:?}:\n{told}");
                if over {
                    break;
                }
                crashes += 1;
            }
        }
    }
    // Begin; five values of three changes; two folders and two files; the end.
    assert!(crashes >= 9 * (1 + 15 + 4 + 6 + 1), "{crashes} crashes only");
}

/// The same for a revert, of a whole apply and of one that was cut short itself.
#[test]
fn a_revert_that_is_cut_short_anywhere_is_finished_by_the_next() {
    for first in [u32::MAX, 3, 8, 19, 22] {
        for cut in [Cut::Before, Cut::Half, Cut::After] {
            for change in 0.. {
                let machine = Machine::new(&KERNEL);
                let before = machine.everything();
                machine.crash_at(first, cut);
                let _ = applied(&machine, &wanted());
                machine.start(Boot::None);
                machine.crash_at(change, cut);
                let _ = reverted(&machine);
                let over = !machine.crashed();
                machine.start(Boot::WithDropIns);
                let (outcome, told) = reverted(&machine);
                outcome.unwrap_or_else(|failure| panic!("{first} {change} {cut:?}: {failure}"));
                assert_eq!(machine.everything(), before, "{first} {change} {cut:?}:\n{told}");
                if over {
                    assert!(change > 0);
                    break;
                }
            }
        }
    }
}

#[test]
fn applying_again_begins_from_what_was_there_first() {
    let machine = Machine::new(&KERNEL);
    let before = machine.everything();
    applied(&machine, &wanted()).0.expect("it applies");
    let after = machine.get(SYSCTL_FILE);
    machine.start(Boot::WithDropIns);
    applied(&machine, &wanted()).0.expect("it applies again");
    assert_eq!(machine.get(SYSCTL_FILE), after);
    let other = profile::parse("other", "vm.swappiness = 10\n").expect("a profile");
    applied(&machine, &other).0.expect("another one applies");
    assert_eq!(machine.get(SWAPPINESS).as_deref(), Some("10\n"));
    assert_eq!(machine.get(SOMAXCONN).as_deref(), Some("4096\n"));
    reverted(&machine).0.expect("it reverts");
    assert_eq!(machine.everything(), before);
}

/// Whoever changes a value after apply keeps it; so does whoever edits or removes what apply wrote.
#[test]
fn what_others_changed_since_is_theirs() {
    let machine = Machine::new(&KERNEL);
    applied(&machine, &wanted()).0.expect("it applies");
    machine.put(SOMAXCONN, "30000\n");
    machine.delete(RMEM);
    machine.put(LIMITS_FILE, "* - nofile 5000\n");
    let (outcome, told) = reverted(&machine);
    outcome.expect("it reverts");
    assert_eq!(machine.get(SOMAXCONN).as_deref(), Some("30000\n"));
    assert_eq!(machine.get(RMEM), None);
    assert_eq!(machine.get(LIMITS_FILE).as_deref(), Some("* - nofile 5000\n"));
    assert_eq!(machine.get(SWAPPINESS).as_deref(), Some("60\n"));
    assert_eq!(machine.get(SYSCTL_FILE), None);
    assert_eq!(machine.get(journal::PATH), None);
    for part in [
        "to 30000; it stays. Before apply it was 4096",
        "tcp_rmem is gone",
        "limits.d/99-zerohop.conf was changed since; it stays",
        "/etc/security/limits.d: others have put files into it; it stays",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

/// In a container most settings are read-only: they are told, the others are set, and the task fails.
#[test]
fn what_the_kernel_refuses_is_told_and_kept_out_of_the_drop_in() {
    let machine = Machine::new(&KERNEL);
    let before = machine.everything();
    *machine.refuses.borrow_mut() = vec![SOMAXCONN, RPS];
    let (outcome, told) = applied(&machine, &wanted());
    let failure = outcome.expect_err("two are refused").to_string();
    assert!(failure.contains("2 of the settings could not be changed"), "{failure}");
    assert!(told.contains("net.core.somaxconn: 65535 was refused: "), "{told}");
    assert_eq!(machine.get(SWAPPINESS).as_deref(), Some("1\n"));
    let drop_in = machine.get(SYSCTL_FILE).expect("the others");
    assert!(
        !drop_in.contains("somaxconn") && drop_in.contains("swappiness"),
        "{drop_in}"
    );
    reverted(&machine).0.expect("it reverts");
    assert_eq!(machine.everything(), before);
}

/// The kernel may take a part of what is asked; wherever the apply stops, the part is known to be ours.
#[test]
fn a_value_taken_in_part_is_ours() {
    for change in [u32::MAX, 2] {
        let machine = Machine::new(&KERNEL);
        let before = machine.everything();
        *machine.becomes.borrow_mut() = vec![(SOMAXCONN, "32768\n")];
        machine.crash_at(change, Cut::After);
        let (_, told) = applied(&machine, &wanted());
        assert!(
            machine.crashed() || told.contains("the kernel made that of 65535"),
            "{told}"
        );
        machine.start(Boot::None);
        assert_eq!(machine.get(SOMAXCONN).as_deref(), Some("32768\n"));
        reverted(&machine).0.expect("it reverts");
        assert_eq!(machine.everything(), before);
    }
}

/// What cannot be restored keeps the journal, so that it can be tried again.
#[test]
fn a_revert_that_is_refused_keeps_the_journal() {
    let machine = Machine::new(&KERNEL);
    let before = machine.everything();
    applied(&machine, &wanted()).0.expect("it applies");
    *machine.refuses.borrow_mut() = vec![SWAPPINESS];
    let (outcome, told) = reverted(&machine);
    assert!(outcome.is_err() && told.contains(SWAPPINESS), "{told}");
    assert_eq!(machine.get(SOMAXCONN).as_deref(), Some("4096\n"));
    assert!(machine.get(journal::PATH).is_some());
    machine.refuses.borrow_mut().clear();
    reverted(&machine).0.expect("it reverts");
    assert_eq!(machine.everything(), before);
}

/// A file of our name that we did not write, a journal that we cannot read: nothing is touched.
#[test]
fn what_is_not_ours_stops_the_apply_before_it_begins() {
    for (path, text, part) in [
        (SYSCTL_FILE, "vm.swappiness = 5\n", "exists, and no journal says"),
        (LIMITS_FILE, "", "exists, and no journal says"),
        (journal::PATH, "hello\n", "tune.journal:1: "),
    ] {
        let machine = Machine::new(&KERNEL);
        machine.put(path, text);
        let before = machine.everything();
        let (outcome, _) = applied(&machine, &wanted());
        let failure = outcome.expect_err("refused").to_string();
        assert!(
            failure.contains(part) && failure.contains("nothing was changed"),
            "{failure}"
        );
        assert_eq!(machine.everything(), before);
    }
}

/// A login whose limit is above `fs.nr_open` fails: nobody could log in to mend it.
#[test]
fn open_files_never_exceed_what_the_kernel_lets_a_login_have() {
    let machine = Machine::new(&KERNEL);
    let nr_open = "/proc/sys/fs/nr_open";
    machine.put(nr_open, "500000\n");
    let (outcome, told) = applied(&machine, &wanted());
    assert!(outcome.is_err() && told.contains("nobody could log in"), "{told}");
    let limits = machine.get(LIMITS_FILE).expect("memlock is there");
    assert!(!limits.contains("nofile") && limits.contains("memlock"), "{limits}");
    // A profile that raises both, in this order, is fine; one whose kernel refuses the first is not.
    let both = profile::parse("both", "fs.nr_open = 2000000\nlimits.nofile = 1048576\n").expect("a profile");
    applied(&machine, &both).0.expect("both are raised");
    let limits = machine.get(LIMITS_FILE).expect("nofile is there");
    assert!(limits.contains("hard nofile"), "{limits}");
    *machine.refuses.borrow_mut() = vec!["/proc/sys/fs/nr_open"];
    machine.delete(journal::PATH);
    machine.delete(SYSCTL_FILE);
    machine.delete(LIMITS_FILE);
    machine.put(nr_open, "500000\n");
    assert!(applied(&machine, &both).0.is_err());
    assert_eq!(machine.get(LIMITS_FILE), None);
}

#[test]
fn nothing_to_do_leaves_nothing_behind() {
    let machine = Machine::new(&[(SOMAXCONN, "65535\n"), (SWAPPINESS, "0\n")]);
    let before = machine.everything();
    let profile = "net.core.somaxconn = 4096\nvm.swappiness = 1\nfs.file-max = 1\n";
    let (outcome, told) = applied(&machine, &profile::parse("x", profile).expect("a profile"));
    outcome.expect("it applies");
    assert!(told.starts_with("Nothing is to be changed"), "{told}");
    assert_eq!(machine.everything(), before);
}

/// Every committed profile, on a machine that has nothing and on one where everything is to be set.
#[test]
fn the_table_fits_its_columns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    for machine in [Machine::new(&[]), Machine::new(&KERNEL)] {
        machine.put("/proc/sys/net/ipv4/tcp_mtu_probing", &"very long ".repeat(50));
        for name in ["gpu-node", "edge", "dev"] {
            let profile = profile::read(root, name).expect("a profile");
            let rows = plan::look(&machine, &profile);
            assert!(rows.len() >= profile.wants.len());
            for line in table::table(&rows, true) {
                assert!(line.chars().count() <= table::WIDTH, "{line}");
            }
        }
    }
}

/// A huge page switch is shown, and no rule ever makes a change of it.
#[test]
fn switches_in_brackets_are_only_shown() {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let profile = profile::parse("x", "thp.enabled = madvise\n").expect("a profile");
    for (text, now, expected) in [
        ("always [madvise] never\n", "madvise", "good"),
        ("[always] madvise never\n", "always", "kept"),
        ("always madvise [never]\n", "never", "kept"),
        ("madvise\n", "madvise", "odd"),
    ] {
        let machine = Machine::new(&[]);
        machine.put(path, text);
        let rows = plan::look(&machine, &profile);
        let state = match &rows[0].state {
            State::Good => "good",
            State::Kept => "kept",
            State::Odd(_) => "odd",
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!((rows[0].now.as_str(), state), (now, expected), "{text}");
    }
    assert!(catalogue::find("thp.enabled").is_some());
}

/// The commands as a user gives them, on a tree of files.
#[test]
fn the_commands_change_what_they_say_and_dry_runs_nothing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let machine = Machine::new(&KERNEL);
    let before = machine.everything();
    let tree = || Tree { root: machine.root() };
    let choice = || Choice {
        profile: Name::GpuNode,
        tree: tree(),
    };
    let perform = |tune: &Tune| super::tune(root, tune);
    let (short, choice_dry) = (true, choice());
    perform(&Tune::Show {
        choice: choice(),
        short,
    })
    .expect("it shows");
    perform(&Tune::Apply {
        choice: choice_dry,
        dry_run: true,
    })
    .expect("it tells");
    perform(&Tune::Revert {
        tree: tree(),
        dry_run: true,
    })
    .expect("it tells");
    assert_eq!(machine.everything(), before);
    perform(&Tune::Apply {
        choice: choice(),
        dry_run: false,
    })
    .expect("it applies");
    let applied = machine.everything();
    assert_ne!(applied, before);
    perform(&Tune::Revert {
        tree: tree(),
        dry_run: true,
    })
    .expect("it tells");
    perform(&Tune::Show {
        choice: choice(),
        short: false,
    })
    .expect("it shows");
    assert_eq!(machine.everything(), applied);
    perform(&Tune::Revert {
        tree: tree(),
        dry_run: false,
    })
    .expect("it reverts");
    assert_eq!(machine.everything(), before);
}

#[test]
fn two_at_once_are_one_too_many() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let machine = Machine::new(&KERNEL);
    let other = Disk::new(machine.root()).lock(journal::FOLDER).expect("a lock");
    let revert = Tune::Revert {
        tree: Tree { root: machine.root() },
        dry_run: false,
    };
    let failure = super::tune(root, &revert).expect_err("refused").to_string();
    assert!(failure.contains("another `tune` is at work"), "{failure}");
    drop(other);
    super::tune(root, &revert).expect("it is free");
}

#[test]
fn the_machine_itself_is_for_root() {
    for (root, is_root, good) in [("/", false, false), ("/", true, true), ("/somewhere", false, true)] {
        let tree = Tree { root: root.into() };
        let outcome = super::privileged(&tree, "apply", is_root).map(|_| ());
        match (outcome, good) {
            (Ok(()), true) => {}
            (Err(failure), false) => {
                let told = failure.to_string();
                assert!(
                    told.contains("nothing was changed") && told.contains("--dry-run"),
                    "{told}"
                );
            }
            (outcome, _) => panic!("{root} {is_root}: {outcome:?}"),
        }
    }
}
