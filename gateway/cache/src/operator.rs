//! What the operator asks of the files: whose answers they are, what is purged, checked, read and made anew.
//!
//! A child of the upkeep, whose steps it uses; no request waits for it. Invariant: what was purged is in no file afterwards, unless
//! the disk fails, which is told.

use std::{ops::Bound, sync::Arc};

use super::{Files, Key, Note, Now, Store, part};
use crate::{cache::Checked, index::NAME_OF_FILE, types::PartNumber};

impl<D: Files + Clone> Store<D> {
    /// Reads the tenants of entries that only the index told of, from the key columns of their parts.
    /// A part that cannot be read goes: nobody could say whose its answers are.
    pub(crate) async fn learn_tenants(&mut self, now: Now) {
        let Some(disk) = &self.disk else { return };
        let (mut learned, mut damaged) = (Vec::new(), Vec::new());
        for (number, it) in &disk.parts {
            let rows = it.part.rows().await.unwrap_or_else(|_| {
                damaged.push(*number);
                Vec::new()
            });
            for row in rows {
                let Some(model) = self.shared.model(&row.model) else {
                    continue;
                };
                let key = Key {
                    model,
                    context: row.context,
                    prompt: row.prompt,
                };
                if let Some(entry) = self.find(&key).filter(|entry| entry.place == row.place) {
                    learned.push((entry.id, row.tenant));
                }
            }
        }
        for (id, tenant) in learned {
            self.set_tenant(id, tenant);
        }
        for number in damaged {
            self.notes
                .say(Note::PartDamaged(number, "its key columns cannot be read".into()));
            self.give_up(number, now).await;
        }
    }

    /// What was purged leaves the disk too, and so do older answers under the same keys and whatever else is dead: the segment is
    /// sealed, parts with anything dead in them are made anew, and the index is committed.
    pub(crate) async fn purge_files(&mut self, now: Now) {
        let Some(disk) = &self.disk else { return };
        if disk.log.as_ref().is_some_and(|log| log.end() > 0) {
            self.seal(now).await;
        }
        let Some(disk) = &mut self.disk else { return };
        for it in disk.parts.values_mut() {
            it.unclean |= it.entries < it.part.rows_count();
        }
        for _ in 0..disk.parts.len() {
            self.compact(now).await;
        }
        self.commit(now).await;
    }

    /// Checks the index, or the next part behind `after`.
    pub(crate) async fn check(&self, after: Option<PartNumber>) -> Option<Checked> {
        let disk = self.disk.as_ref()?;
        let Some(after) = after else {
            let checked = disk.index.tree().verify();
            return Some(Checked {
                number: PartNumber(0),
                file: NAME_OF_FILE.to_owned(),
                entries: disk.index.tree().len(),
                bytes: disk.index.file_bytes(),
                damage: checked.err().map(|damage| damage.to_string()),
            });
        };
        let (number, it) = disk.parts.range((Bound::Excluded(after), Bound::Unbounded)).next()?;
        let checked = it.part.verify().await;
        Some(Checked {
            number: *number,
            file: part::name(*number),
            entries: it.part.rows_count() as u64,
            bytes: it.part.bytes(),
            damage: checked.err().map(|why| why.to_string()),
        })
    }

    /// Makes the next part behind `after` anew that has dead rows.
    pub(crate) async fn renew_next(&mut self, after: PartNumber, now: Now) -> Option<PartNumber> {
        let parts = &self.disk.as_ref()?.parts;
        let mut behind = parts.range((Bound::Excluded(after), Bound::Unbounded));
        let (number, form) = behind
            .find(|(_, it)| it.entries < it.part.rows_count())
            .map(|(number, it)| (*number, it.part.form()))?;
        self.renew(&[number], form, now).await;
        Some(number)
    }

    /// The value under this key, wherever it lies; `None` also where it cannot be read.
    pub(crate) async fn read(&self, key: &Key) -> Option<Arc<[u8]>> {
        let entry = self.find(key)?;
        if let Some(value) = self.value(&key.prompt) {
            return Some(value);
        }
        let it = self.disk.as_ref()?.parts.get(&entry.place.part)?;
        Some(it.part.read(entry.place).await.ok()?.into())
    }
}
