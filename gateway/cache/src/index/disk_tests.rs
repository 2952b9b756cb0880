//! A disk of the tests: it counts its steps, fails or loses power at one of them, and then forgets of what was not synced
//! whatever chance has it forget.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::{Future, pending, ready},
    io,
    pin::pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use super::PAGE;
use crate::files::{File, Files, Open};

/// Runs what never waits.
pub(super) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a disk of the tests does not wait"),
    }
}

/// Chance, by seed.
pub(super) struct Chance(pub(super) u64);

impl Chance {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

enum Pending {
    Write(usize, Vec<u8>),
    Grow(usize),
}

#[derive(Default)]
struct Inode {
    live: Vec<u8>,
    lasting: Vec<u8>,
    pending: Vec<Pending>,
}

impl Inode {
    fn of(bytes: Vec<u8>) -> Self {
        Self {
            live: bytes.clone(),
            lasting: bytes,
            pending: Vec::new(),
        }
    }

    /// What is left of it: unsynced writes in any order, each sector of them or not.
    fn left(&self, chance: &mut Chance) -> Vec<u8> {
        let mut bytes = self.lasting.clone();
        let mut pending: Vec<_> = self.pending.iter().collect();
        for end in (1..pending.len()).rev() {
            pending.swap(end, chance.below(end + 1));
        }
        for pending in pending {
            let manner = chance.below(3);
            match pending {
                Pending::Grow(len) if manner > 0 => bytes.resize((*len).max(bytes.len()), 0),
                Pending::Write(offset, written) => {
                    for (at, sector) in written.chunks(512).enumerate() {
                        if manner == 0 || (manner == 1 && chance.below(2) == 0) {
                            continue;
                        }
                        let at = offset + at * 512;
                        bytes.resize((at + sector.len()).max(bytes.len()), 0);
                        bytes[at..at + sector.len()].copy_from_slice(sector);
                    }
                }
                Pending::Grow(_) => {}
            }
        }
        bytes
    }
}

#[derive(Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    /// The names after each change that was not synced; the first are the lasting ones.
    history: Vec<BTreeMap<String, usize>>,
    steps: u64,
    /// At this step power goes, and stays away.
    dies_at: u64,
    /// This step fails, and no other.
    fails_at: u64,
    written: u64,
    stalled: bool,
}

/// A folder in memory. Cloning shares it.
#[derive(Clone)]
pub(super) struct Disk(Rc<RefCell<State>>);

impl Disk {
    pub(super) fn new() -> Self {
        Self::with(BTreeMap::new(), Vec::new())
    }

    fn with(names: BTreeMap<String, usize>, inodes: Vec<Inode>) -> Self {
        Self(Rc::new(RefCell::new(State {
            inodes,
            history: vec![names.clone()],
            names,
            dies_at: u64::MAX,
            fails_at: u64::MAX,
            ..State::default()
        })))
    }

    /// One with this file.
    pub(super) fn holding(name: &str, bytes: Vec<u8>) -> Self {
        Self::with([(name.to_owned(), 0)].into(), vec![Inode::of(bytes)])
    }

    pub(super) fn steps(&self) -> u64 {
        self.0.borrow().steps
    }

    pub(super) fn written(&self) -> u64 {
        self.0.borrow().written
    }

    pub(super) fn die_at(&self, step: u64) {
        self.0.borrow_mut().dies_at = step;
    }

    pub(super) fn fail_at(&self, step: u64) {
        self.0.borrow_mut().fails_at = step;
    }

    /// Whether syncs never end.
    pub(super) fn stall(&self, stalled: bool) {
        self.0.borrow_mut().stalled = stalled;
    }

    pub(super) fn bytes(&self, name: &str) -> Vec<u8> {
        let state = self.0.borrow();
        state.inodes[state.names[name]].live.clone()
    }

    /// The disk after the power came back.
    pub(super) fn after(&self, chance: &mut Chance) -> Self {
        let state = self.0.borrow();
        let names = state.history[chance.below(state.history.len())].clone();
        let inodes = state.inodes.iter();
        let inodes = inodes.map(|inode| Inode::of(inode.left(chance))).collect();
        Self::with(names, inodes)
    }

    fn step(&self) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.steps += 1;
        if state.steps >= state.dies_at || state.steps == state.fails_at {
            return Err(io::Error::other("the disk is gone"));
        }
        Ok(())
    }

    fn rename_now(&self, change: impl FnOnce(&mut BTreeMap<String, usize>) -> io::Result<()>) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        change(&mut state.names)?;
        let names = state.names.clone();
        state.history.push(names);
        Ok(())
    }
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Files for Disk {
    type File = DiskFile;

    fn open(&self, name: &str, how: Open) -> impl Future<Output = io::Result<DiskFile>> {
        let open = || {
            self.step()?;
            let found = self.0.borrow().names.get(name).copied();
            let inode = match (found, how) {
                (Some(_), Open::New) => return Err(io::ErrorKind::AlreadyExists.into()),
                (None, Open::Existing) => return Err(missing()),
                (Some(inode), _) => inode,
                (None, _) => {
                    let new = self.0.borrow().inodes.len();
                    self.0.borrow_mut().inodes.push(Inode::default());
                    self.rename_now(|names| {
                        names.insert(name.to_owned(), new);
                        Ok(())
                    })?;
                    new
                }
            };
            Ok(DiskFile {
                disk: self.clone(),
                inode,
            })
        };
        ready(open())
    }

    fn rename(&self, from: &str, to: &str) -> impl Future<Output = io::Result<()>> {
        ready(self.step().and_then(|()| {
            self.rename_now(|names| {
                let inode = names.remove(from).ok_or_else(missing)?;
                names.insert(to.to_owned(), inode);
                Ok(())
            })
        }))
    }

    fn remove(&self, name: &str) -> impl Future<Output = io::Result<()>> {
        ready(self.step().and_then(|()| {
            self.rename_now(|names| {
                names.remove(name).ok_or_else(missing)?;
                Ok(())
            })
        }))
    }

    fn list(&self) -> impl Future<Output = io::Result<Vec<(String, u64)>>> {
        let state = self.0.borrow();
        let size = |inode: &usize| state.inodes[*inode].live.len() as u64;
        let names = state.names.iter();
        ready(Ok(names.map(|(name, inode)| (name.clone(), size(inode))).collect()))
    }

    fn sync_folder(&self) -> impl Future<Output = io::Result<()>> {
        ready(self.step().map(|()| {
            let mut state = self.0.borrow_mut();
            state.history = vec![state.names.clone()];
        }))
    }
}

pub(super) struct DiskFile {
    disk: Disk,
    inode: usize,
}

impl DiskFile {
    fn with<T>(&self, act: impl FnOnce(&mut Inode) -> T) -> T {
        act(&mut self.disk.0.borrow_mut().inodes[self.inode])
    }

    fn put(&self, bytes: &[u8], offset: usize) {
        self.with(|inode| {
            let end = offset + bytes.len();
            inode.live.resize(end.max(inode.live.len()), 0);
            inode.live[offset..end].copy_from_slice(bytes);
            inode.pending.push(Pending::Write(offset, bytes.to_vec()));
        });
        self.disk.0.borrow_mut().written += bytes.len() as u64;
    }
}

impl File for DiskFile {
    fn write_at(&self, bytes: Vec<u8>, offset: u64) -> impl Future<Output = (io::Result<()>, Vec<u8>)> {
        assert_eq!((offset as usize % PAGE, bytes.len() % PAGE), (0, 0), "whole pages");
        // A meta slot comes after what it leads to.
        let unsynced = |inode: &mut Inode| {
            inode
                .pending
                .iter()
                .any(|pending| matches!(pending, Pending::Write(..)))
        };
        assert!(
            offset as usize >= 2 * PAGE || !self.with(unsynced),
            "pages without a sync"
        );
        let before = self.disk.steps();
        let outcome = self.disk.step();
        // A write at which power goes may have been done, in part too; one that is made later is not.
        if outcome.is_ok() || before + 1 == self.disk.0.borrow().dies_at {
            self.put(&bytes, offset as usize);
        }
        ready((outcome, bytes))
    }

    fn read_at(&self, len: usize, offset: u64) -> impl Future<Output = io::Result<Vec<u8>>> {
        let offset = offset as usize;
        let read = self.with(|inode| inode.live.get(offset..offset + len).map(<[u8]>::to_vec));
        ready(read.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()))
    }

    async fn sync(&self) -> io::Result<()> {
        if self.disk.0.borrow().stalled {
            pending::<()>().await;
        }
        self.disk.step()?;
        self.with(|inode| {
            inode.lasting = inode.live.clone();
            inode.pending.clear();
        });
        Ok(())
    }

    fn reserve(&self, len: u64) -> impl Future<Output = io::Result<()>> {
        let len = len as usize;
        ready(self.disk.step().map(|()| {
            self.with(|inode| {
                inode.live.resize(len.max(inode.live.len()), 0);
                inode.pending.push(Pending::Grow(len));
            });
        }))
    }

    fn size(&self) -> impl Future<Output = io::Result<u64>> {
        ready(Ok(self.with(|inode| inode.live.len() as u64)))
    }
}
