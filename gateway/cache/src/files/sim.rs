//! A simulated disk: files in memory that forget, at a power cut, whatever a real disk may forget.
//!
//! It touches nothing real and never waits. Invariant: the same seed and the same calls give the same disk. After
//! [`SimDisk::crash`] everything synced is there. Of each write since, chance keeps all, nothing, or single sectors of 512 bytes,
//! and in any order; names that were given, changed or removed without a sync of their folder are kept singly or up to one of them.

use std::{cell::RefCell, collections::BTreeMap, fmt, io, rc::Rc};

use rustix::io::Errno;

use super::{File, Files, Open};

/// What a disk writes wholly or not at all, bytes.
const SECTOR: usize = 512;

/// An error to be met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The device fails (EIO). Of a write some may have been done; of a sync, what was not synced may never be.
    Io,
    /// No room (ENOSPC).
    Full,
    /// The file system has become read-only (EROFS).
    ReadOnly,
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> Self {
        Self::from(match fault {
            Fault::Io => Errno::IO,
            Fault::Full => Errno::NOSPC,
            Fault::ReadOnly => Errno::ROFS,
        })
    }
}

enum Unsynced {
    Write(usize, Vec<u8>),
    Grow(usize),
}

impl Unsynced {
    /// Does it to the bytes, as far as `keeps` says for each sector.
    fn apply(&self, bytes: &mut Vec<u8>, mut keeps: impl FnMut() -> bool) {
        match self {
            Self::Grow(len) => {
                if keeps() {
                    bytes.resize((*len).max(bytes.len()), 0);
                }
            }
            Self::Write(offset, written) => {
                // Sectors of the disk, not of the write.
                let mut done = 0;
                while done < written.len() {
                    let at = offset + done;
                    let len = (SECTOR - at % SECTOR).min(written.len() - done);
                    if keeps() {
                        put(bytes, at, &written[done..done + len]);
                    }
                    done += len;
                }
            }
        }
    }
}

fn put(bytes: &mut Vec<u8>, at: usize, what: &[u8]) {
    bytes.resize((at + what.len()).max(bytes.len()), 0);
    bytes[at..at + what.len()].copy_from_slice(what);
}

#[derive(Default)]
struct Inode {
    live: Vec<u8>,
    lasting: Vec<u8>,
    unsynced: Vec<Unsynced>,
}

/// Folder and file.
type Name = (&'static str, String);

#[derive(Clone)]
enum Naming {
    Give(Name, usize),
    Change(Name, Name, usize),
    Remove(Name),
}

impl Naming {
    fn folder(&self) -> &'static str {
        match self {
            Self::Give(name, _) | Self::Change(_, name, _) | Self::Remove(name) => name.0,
        }
    }

    fn apply(&self, names: &mut BTreeMap<Name, usize>) {
        match self {
            Self::Give(name, inode) => drop(names.insert(name.clone(), *inode)),
            Self::Change(from, to, inode) => {
                // Lost before, it may be there under its last name only.
                if names.get(from) == Some(inode) {
                    names.remove(from);
                }
                names.insert(to.clone(), *inode);
            }
            Self::Remove(name) => drop(names.remove(name)),
        }
    }
}

struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<Name, usize>,
    lasting_names: BTreeMap<Name, usize>,
    renamed: Vec<Naming>,
    chance: u64,
    steps: u64,
    dies_at: u64,
    fault: Option<(u64, Fault)>,
    read_only: bool,
    room: u64,
    written: u64,
}

impl State {
    fn below(&mut self, bound: usize) -> usize {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.chance;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % bound as u64) as usize
    }

    /// Counts a call; the error that it meets. `changes` says whether it is one that a read-only file system refuses.
    fn step(&mut self, changes: bool) -> io::Result<()> {
        self.steps += 1;
        if self.steps >= self.dies_at {
            return Err(io::Error::other("the power is gone"));
        }
        match self.fault {
            Some((step, fault)) if step == self.steps => Err(fault.into()),
            _ if changes && self.read_only => Err(Fault::ReadOnly.into()),
            _ => Ok(()),
        }
    }

    /// Bytes of all files.
    fn used(&self) -> u64 {
        self.names
            .values()
            .map(|inode| self.inodes[*inode].live.len() as u64)
            .sum()
    }

    fn rename(&mut self, naming: Naming) {
        naming.apply(&mut self.names);
        self.renamed.push(naming);
    }

    /// What is left of a file.
    fn left(&mut self, inode: &Inode) -> Vec<u8> {
        let mut bytes = inode.lasting.clone();
        let mut order: Vec<_> = inode.unsynced.iter().collect();
        for end in (1..order.len()).rev() {
            order.swap(end, self.below(end + 1));
        }
        for unsynced in order {
            let manner = self.below(3);
            unsynced.apply(&mut bytes, || manner == 2 || (manner == 1 && self.below(2) == 0));
        }
        bytes
    }

    fn left_names(&mut self) -> BTreeMap<Name, usize> {
        let mut names = self.lasting_names.clone();
        let renamed = std::mem::take(&mut self.renamed);
        // A journal keeps them up to one of them; other file systems promise less.
        let journal = self.below(2) == 0;
        let kept = self.below(renamed.len() + 1);
        for (at, naming) in renamed.iter().enumerate() {
            if if journal { at < kept } else { self.below(2) == 0 } {
                naming.apply(&mut names);
            }
        }
        names
    }
}

/// A disk. Cloning shares it.
#[derive(Clone)]
pub struct SimDisk(Rc<RefCell<State>>);

impl SimDisk {
    /// An empty one.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with(seed, Vec::new(), BTreeMap::new())
    }

    fn with(seed: u64, inodes: Vec<Inode>, names: BTreeMap<Name, usize>) -> Self {
        Self(Rc::new(RefCell::new(State {
            inodes,
            lasting_names: names.clone(),
            names,
            renamed: Vec::new(),
            chance: seed,
            steps: 0,
            dies_at: u64::MAX,
            fault: None,
            read_only: false,
            room: u64::MAX,
            written: 0,
        })))
    }

    /// A folder of it.
    #[must_use]
    pub fn folder(&self, name: &'static str) -> SimFiles {
        SimFiles {
            disk: self.clone(),
            folder: name,
        }
    }

    /// Calls so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.0.borrow().steps
    }

    /// Bytes written so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.0.borrow().written
    }

    /// At this call power goes, and stays away; what the call was to do may be done in part.
    pub fn die_at(&self, step: u64) {
        self.0.borrow_mut().dies_at = step;
    }

    /// This call meets an error, and no other.
    pub fn fail_at(&self, step: u64, fault: Fault) {
        self.0.borrow_mut().fault = Some((step, fault));
    }

    /// Whether nothing can be changed.
    pub fn set_read_only(&self, read_only: bool) {
        self.0.borrow_mut().read_only = read_only;
    }

    /// Bytes that its files may have in all.
    pub fn set_room(&self, bytes: u64) {
        self.0.borrow_mut().room = bytes;
    }

    /// Turns over the bits of `mask` in a byte of a file, for good; whether there is one.
    pub fn damage(&self, folder: &'static str, name: &str, at: usize, mask: u8) -> bool {
        let mut state = self.0.borrow_mut();
        let Some(inode) = state.names.get(&(folder, name.to_owned())).copied() else {
            return false;
        };
        let inode = &mut state.inodes[inode];
        let Some(byte) = inode.live.get_mut(at) else {
            return false;
        };
        *byte ^= mask;
        inode.lasting.clone_from(&inode.live);
        inode.unsynced.clear();
        true
    }

    /// The disk as it is after a power cut now. Files that are open stay with this one, where power never comes back.
    #[must_use]
    pub fn crash(&self) -> Self {
        let mut state = self.0.borrow_mut();
        state.dies_at = 0;
        let names = state.left_names();
        let old = std::mem::take(&mut state.inodes);
        let inodes = old.iter().map(|inode| {
            let bytes = state.left(inode);
            Inode {
                live: bytes.clone(),
                lasting: bytes,
                unsynced: Vec::new(),
            }
        });
        let inodes = inodes.collect();
        let seed = state.below(usize::MAX) as u64;
        Self::with(seed, inodes, names)
    }
}

/// A folder of a [`SimDisk`].
#[derive(Clone)]
pub struct SimFiles {
    disk: SimDisk,
    folder: &'static str,
}

fn missing() -> io::Error {
    Errno::NOENT.into()
}

impl SimFiles {
    fn name(&self, name: &str) -> Name {
        (self.folder, name.to_owned())
    }

    fn find(&self, state: &State, name: &str) -> Option<usize> {
        state.names.get(&self.name(name)).copied()
    }
}

impl Files for SimFiles {
    type File = SimFile;

    async fn open(&self, name: &str, how: Open) -> io::Result<SimFile> {
        let state = &mut *self.disk.0.borrow_mut();
        let found = self.find(state, name);
        state.step(found.is_none())?;
        let inode = match (found, how) {
            (Some(_), Open::New) => return Err(Errno::EXIST.into()),
            (None, Open::Existing) => return Err(missing()),
            (Some(inode), _) => inode,
            (None, _) => {
                state.inodes.push(Inode::default());
                let inode = state.inodes.len() - 1;
                state.rename(Naming::Give(self.name(name), inode));
                inode
            }
        };
        Ok(SimFile {
            disk: self.disk.clone(),
            inode,
        })
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let state = &mut *self.disk.0.borrow_mut();
        let outcome = state.step(true);
        let inode = self.find(state, from);
        // The call at which power goes may have been done.
        if outcome.is_ok() || state.steps == state.dies_at {
            let inode = inode.ok_or_else(missing)?;
            state.rename(Naming::Change(self.name(from), self.name(to), inode));
        }
        outcome
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        let state = &mut *self.disk.0.borrow_mut();
        let outcome = state.step(true);
        if outcome.is_ok() || state.steps == state.dies_at {
            self.find(state, name).ok_or_else(missing)?;
            state.rename(Naming::Remove(self.name(name)));
        }
        outcome
    }

    async fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let state = &mut *self.disk.0.borrow_mut();
        state.step(false)?;
        let own = state.names.iter().filter(|((folder, _), _)| *folder == self.folder);
        let sized = own.map(|((_, name), inode)| (name.clone(), state.inodes[*inode].live.len() as u64));
        Ok(sized.collect())
    }

    async fn sync_folder(&self) -> io::Result<()> {
        let state = &mut *self.disk.0.borrow_mut();
        state.step(false)?;
        let renamed = std::mem::take(&mut state.renamed);
        for naming in renamed {
            match naming.folder() == self.folder {
                true => naming.apply(&mut state.lasting_names),
                false => state.renamed.push(naming),
            }
        }
        Ok(())
    }
}

/// An open file of a [`SimDisk`].
pub struct SimFile {
    disk: SimDisk,
    inode: usize,
}

impl fmt::Debug for SimFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SimFile")
    }
}

impl SimFile {
    /// Writes, or does so in part and fails.
    fn write(&self, bytes: &[u8], at: usize) -> io::Result<()> {
        let state = &mut *self.disk.0.borrow_mut();
        let outcome = state.step(true);
        let in_part =
            state.steps == state.dies_at || matches!(state.fault, Some((step, Fault::Io)) if step == state.steps);
        if outcome.is_err() && !in_part {
            return outcome;
        }
        let free = state.room.saturating_sub(state.used()) as usize;
        let fits = state.inodes[self.inode]
            .live
            .len()
            .saturating_add(free)
            .saturating_sub(at);
        let len = fits.min(bytes.len());
        let whole = Unsynced::Write(at, bytes[..len].to_vec());
        let mut live = std::mem::take(&mut state.inodes[self.inode].live);
        whole.apply(&mut live, || outcome.is_ok() || state.below(2) == 0);
        let inode = &mut state.inodes[self.inode];
        inode.live = live;
        inode.unsynced.push(whole);
        state.written += len as u64;
        if len < bytes.len() {
            outcome.and(Err(Fault::Full.into()))
        } else {
            outcome
        }
    }
}

impl File for SimFile {
    async fn write_at(&self, bytes: Vec<u8>, offset: u64) -> (io::Result<()>, Vec<u8>) {
        (self.write(&bytes, offset as usize), bytes)
    }

    async fn read_at(&self, len: usize, offset: u64) -> io::Result<Vec<u8>> {
        let state = &mut *self.disk.0.borrow_mut();
        state.step(false)?;
        let live = &state.inodes[self.inode].live;
        let end = usize::try_from(offset)
            .ok()
            .and_then(|start| Some(start..start.checked_add(len)?));
        let read = end.and_then(|range| live.get(range)).map(<[u8]>::to_vec);
        read.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    async fn sync(&self) -> io::Result<()> {
        let state = &mut *self.disk.0.borrow_mut();
        let outcome = state.step(false);
        let unsynced = std::mem::take(&mut state.inodes[self.inode].unsynced);
        if let Err(error) = outcome {
            if state.fault.is_some_and(|(step, _)| step == state.steps) {
                // The kernel holds such pages for clean: some were written, the others never will be.
                for unsynced in unsynced {
                    let mut lasting = std::mem::take(&mut state.inodes[self.inode].lasting);
                    unsynced.apply(&mut lasting, || state.below(2) == 0);
                    state.inodes[self.inode].lasting = lasting;
                }
            } else {
                state.inodes[self.inode].unsynced = unsynced;
            }
            return Err(error);
        }
        let lasting = &mut state.inodes[self.inode].lasting;
        for unsynced in unsynced {
            unsynced.apply(lasting, || true);
        }
        Ok(())
    }

    async fn reserve(&self, len: u64) -> io::Result<()> {
        let state = &mut *self.disk.0.borrow_mut();
        state.step(true)?;
        let size = state.inodes[self.inode].live.len();
        let grown = (len as usize).saturating_sub(size) as u64;
        if grown > state.room.saturating_sub(state.used()) {
            return Err(Fault::Full.into());
        }
        let inode = &mut state.inodes[self.inode];
        inode.live.resize((len as usize).max(size), 0);
        inode.unsynced.push(Unsynced::Grow(len as usize));
        Ok(())
    }

    async fn size(&self) -> io::Result<u64> {
        let state = &mut *self.disk.0.borrow_mut();
        state.step(false)?;
        Ok(state.inodes[self.inode].live.len() as u64)
    }
}
