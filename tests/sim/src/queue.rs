//! What is going to happen, in order of time; what is planned for the same microsecond, in the order it was planned.
//!
//! Most of what is planned is a deadline far ahead that means nothing by then. So only the next few milliseconds are kept sorted;
//! the rest lies in slots by its time, and what has become void is dropped when its slot comes up. The slots share one store: what is
//! planned next takes the place of what happened last, so that a queue stays as small as what is in it.

use crate::clock::Micros;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Bits of the microseconds within a slot.
const SLOT_BITS: u32 = 15;
/// Bits of the slots of a round.
const ROUND_BITS: u32 = 12;
/// Slots of a round.
const SLOTS: u64 = 1 << ROUND_BITS;

#[derive(Clone, Copy, Debug)]
struct Planned<E> {
    at: Micros,
    number: u64,
    event: E,
}

impl<E> Planned<E> {
    fn slot(&self) -> u64 {
        self.at >> SLOT_BITS
    }

    /// By which they are sorted.
    fn order(&self) -> (Micros, u64) {
        (self.at, self.number)
    }
}

/// A place in the store, and the one that follows it in its slot.
#[derive(Debug)]
struct Place<E> {
    planned: Planned<E>,
    next: u32,
}

/// No place.
const NONE: u32 = u32::MAX;

/// Planned events.
#[derive(Debug)]
pub struct Queue<E> {
    /// Everything in slots up to the current one, the earliest last. It is never much, and most of what is added happens soon: little
    /// is moved.
    near: Vec<Planned<E>>,
    /// Which slot, counted from the beginning, is the current one.
    slot: u64,
    /// The rest of the current round, by slot: the first place of each. They are sorted when their slot comes up.
    slots: Vec<u32>,
    /// The places of all slots.
    store: Vec<Place<E>>,
    /// The first place of those that are free.
    free: u32,
    /// Later rounds.
    rounds: BTreeMap<u64, Vec<Planned<E>>>,
    planned: u64,
    len: usize,
}

impl<E: Copy> Queue<E> {
    /// Nothing is planned.
    #[must_use]
    pub fn new() -> Self {
        let slots = (0..SLOTS).map(|_| NONE).collect();
        let (near, rounds, store) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self { near, slot: 0, slots, store, free: NONE, rounds, planned: 0, len: 0 }
    }

    /// Puts something into its slot, which is one of the current round.
    fn put(&mut self, planned: Planned<E>) {
        let slot = index(planned.slot());
        let fresh = Place { planned, next: self.slots[slot] };
        self.slots[slot] = match self.store.get_mut(self.free as usize) {
            Some(place) => {
                let at = self.free;
                self.free = std::mem::replace(place, fresh).next;
                at
            }
            None => {
                self.store.push(fresh);
                u32::try_from(self.store.len() - 1).unwrap_or(NONE)
            }
        };
    }

    /// Takes something out of a slot.
    fn take(&mut self, slot: usize) -> Option<Planned<E>> {
        let at = self.slots[slot];
        let place = self.store.get_mut(at as usize)?;
        self.slots[slot] = std::mem::replace(&mut place.next, self.free);
        self.free = at;
        Some(place.planned)
    }

    /// Plans something for a time that has not passed.
    pub fn plan(&mut self, at: Micros, event: E) {
        self.planned += 1;
        self.len += 1;
        let planned = Planned { at, number: self.planned, event };
        let slot = planned.slot();
        if slot <= self.slot {
            // Behind what is planned for the same time.
            let place = self.near.partition_point(|other| other.at > at);
            self.near.insert(place, planned);
        } else if slot >> ROUND_BITS == self.slot >> ROUND_BITS {
            self.put(planned);
        } else {
            self.rounds.entry(slot >> ROUND_BITS).or_default().push(planned);
        }
    }

    /// Takes the next event and its time. What is `void` when its slot comes up never happens.
    pub fn next(&mut self, void: impl Fn(&E) -> bool) -> Option<(Micros, E)> {
        while self.near.is_empty() {
            if self.len == 0 {
                return None;
            }
            self.slot += 1;
            if self.slot % SLOTS == 0 {
                for planned in self.rounds.remove(&(self.slot >> ROUND_BITS)).unwrap_or_default() {
                    self.put(planned);
                }
            }
            while let Some(planned) = self.take(index(self.slot)) {
                if void(&planned.event) {
                    self.len -= 1;
                } else {
                    self.near.push(planned);
                }
            }
            self.near.sort_unstable_by_key(|planned| Reverse(planned.order()));
        }
        let next = self.near.pop()?;
        self.len -= 1;
        Some((next.at, next.event))
    }

    /// Moves everything that is planned to another time, not an earlier one. What was planned for the same time before stays in its
    /// order.
    pub fn postpone(&mut self, to: impl Fn(Micros, &E) -> Micros) {
        let mut all = std::mem::take(&mut self.near);
        for slot in 0..self.slots.len() {
            all.extend(std::iter::from_fn(|| self.take(slot)));
        }
        all.extend(std::mem::take(&mut self.rounds).into_values().flatten());
        all.sort_by_key(Planned::order);
        self.len = 0;
        for planned in all {
            self.plan(to(planned.at, &planned.event).max(planned.at), planned.event);
        }
    }

    /// How many events are planned.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<E: Copy> Default for Queue<E> {
    fn default() -> Self {
        Self::new()
    }
}

fn index(slot: u64) -> usize {
    usize::try_from(slot % SLOTS).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    #[test]
    fn events_happen_by_time_and_then_in_the_order_they_were_planned() {
        let mut dice = Dice::new(3);
        let mut queue = Queue::new();
        let (mut now, mut expected, mut seen) = (0, Vec::new(), Vec::new());
        for number in 0..20_000_u64 {
            let at =
                now + if dice.per_mille(300) { dice.between(0, 3) } else { dice.spread(1, 2_000_000_000) };
            queue.plan(at, number);
            expected.push((at, number));
            if dice.per_mille(600) {
                let next = queue.next(|_| false).expect("planned");
                now = next.0;
                seen.push(next);
            }
        }
        while let Some(next) = queue.next(|_| false) {
            seen.push(next);
        }
        expected.sort_unstable();
        assert_eq!(seen, expected);
        assert!(queue.is_empty());
    }

    #[test]
    fn what_is_void_by_then_never_happens() {
        let mut queue = Queue::new();
        for number in 0..100_u64 {
            queue.plan(1_000_000 * number, number);
        }
        let mut happened = 0;
        while let Some((_, number)) = queue.next(|n| n % 2 == 1 && *n > 0) {
            assert_eq!(number % 2, 0);
            happened += 1;
        }
        assert_eq!((happened, queue.len()), (50, 0));
    }
}
