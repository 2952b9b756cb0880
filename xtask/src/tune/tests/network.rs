//! `tune` on the real kernel, in a network namespace of its own, whose settings nobody else has.
//!
//! The child checks that it is alone before it sets anything, and sets only what belongs to its namespace. Invariant: the
//! machine's own settings are the same before and after, and the test looks.

use std::{cell::Cell, collections::BTreeMap, env, fs, io, process::Command};

use zerohop_tests::scratch::Scratch;

use super::super::{
    apply,
    files::{Disk, Files},
    own_network, plan, profile, revert,
};

/// Tells the child which namespace is not its own.
const CHILD: &str = "ZEROHOP_TUNE_OUTSIDE";
const NAMESPACE: &str = "/proc/self/ns/net";
/// What the child says when all is well.
const RESTORED: &str = "restored to the byte";

/// Settings of a namespace, and values that are better than a kernel's own.
const PROFILE: &str = "net.core.somaxconn = 65535\nnet.ipv4.tcp_max_syn_backlog = 99999\n\
                       net.ipv4.tcp_migrate_req = 1\nnet.ipv4.tcp_fin_timeout = 7\n\
                       net.ipv4.tcp_slow_start_after_idle = 0\nnet.ipv4.tcp_mtu_probing = 1\n\
                       net.ipv4.tcp_rmem = 4096 262144 67108864\nnet.ipv4.tcp_wmem = 4096 32768 67108864\n\
                       net.ipv4.ip_local_port_range = 10240 65535\nnet.ipv4.tcp_syncookies = 1\n";

/// The kernel's own settings for those names, a temporary folder for all else; after `left` changes, nothing.
struct Half {
    real: Disk,
    rest: Disk,
    names: Vec<String>,
    left: Cell<u32>,
}

impl Half {
    fn disk(&self, path: &str) -> &Disk {
        match self.names.iter().any(|name| name == path) {
            true => &self.real,
            false => &self.rest,
        }
    }

    fn change(&self) -> io::Result<()> {
        match self.left.get() {
            0 => Err(io::Error::other("cut short")),
            left => {
                self.left.set(left - 1);
                Ok(())
            }
        }
    }
}

impl Files for Half {
    fn read(&self, path: &str) -> io::Result<String> {
        self.disk(path).read(path)
    }
    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.rest.list(path)
    }
    fn there(&self, path: &str) -> io::Result<bool> {
        self.disk(path).there(path)
    }
    fn set(&self, path: &str, value: &str) -> io::Result<()> {
        self.change()?;
        self.disk(path).set(path, value)
    }
    fn append(&self, path: &str, text: &str) -> io::Result<()> {
        self.change()?;
        self.rest.append(path, text)
    }
    fn create(&self, path: &str, text: &str) -> io::Result<()> {
        self.change()?;
        self.rest.create(path, text)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change()?;
        self.rest.rename(from, to)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.change()?;
        self.rest.remove(path)
    }
    fn make_folder(&self, path: &str) -> io::Result<()> {
        self.change()?;
        self.rest.make_folder(path)
    }
    fn remove_folder(&self, path: &str) -> io::Result<()> {
        self.change()?;
        self.rest.remove_folder(path)
    }
}

/// All settings of core and ipv4 that can be read, to the byte.
fn settings() -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for folder in ["/proc/sys/net/core", "/proc/sys/net/ipv4"] {
        for entry in fs::read_dir(folder).expect("the kernel's settings") {
            let path = entry.expect("an entry").path();
            if let (true, Ok(bytes)) = (path.is_file(), fs::read(&path)) {
                found.insert(path.display().to_string(), bytes);
            }
        }
    }
    found
}

#[test]
fn apply_and_revert_restore_the_real_kernel_to_the_byte() {
    if !own_network() {
        zerohop_tests::skip(
            "tune_on_the_kernel",
            "no network namespace can be made here (it takes root)",
        );
        return;
    }
    let outside = fs::read_link(NAMESPACE).expect("our namespace");
    let before = settings();
    let output = Command::new("unshare")
        .arg("--net")
        .arg(env::current_exe().expect("this test"))
        .args([
            "--exact",
            "tune::tests::network::child_in_its_own_network",
            "--nocapture",
        ])
        .env(CHILD, &outside)
        .output()
        .expect("unshare starts");
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains(RESTORED), "{told}\n{errors}");
    let after = settings();
    for path in names() {
        assert_eq!(before.get(&path), after.get(&path), "{path} of the machine itself");
    }
}

fn names() -> Vec<String> {
    let profile = profile::parse("kernel", PROFILE).expect("a profile");
    let names = profile.wants.iter().map(|(setting, _)| plan::path(setting.name));
    names.collect()
}

/// Does nothing but as a child of the test above.
#[test]
#[expect(clippy::print_stdout, reason = "the parent reads it")]
fn child_in_its_own_network() {
    let Some(outside) = env::var_os(CHILD) else {
        return;
    };
    let inside = fs::read_link(NAMESPACE).expect("our namespace");
    assert_ne!(inside.as_os_str(), outside, "not in a network namespace of our own");
    let before = settings();
    let mut crashes = 0;
    for left in 0.. {
        let scratch = Scratch::in_memory().expect("a folder");
        fs::create_dir_all(scratch.path().join("var/lib")).expect("a folder");
        let files = Half {
            real: Disk::new("/"),
            rest: Disk::new(scratch.path()),
            names: names(),
            left: Cell::new(left),
        };
        let profile = profile::parse("kernel", PROFILE).expect("a profile");
        let outcome = apply::apply(&files, &profile, &mut |_| {});
        if outcome.is_ok() {
            changed(&before);
        }
        files.left.set(u32::MAX);
        revert::revert(&files, &mut |_| {}).expect("it reverts");
        assert_eq!(settings(), before, "cut short after {left} changes");
        let rest: Vec<_> = fs::read_dir(scratch.path().join("var/lib")).expect("it").collect();
        assert!(rest.is_empty(), "{rest:?}");
        if outcome.is_ok() {
            break;
        }
        crashes += 1;
    }
    // Nine values of three changes each, the beginning, folders, a file, the end.
    assert!(crashes > 30, "{crashes}");
    println!("{RESTORED}, after {crashes} crashes");
}

/// Apply has set all but what was good already.
fn changed(before: &BTreeMap<String, Vec<u8>>) {
    let now = settings();
    let found: Vec<&String> = now
        .iter()
        .filter(|(path, bytes)| before.get(*path) != Some(bytes))
        .map(|(path, _)| path)
        .collect();
    let mut expected = names();
    expected.retain(|path| !path.ends_with("tcp_syncookies"));
    expected.sort();
    assert_eq!(found, expected.iter().collect::<Vec<_>>());
}
