//! Draws tokens where the logits are, by the graphs of [`crate::head`]: masks and a few numbers go there, ids come back.
//!
//! It never looks at logits itself and never draws for a row that did not ask. Invariant: after a run, what it says of a row
//! is of the row's own request in that run.

use ort::{AsPointer, session::Session};

use super::{
    SysError,
    memory::Buffer,
    signed,
    tensor::{Arguments, MemoryInfo, View},
};
use crate::head::{CANDIDATES, Kind, Request, Verdict, mask_bytes};

/// See the module.
// Field order is drop order: views before the memory and the sessions that they refer to.
pub(crate) struct Drawer {
    heads: Vec<Head>,
    /// The inputs behind the logits, for batches from 1 on.
    inputs: Vec<[View; 6]>,
    /// Its outputs: ids, and then log probabilities.
    ids: Vec<View>,
    told: Vec<[View; 3]>,
    mask: Buffer<u8>,
    scale: Buffer<f32>,
    chance: Buffer<f64>,
    keep: Buffer<i64>,
    share: Buffer<f64>,
    min_p: Buffer<f32>,
    id: Buffer<i64>,
    logprob: Buffer<f32>,
    top_ids: Buffer<i64>,
    top_logprobs: Buffer<f32>,
    /// What each row asked for.
    asks: Vec<Option<Ask>>,
    /// Rows whose mask allows all that can be drawn.
    open: Vec<bool>,
    drawable: usize,
    width: usize,
    top: usize,
}

#[derive(Debug, Clone, Copy)]
struct Ask {
    whole: bool,
    told: bool,
}

/// One graph.
struct Head {
    arguments: Arguments,
    kind: Kind,
    session: Session,
}

/// Log probabilities of a row: of the token drawn, and of the best ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told<'a> {
    pub(crate) own: f32,
    pub(crate) ids: &'a [i64],
    pub(crate) logprobs: &'a [f32],
}

const NAMES: [&str; 7] = ["logits", "mask", "scale", "chance", "keep", "share", "min_p"];
const TOLD: [&str; 3] = ["logprob", "top_ids", "top_logprobs"];

impl Drawer {
    /// Of graphs for the same vocabulary, the cheapest first, of which the last can all that any of them can; for up to
    /// `rows` rows, of which ids below `drawable` may be drawn.
    pub(super) fn new(heads: Vec<(Kind, Session)>, rows: usize, drawable: usize) -> Result<Self, SysError> {
        let last = heads.last().map(|(kind, _)| *kind);
        let Kind { vocabulary, top, .. } = last.ok_or_else(|| SysError("no graph to draw by".into()))?;
        let (width, top) = (mask_bytes(vocabulary), top.unwrap_or(0));
        let host = MemoryInfo::host()?;
        let mask = Buffer::<u8>::new(rows * width)?;
        let (scale, min_p, logprob) = (Buffer::new(rows)?, Buffer::new(rows)?, Buffer::new(rows)?);
        let (chance, share) = (Buffer::new(rows)?, Buffer::new(rows)?);
        let (keep, id) = (Buffer::new(rows)?, Buffer::new(rows)?);
        let (top_ids, top_logprobs) = (Buffer::new(rows * top)?, Buffer::new(rows * top)?);
        let (mut inputs, mut ids, mut told) = (Vec::new(), Vec::new(), Vec::new());
        for batch in (1..=rows).map(signed) {
            inputs.push([
                mask.view(&host, &[batch, signed(width)])?,
                scale.view(&host, &[batch, 1])?,
                chance.view(&host, &[batch, 1])?,
                keep.view(&host, &[batch, 1])?,
                share.view(&host, &[batch, 1])?,
                min_p.view(&host, &[batch, 1])?,
            ]);
            ids.push(id.view(&host, &[batch, 1])?);
            told.push([
                logprob.view(&host, &[batch, 1])?,
                top_ids.view(&host, &[batch, signed(top)])?,
                top_logprobs.view(&host, &[batch, signed(top)])?,
            ]);
        }
        let mut drawer = Self {
            heads: heads
                .into_iter()
                .map(|(kind, session)| Head::new(kind, session))
                .collect(),
            inputs,
            ids,
            told,
            mask,
            scale,
            chance,
            keep,
            share,
            min_p,
            id,
            logprob,
            top_ids,
            top_logprobs,
            asks: vec![None; rows],
            open: vec![false; rows],
            drawable: drawable.min(vocabulary),
            width,
            top,
        };
        (0..rows).for_each(|row| drawer.open_mask(row));
        drawer.forget();
        Ok(drawer)
    }

    /// What the most able graph can.
    pub(crate) fn kind(&self) -> Kind {
        self.heads[self.heads.len() - 1].kind
    }

    /// The log probabilities that it can tell beside a token's own; `None`: not even that. The graph takes the ids that no
    /// token has into account as well, which the host does not: then only the host can tell.
    pub(crate) fn tells(&self) -> Option<usize> {
        let kind = self.kind();
        kind.top.filter(|_| self.drawable == kind.vocabulary)
    }

    /// Forgets what rows asked for.
    pub(crate) fn forget(&mut self) {
        for row in 0..self.asks.len() {
            self.asks[row] = None;
            // A row is computed with its neighbours: anything valid, for nobody. Its mask stays what it was.
            self.set(row, &Request::NOTHING);
        }
    }

    /// Asks for a draw from row `row`. `mask`: one bit for each id that can be drawn; `None`: all of them may be. `told`: with
    /// log probabilities.
    pub(crate) fn ask(&mut self, row: usize, request: &Request, mask: Option<&[u32]>, told: bool) {
        self.asks[row] = Some(Ask {
            whole: request.keep < 1 || request.keep > CANDIDATES as i64,
            told,
        });
        self.set(row, request);
        match mask {
            Some(words) => self.set_mask(row, words),
            None => self.open_mask(row),
        }
    }

    fn set(&mut self, row: usize, request: &Request) {
        self.scale.as_mut_slice()[row] = request.scale;
        self.chance.as_mut_slice()[row] = request.chance;
        self.keep.as_mut_slice()[row] = request.keep;
        self.share.as_mut_slice()[row] = request.share;
        self.min_p.as_mut_slice()[row] = request.min_p;
    }

    fn open_mask(&mut self, row: usize) {
        if !std::mem::replace(&mut self.open[row], true) {
            self.write_mask(row, std::iter::repeat(u32::MAX));
        }
    }

    fn set_mask(&mut self, row: usize, words: &[u32]) {
        self.open[row] = false;
        self.write_mask(row, words.iter().copied());
    }

    /// Ids without a token are never allowed.
    fn write_mask(&mut self, row: usize, words: impl Iterator<Item = u32>) {
        let bytes = &mut self.mask.as_mut_slice()[row * self.width..][..self.width];
        let words = words.chain(std::iter::repeat(0));
        for (at, (bytes, word)) in bytes.chunks_exact_mut(4).zip(words).enumerate() {
            let beyond = self.drawable.saturating_sub(32 * at);
            let allowed = if beyond < 32 { (1u32 << beyond) - 1 } else { u32::MAX };
            bytes.copy_from_slice(&(word & allowed).to_le_bytes());
        }
    }

    /// Draws from the first `rows` rows of `logits`, if any of them asked. Returns how many bytes came back.
    pub(super) fn run(&mut self, logits: &View, rows: usize) -> Result<usize, SysError> {
        let asks = || self.asks[..rows].iter().flatten();
        if asks().next().is_none() {
            return Ok(0);
        }
        let (whole, told) = (asks().any(|ask| ask.whole), asks().any(|ask| ask.told));
        let can = |head: &Head| (head.kind.whole || !whole) && (head.kind.top.is_some() || !told);
        let head = self.heads.iter_mut().find(|head| can(head));
        let head = head.ok_or_else(|| SysError("no graph can draw what was asked for".into()))?;
        let told = head.kind.top.is_some().then(|| &self.told[rows - 1]);
        let outputs = std::iter::once(&self.ids[rows - 1]).chain(told.into_iter().flatten());
        // SAFETY: the session, the tensors and the memory below them are owned by `self` and by the caller, who are borrowed
        // mutably, so no slice of that memory exists and nobody else runs the session. No output is an input.
        unsafe {
            head.arguments.run(
                head.session.ptr().cast_mut(),
                std::iter::once(logits).chain(&self.inputs[rows - 1]),
                outputs,
            )?;
        }
        let row = size_of::<i64>() + told.map_or(0, |_| 4 + self.top * (4 + size_of::<i64>()));
        Ok(rows * row)
    }

    /// What was drawn for a row; `None`: it did not ask.
    pub(crate) fn verdict(&self, row: usize) -> Option<(Verdict, Option<Told<'_>>)> {
        let ask = self.asks[row]?;
        let told = ask.told.then(|| Told {
            own: self.logprob.as_slice()[row],
            ids: &self.top_ids.as_slice()[row * self.top..][..self.top],
            logprobs: &self.top_logprobs.as_slice()[row * self.top..][..self.top],
        });
        Some((Verdict::from(self.id.as_slice()[row]), told))
    }
}

impl Head {
    fn new(kind: Kind, session: Session) -> Self {
        let told = if kind.top.is_some() { &TOLD[..] } else { &[] };
        let outputs: Vec<String> = ["id"].iter().chain(told).map(|name| (*name).to_owned()).collect();
        Self {
            arguments: Arguments::new(&NAMES.map(str::to_owned), &outputs),
            kind,
            session,
        }
    }
}
