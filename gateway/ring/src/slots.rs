//! The connection table: slots with generations, bounded, grown only as far as it was ever needed.
//!
//! It holds values and never touches a descriptor. Invariant: an id is found only between the `insert` that made it
//! and its `remove`.

use crate::ConnId;

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// A bounded slab with generations.
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    /// Vacant slots below `slots.len()`; the last freed is the next used, since its memory is warm.
    vacant: Vec<u32>,
    bound: u32,
}

impl<T> Slots<T> {
    pub(crate) fn new(bound: u32) -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
            bound,
        }
    }

    /// `Err` gives the value back when the bound is reached.
    pub(crate) fn insert(&mut self, value: T) -> Result<ConnId, T> {
        let slot = match self.vacant.pop() {
            Some(slot) => slot,
            None if (self.slots.len() as u64) < u64::from(self.bound) => {
                self.slots.push(Slot {
                    generation: 0,
                    value: None,
                });
                (self.slots.len() - 1) as u32
            }
            None => return Err(value),
        };
        let entry = &mut self.slots[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.value = Some(value);
        Ok(ConnId {
            slot,
            generation: entry.generation,
        })
    }

    pub(crate) fn is_full(&self) -> bool {
        self.vacant.is_empty() && self.slots.len() as u64 >= u64::from(self.bound)
    }

    pub(crate) fn get(&self, conn: ConnId) -> Option<&T> {
        let entry = self.slots.get(conn.slot as usize)?;
        entry.value.as_ref().filter(|_| entry.generation == conn.generation)
    }

    /// How many are occupied.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    pub(crate) fn get_mut(&mut self, conn: ConnId) -> Option<&mut T> {
        let entry = self.slots.get_mut(conn.slot as usize)?;
        if entry.generation == conn.generation {
            entry.value.as_mut()
        } else {
            None
        }
    }

    /// The present id of an occupied slot.
    pub(crate) fn id_of(&self, slot: u32) -> Option<ConnId> {
        let entry = self.slots.get(slot as usize)?;
        entry.value.as_ref().map(|_| ConnId {
            slot,
            generation: entry.generation,
        })
    }

    /// The ids and values of the occupied slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnId, &T)> {
        self.slots.iter().enumerate().filter_map(|(slot, entry)| {
            let id = ConnId {
                slot: slot as u32,
                generation: entry.generation,
            };
            entry.value.as_ref().map(|value| (id, value))
        })
    }

    pub(crate) fn remove(&mut self, conn: ConnId) -> Option<T> {
        let entry = self.slots.get_mut(conn.slot as usize)?;
        if entry.generation != conn.generation {
            return None;
        }
        let value = entry.value.take()?;
        self.vacant.push(conn.slot);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_past_id_never_finds_a_present_value() {
        let mut slots = Slots::new(2);
        let a = slots.insert('a').unwrap();
        let b = slots.insert('b').unwrap();
        assert!(slots.is_full());
        assert_eq!(slots.insert('c'), Err('c'));
        assert_eq!(slots.remove(a), Some('a'));
        assert_eq!(slots.remove(a), None);
        assert_eq!(slots.len(), 1);
        let c = slots.insert('c').unwrap();
        assert_eq!(c.slot, a.slot);
        assert_ne!(c, a);
        assert_eq!(slots.get_mut(a), None);
        assert_eq!(slots.get_mut(c), Some(&mut 'c'));
        assert_eq!(slots.get_mut(b), Some(&mut 'b'));
        assert_eq!(slots.id_of(c.slot), Some(c));
        assert_eq!(slots.id_of(9), None);
        assert_eq!(slots.iter().collect::<Vec<_>>(), [(c, &'c'), (b, &'b')]);
        slots.remove(c);
        assert_eq!(slots.iter().collect::<Vec<_>>(), [(b, &'b')]);
    }
}
