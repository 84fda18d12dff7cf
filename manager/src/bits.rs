//! The bits of an outgoing bitmap and when each is to go again (lease-algorithms.md 8.3).

use sanlock_lease::geometry::HostId;
use sanlock_lease::limits::HOSTS_MAX;
use sanlock_lease::record::Bitmap;
use sanlock_lease::timing::MonoTime;
use std::collections::VecDeque;

const WORDS: usize = (HOSTS_MAX as usize).div_ceil(64);

/// Hosts whose bit is set, by the second in which that was done.
///
/// A host may stand in several seconds: its bit is set until the last of them is old. Ages count in whole seconds, so nothing is lost by
/// keeping seconds; and whether anything is to go at all is a look at the first one, which each tick does for every lockspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bits {
    seconds: VecDeque<(u64, Box<[u64; WORDS]>)>,
}

fn place(host: HostId) -> (usize, u64) {
    (host.index() / 64, 1 << (host.index() % 64))
}

impl Bits {
    /// Sets the bits of `hosts` at `now`.
    pub(crate) fn set(&mut self, now: MonoTime, hosts: impl IntoIterator<Item = HostId>) {
        // Time does not go back; if it did, the bits would stand longer.
        if self.seconds.back().is_none_or(|(second, _)| *second < now.secs()) {
            self.seconds.push_back((now.secs(), Box::new([0; WORDS])));
        }
        let Some((_, words)) = self.seconds.back_mut() else { return };
        for host in hosts {
            let (word, bit) = place(host);
            words[word] |= bit;
        }
    }

    /// Takes the bit of one host back.
    pub(crate) fn clear(&mut self, host: HostId) {
        let (word, bit) = place(host);
        for (_, words) in &mut self.seconds {
            words[word] &= !bit;
        }
    }

    /// Whether there is nothing to forget.
    pub(crate) fn is_empty(&self) -> bool {
        self.seconds.is_empty()
    }

    /// Whether [`Bits::expire`] would find anything older than `shown` seconds.
    pub(crate) fn any_older(&self, now: MonoTime, shown: u64) -> bool {
        self.seconds.front().is_some_and(|(second, _)| now.secs().saturating_sub(*second) > shown)
    }

    /// Forgets what was set more than `shown` seconds ago.
    pub(crate) fn expire(&mut self, now: MonoTime, shown: u64) {
        while self.any_older(now, shown) {
            self.seconds.pop_front();
        }
    }

    /// The bits that are set.
    pub(crate) fn bitmap(&self) -> Bitmap {
        let mut bitmap = Bitmap::default();
        for (_, words) in &self.seconds {
            for (at, word) in words.iter().enumerate() {
                let mut left = *word;
                while left != 0 {
                    let index = at * 64 + left.trailing_zeros() as usize;
                    if let Some(host) = HostId::from_index(index) {
                        bitmap.set(host);
                    }
                    left &= left - 1;
                }
            }
        }
        bitmap
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn host(id: u64) -> HostId {
        HostId::new(id).expect("a host id")
    }

    #[test]
    fn the_first_and_the_last_host_have_bits() {
        let mut bits = Bits::default();
        bits.set(MonoTime::from_millis(0), [1, 64, 65, 2000].map(host));
        let set: Vec<u64> = bits.bitmap().hosts().map(HostId::get).collect();
        assert_eq!(set, [1, 64, 65, 2000]);
        bits.clear(host(64));
        assert!(!bits.bitmap().contains(host(64)) && bits.bitmap().contains(host(65)));
    }

    proptest! {
        /// The same as a time kept for each host.
        #[test]
        fn each_bit_goes_when_it_was_set_long_enough(
            turns in prop::collection::vec((0_u64..2500, 1_u64..6, 0_u8..3), 1..60), shown in 0_u64..8,
        ) {
            let (mut bits, mut since) = (Bits::default(), BTreeMap::new());
            let mut millis = 0;
            for (pause, id, what) in turns {
                millis += pause;
                let now = MonoTime::from_millis(millis);
                match what {
                    0 => {
                        bits.clear(host(id));
                        since.remove(&host(id));
                    }
                    1 => {
                        bits.set(now, [host(id), host(id + 1)]);
                        since.extend([(host(id), now), (host(id + 1), now)]);
                    }
                    _ => {}
                }
                let before = since.len();
                since.retain(|_, at| now.secs_since(*at) <= shown);
                prop_assert!(bits.any_older(now, shown) || since.len() == before, "a tick would miss it");
                bits.expire(now, shown);
                let set: Vec<HostId> = bits.bitmap().hosts().collect();
                prop_assert_eq!(set, since.keys().copied().collect::<Vec<_>>());
                prop_assert!(bits.seconds.len() as u64 <= shown + 1);
            }
        }
    }
}
