//! A made-up machine in a temporary folder: kernel files that refuse or take a part of a value, a crash at any change, and
//! boots.
//!
//! Nothing here touches the real machine. Invariant: after its crash it answers nothing until it is started again.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use zerohop_tests::scratch::Scratch;

use super::super::{
    files::{Disk, Files},
    plan::SYSCTL_FILE,
};

/// How much of the last change is done when the machine stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Nothing.
    Before,
    /// Of a text, its first half; of anything else, nothing.
    Half,
    /// All, but nobody hears of it.
    After,
}

/// What a boot does to the kernel's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Boot {
    /// There is none: only the program died.
    None,
    /// They are as they were at first.
    Bare,
    /// And then sysctl.d is applied.
    WithDropIns,
}

/// The machine.
pub(super) struct Machine {
    scratch: Scratch,
    disk: Disk,
    /// Kernel files as they are after a boot.
    first: Vec<(&'static str, &'static str)>,
    /// Files that refuse to be set.
    pub(super) refuses: RefCell<Vec<&'static str>>,
    /// Files that become this, whatever is written.
    pub(super) becomes: RefCell<Vec<(&'static str, &'static str)>>,
    /// Changes until the crash.
    left: Cell<Option<u32>>,
    cut: Cell<Cut>,
    dead: Cell<bool>,
}

impl Machine {
    /// With these kernel files, and an /etc and a /var/lib as a system has them.
    pub(super) fn new(first: &[(&'static str, &'static str)]) -> Self {
        let scratch = Scratch::in_memory().expect("a folder");
        let machine = Self {
            disk: Disk::new(scratch.path()),
            scratch,
            first: first.to_vec(),
            refuses: RefCell::default(),
            becomes: RefCell::default(),
            left: Cell::new(None),
            cut: Cell::new(Cut::Before),
            dead: Cell::new(false),
        };
        for (path, text) in first {
            machine.put(path, text);
        }
        machine.put("/etc/sysctl.d/10-system.conf", "vm.swappiness = 60\n");
        fs::create_dir_all(machine.at("/var/lib")).expect("a folder");
        machine
    }

    /// The folder that it lies in.
    pub(super) fn root(&self) -> PathBuf {
        self.scratch.path().to_path_buf()
    }

    fn at(&self, path: &str) -> PathBuf {
        self.scratch.path().join(path.trim_start_matches('/'))
    }

    /// Writes a file as somebody else would.
    pub(super) fn put(&self, path: &str, text: &str) {
        let full = self.at(path);
        fs::create_dir_all(full.parent().expect("a folder")).expect("folders");
        fs::write(full, text).expect("a file");
    }

    /// What a file says; nothing if it is not there.
    pub(super) fn get(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.at(path)).ok()
    }

    pub(super) fn delete(&self, path: &str) {
        fs::remove_file(self.at(path)).expect("it is there");
    }

    /// Every path with its mode and text.
    pub(super) fn everything(&self) -> BTreeMap<String, (u32, Option<String>)> {
        let mut found = BTreeMap::new();
        walk(self.scratch.path(), self.scratch.path(), &mut found);
        found
    }

    /// Stops at the change with this number, from 0.
    pub(super) fn crash_at(&self, change: u32, cut: Cut) {
        self.left.set(Some(change));
        self.cut.set(cut);
    }

    /// Whether it has stopped.
    pub(super) fn crashed(&self) -> bool {
        self.dead.get()
    }

    /// Starts it again.
    pub(super) fn start(&self, boot: Boot) {
        self.dead.set(false);
        self.left.set(None);
        if boot == Boot::None {
            return;
        }
        for (path, text) in &self.first {
            self.put(path, text);
        }
        let drop_in = self.get(SYSCTL_FILE).filter(|_| boot == Boot::WithDropIns);
        for line in drop_in.unwrap_or_default().lines() {
            if let Some((key, value)) = line.split_once(" = ") {
                let path = super::super::plan::path(key);
                let text = self.becoming(&path).map_or_else(|| format!("{value}\n"), str::to_owned);
                self.put(&path, &text);
            }
        }
    }

    fn becoming(&self, path: &str) -> Option<&'static str> {
        let becomes = self.becomes.borrow();
        becomes.iter().find(|(of, _)| *of == path).map(|(_, text)| *text)
    }

    fn alive(&self) -> io::Result<()> {
        if self.dead.get() {
            return Err(io::Error::other("the machine has stopped"));
        }
        Ok(())
    }

    /// A change: `whole` makes it, `half` a part of it.
    fn change(&self, half: impl FnOnce() -> io::Result<()>, whole: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.alive()?;
        match self.left.get() {
            Some(0) => {
                match self.cut.get() {
                    Cut::Before => {}
                    Cut::Half => half()?,
                    Cut::After => whole()?,
                }
                self.dead.set(true);
                self.alive()
            }
            left => {
                self.left.set(left.map(|left| left - 1));
                whole()
            }
        }
    }
}

fn walk(root: &Path, folder: &Path, found: &mut BTreeMap<String, (u32, Option<String>)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let mode = path.metadata().expect("it is there").permissions().mode();
        let name = path.strip_prefix(root).expect("below").display().to_string();
        if path.is_dir() {
            found.insert(name, (mode, None));
            walk(root, &path, found);
        } else {
            let text = fs::read_to_string(&path).expect("a text");
            found.insert(name, (mode, Some(text)));
        }
    }
}

const fn nothing() -> io::Result<()> {
    Ok(())
}

fn half(text: &str) -> &str {
    &text[..text.len() / 2]
}

impl Files for Machine {
    fn read(&self, path: &str) -> io::Result<String> {
        self.alive()?;
        self.disk.read(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.alive()?;
        self.disk.list(path)
    }

    fn there(&self, path: &str) -> io::Result<bool> {
        self.alive()?;
        self.disk.there(path)
    }

    fn set(&self, path: &str, value: &str) -> io::Result<()> {
        if self.refuses.borrow().contains(&path) {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        // The kernel takes a value as a whole or not at all. A value that was there before is taken as it is.
        let back = self
            .first
            .iter()
            .any(|(of, text)| *of == path && text.trim() == value.trim());
        let becomes = self.becoming(path).filter(|_| !back);
        self.change(nothing, || self.disk.set(path, becomes.unwrap_or(value)))
    }

    fn append(&self, path: &str, text: &str) -> io::Result<()> {
        self.change(|| self.disk.append(path, half(text)), || self.disk.append(path, text))
    }

    fn create(&self, path: &str, text: &str) -> io::Result<()> {
        self.change(|| self.disk.create(path, half(text)), || self.disk.create(path, text))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change(nothing, || self.disk.rename(from, to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.change(nothing, || self.disk.remove(path))
    }

    fn make_folder(&self, path: &str) -> io::Result<()> {
        self.change(nothing, || self.disk.make_folder(path))
    }

    fn remove_folder(&self, path: &str) -> io::Result<()> {
        self.change(nothing, || self.disk.remove_folder(path))
    }
}
